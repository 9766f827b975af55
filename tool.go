package tallystick

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/internal/wire"
)

// A ToolHandler is an mcp.ToolHandlerFor with a [Call] where the request was: a
// run may be elsewhere, a day later, so that there is no request. The result,
// output and error are treated as go-sdk does.
//
// It may run again from the top; what must not repeat is inside [Once].
type ToolHandler[In, Out any] func(ctx context.Context, call *Call, in In) (*mcp.CallToolResult, Out, error)

// TaskUse says whether calls of a tool run as tasks.
type TaskUse int

// Uses of tasks.
const (
	TaskForbidden TaskUse = iota // never
	TaskOptional                 // a task if the client declares the extension, else inline
	TaskRequired                 // error -32021 if the client does not
)

// ToolOptions of a tool. Nil means the zero value.
type ToolOptions struct {
	Task TaskUse
	// TaskAfter, with TaskOptional: a call runs inline for so long, and what has
	// not ended or asked by then goes on as it is, as a task that the request
	// gets. Zero: a task at once. A client without the extension goes on waiting.
	// Each round of a call has that time anew.
	TaskAfter time.Duration
	// AskFirst, of a task tool: questions before any Report or Once are asked
	// in rounds of the request itself, and then the task is announced.
	AskFirst bool
	// Timeout of running time, never of waiting. Zero: none but the deadline.
	Timeout time.Duration
	// MaxRuns bounds how often the handler runs for one call. Zero: 100.
	MaxRuns int
	// Deadline of a call, from its creation. Zero: Limits.Deadline.
	Deadline time.Duration
	// AcceptUnaskedAnswers gives up that only answers to questions that were
	// asked count: a first request may carry answers, which are taken for those
	// to the handler's questions of that key. Only for read-only tools.
	AcceptUnaskedAnswers bool
}

// A feature is a tool, prompt or resource that was added to a server.
type feature struct {
	ToolOptions
	method, name string
	readOnly     bool
	structured   bool   // a tool that declares what its results look like
	version      string // of what it takes: a stored call of another is not run
	// check validates a request's arguments, before anything else is done with
	// them. toolErr is told to the model; err is a JSON-RPC error.
	check func(args json.RawMessage) (toolErr, err error)
	// run is one execution of the handler.
	run func(ctx context.Context, c *Call) produced
	// match tells whether a URI is one of a resource template.
	match func(uri string) bool
}

// produced is what a handler returned, as a result object.
type produced struct {
	result    json.RawMessage // with resultType
	toolError bool
	err       error // an error of the handler, not yet a result
}

// AddTool adds a tool to s and to the SDK server under it. Schemas are inferred
// and values validated as by mcp.AddTool. A tool whose annotations say
// ReadOnlyHint is carried by its clients and cannot use [Once]; every other one
// counts as having effects and is kept in the store, from its first question,
// effect, idempotency key or task on.
//
// AddTool panics if the tool cannot be served as its options say.
func AddTool[In, Out any](s *Server, t *mcp.Tool, opts *ToolOptions, h ToolHandler[In, Out]) {
	tool := *t
	f := &feature{method: wire.MethodCallTool, name: t.Name, readOnly: t.Annotations != nil && t.Annotations.ReadOnlyHint}
	if opts != nil {
		f.ToolOptions = *opts
	}
	if f.MaxRuns <= 0 {
		f.MaxRuns = 100
	}
	in, err := schemaFor[In](&tool.InputSchema, true)
	if err != nil {
		panic(fmt.Sprintf("tallystick.AddTool: tool %q: input schema: %v", t.Name, err))
	}
	var out *valueSchema
	if tool.OutputSchema != nil || reflect.TypeFor[Out]() != reflect.TypeFor[any]() {
		if out, err = schemaFor[Out](&tool.OutputSchema, false); err != nil {
			panic(fmt.Sprintf("tallystick.AddTool: tool %q: output schema: %v", t.Name, err))
		}
		f.structured = true
	}
	if err := s.servable(f); err != nil {
		panic(fmt.Sprintf("tallystick.AddTool: tool %q: %v", t.Name, err))
	}
	f.version = schemaVersion(tool.InputSchema)
	f.check = func(args json.RawMessage) (error, error) { return checkArguments[In](args, in) }
	f.run = func(ctx context.Context, c *Call) produced {
		var input In
		args, err := in.checked(c.journal.Call().Args)
		if err == nil {
			err = strictDecode(args, &input)
		}
		if err != nil {
			return produced{err: fmt.Errorf("decoding the arguments: %w", err)}
		}
		res, output, err := h(ctx, c, input)
		return produce(res, output, err, out)
	}
	s.add(f)
	s.mu.Lock()
	s.headers[t.Name] = paramHeaders(tool.InputSchema)
	s.mu.Unlock()
	s.mcp.AddTool(&tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := wire.FromToolCall(req, s.wireLimits())
		return legacy[mcp.CallToolResult](ctx, s, r, err)
	})
}

// servable says why the options of a feature cannot be honoured, if so.
func (s *Server) servable(f *feature) error {
	switch {
	case !f.readOnly && s.opts.Store == nil:
		return errors.New("it is not read-only, and Options.Store is nil: set ReadOnlyHint or give a store")
	case f.readOnly && f.Task != TaskForbidden:
		return errors.New("a read-only tool is carried by its clients and cannot be a task")
	case f.TaskAfter < 0 || f.TaskAfter > 0 && (f.Task != TaskOptional || f.AskFirst):
		return errors.New("TaskAfter goes with TaskOptional and without AskFirst, and is not negative")
	case f.AskFirst && f.Task == TaskForbidden:
		return errors.New("AskFirst is for task tools")
	case f.AcceptUnaskedAnswers && !f.readOnly:
		return errors.New("AcceptUnaskedAnswers is for read-only tools")
	case f.Task < TaskForbidden || f.Task > TaskRequired:
		return errors.New("unknown TaskUse")
	}
	return nil
}

// add registers a feature. Two of one name cannot be told apart in a sealed
// state, so that the second is a mistake.
func (s *Server) add(f *feature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := thing{f.method, f.name}
	if s.things[key] != nil {
		panic(fmt.Sprintf("tallystick: %s %q was added twice", f.method, f.name))
	}
	s.things[key] = f
}

// feature finds what a request is for, or nil.
func (s *Server) feature(method, name string) *feature {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.things[thing{method, name}]; f != nil {
		return f
	}
	if method == wire.MethodReadResource {
		for _, f := range s.tmpls {
			if f.match(name) {
				return f
			}
		}
	}
	return nil
}

// A valueSchema is what a tool's arguments or output must be.
type valueSchema struct {
	*jsonschema.Resolved
	plain *plain
	known []string // names of the properties
}

// schemaFor resolves the schema in field, inferring it from T if there is none.
func schemaFor[T any](field *any, input bool) (*valueSchema, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var schema *jsonschema.Schema
	switch given := (*field).(type) {
	case nil:
		if t == reflect.TypeFor[any]() {
			schema = &jsonschema.Schema{Type: "object"}
		} else {
			var err error
			if schema, err = jsonschema.ForType(t, &jsonschema.ForOptions{}); err != nil {
				return nil, err
			}
		}
		*field = schema
	case *jsonschema.Schema:
		schema = given
	default:
		raw, err := json.Marshal(given)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &schema); err != nil {
			return nil, err
		}
	}
	if input && (schema == nil || schema.Type != "object") {
		return nil, errors.New(`its type must be "object"`)
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, err
	}
	return &valueSchema{resolved, plainOf(resolved.Schema()), slices.Collect(maps.Keys(schema.Properties))}, nil
}

// schemaVersion is a digest of what a tool takes.
func schemaVersion(schema any) string {
	raw, err := json.Marshal(schema)
	if err != nil {
		return ""
	}
	sum, err := canon.Digest(raw)
	if err != nil {
		return ""
	}
	return sum
}

// checkArguments validates arguments before any handler sees them.
func checkArguments[In any](args json.RawMessage, in *valueSchema) (toolErr, err error) {
	full, accepted := args, in.plain.accepts(args) && args[0] == '{'
	if len(args) > 0 && !(accepted && in.plain.closed) { // else no name is there that is not known
		if err := canon.CheckFold(args, in.known); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "arguments: %v", err)
		}
	}
	if !accepted {
		if full, err = in.full(args); err != nil {
			return fmt.Errorf("validating \"arguments\": %w", err), nil
		}
	}
	var input In
	if err := strictDecode(full, &input); err != nil {
		return fmt.Errorf("validating \"arguments\": %w", err), nil
	}
	return nil, nil
}

// checked is full for arguments that were validated when their call was opened,
// by a schema of the same version. A plain one has nothing to fill in.
func (in *valueSchema) checked(args []byte) (json.RawMessage, error) {
	if in.plain != nil && len(args) > 0 && args[0] == '{' {
		return args, nil
	}
	return in.full(args)
}

// full returns the arguments with the schema's defaults for what they leave
// out, validated. What they say stays as they say it, byte for byte.
func (in *valueSchema) full(args []byte) (json.RawMessage, error) {
	if len(args) == 0 {
		args = []byte("{}")
	}
	value := map[string]any{}
	if err := json.Unmarshal(args, &value); err != nil {
		if at, ok := outOfRange(args); ok {
			return nil, fmt.Errorf("the number at %q is out of range: it is larger than 64-bit floating point holds", at)
		}
		return nil, errors.New("they are no object")
	}
	if value == nil {
		value = map[string]any{}
		args = []byte("{}")
	}
	var full any = value
	if err := in.ApplyDefaults(&full); err != nil {
		return nil, err
	}
	if err := in.Validate(full); err != nil {
		return nil, err
	}
	return overlay(args, full)
}

// outOfRange finds a number that no float64 can hold, as a JSON Pointer.
func outOfRange(raw []byte) (at string, found bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return "", false
	}
	var walk func(v any, path jsontext.Pointer) bool
	walk = func(v any, path jsontext.Pointer) bool {
		switch v := v.(type) {
		case json.Number:
			_, err := v.Float64()
			at = string(path)
			return err != nil
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if walk(v[name], path.AppendToken(name)) {
					return true
				}
			}
		case []any:
			for i, e := range v {
				if walk(e, path.AppendToken(strconv.Itoa(i))) {
					return true
				}
			}
		}
		return false
	}
	found = walk(value, "")
	return at, found
}

// overlay adds to an object the members that full has and it has not.
func overlay(raw json.RawMessage, full any) (json.RawMessage, error) {
	want, ok := full.(map[string]any)
	if !ok {
		return raw, nil
	}
	var have map[string]json.RawMessage
	if err := json.Unmarshal(raw, &have); err != nil || have == nil {
		return raw, nil
	}
	changed := false
	for name, v := range want {
		old, ok := have[name]
		if !ok {
			added, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			have[name], changed = added, true
			continue
		}
		merged, err := overlay(old, v)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(merged, old) {
			have[name], changed = merged, true
		}
	}
	if !changed {
		return raw, nil
	}
	return json.Marshal(have)
}

// produce makes a result object of a tool handler's three returns, as go-sdk
// does.
func produce[Out any](res *mcp.CallToolResult, output Out, err error, schema *valueSchema) produced {
	if err != nil {
		return produced{err: err}
	}
	structured, err := structure(output, schema)
	if err != nil {
		return produced{err: &jsonrpc.Error{Code: wire.CodeInternal, Message: err.Error()}}
	}
	if res == nil && structured != nil {
		return produced{result: structuredOnly(structured)}
	}
	if res == nil {
		res = &mcp.CallToolResult{}
	}
	if res.InputRequests != nil || res.RequestState != "" {
		return produced{err: errors.New("a handler asks by Ask, Confirm or Input, not by InputRequests in its result")}
	}
	copied := *res
	if structured != nil {
		copied.StructuredContent = structured
		if copied.Content == nil {
			copied.Content = []mcp.Content{&mcp.TextContent{Text: string(structured)}}
		} else if structured[0] != '{' {
			copied.Content = append(copied.Content, &mcp.TextContent{Text: string(structured)})
		}
	}
	if copied.Content == nil {
		copied.Content = []mcp.Content{}
	}
	raw, err := json.Marshal(&copied)
	if err != nil {
		return produced{err: &jsonrpc.Error{Code: wire.CodeInternal, Message: "the result cannot be marshalled: " + err.Error()}}
	}
	return produced{result: complete(raw), toolError: copied.IsError}
}

// structuredOnly is the result of a handler that returns its output alone: the
// very bytes that marshalling a result gives.
func structuredOnly(structured json.RawMessage) json.RawMessage {
	text, _ := json.Marshal(string(structured)) // a string
	b := make([]byte, 0, len(text)+len(structured)+100)
	b = append(b, `{"resultType":"complete","content":[{"type":"text","text":`...)
	b = append(b, text...)
	b = append(b, `}],"structuredContent":`...)
	b = append(b, structured...)
	return append(b, '}')
}

// structure returns the structured content for an output, as compact JSON; nil
// if there is none.
func structure[Out any](output Out, schema *valueSchema) (json.RawMessage, error) {
	var out any = output
	if rt := reflect.TypeFor[Out](); rt.Kind() == reflect.Pointer && reflect.ValueOf(&output).Elem().IsNil() {
		out = reflect.Zero(rt.Elem()).Interface()
	}
	if out == nil {
		return nil, nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("marshalling the output: %w", err)
	}
	if schema != nil && schema.plain.accepts(raw) {
		return raw, nil
	}
	if !jsontext.Value(raw).IsValid() { // encoding/json lets json.RawMessage through, whatever its names and texts
		return nil, errors.New("the output has a name twice, or text that is not UTF-8")
	}
	if schema == nil {
		return raw, nil
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	if value == nil && schema.Schema().Type == "object" {
		value, raw = map[string]any{}, []byte("{}")
	}
	if _, ok := value.(map[string]any); ok {
		if err := schema.ApplyDefaults(&value); err != nil {
			return nil, err
		}
	}
	if err := schema.Validate(value); err != nil {
		return nil, fmt.Errorf("validating the tool's output: %w", err)
	}
	return overlay(raw, value)
}

// paramHeaders finds the x-mcp-header annotations of an input schema.
func paramHeaders(schema any) []wire.ParamHeader {
	type node struct {
		Header     string                     `json:"x-mcp-header"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var found []wire.ParamHeader
	var walk func(raw json.RawMessage, path []string)
	walk = func(raw json.RawMessage, path []string) {
		var n node
		if json.Unmarshal(raw, &n) != nil {
			return
		}
		if n.Header != "" && len(path) > 0 {
			found = append(found, wire.ParamHeader{Path: append([]string(nil), path...), Header: n.Header})
		}
		for name, p := range n.Properties {
			walk(p, append(path, name))
		}
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	walk(raw, nil)
	return found
}
