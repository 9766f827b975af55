package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// marshal is encoding/json without its escaping for HTML, on one line.
func marshal(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok && len(raw) > 0 {
		return slices.Clone(raw), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// unmarshal reads what is foreign: names count as they are written, none comes
// twice.
func unmarshal(b []byte, v any) error { return jsonv2.Unmarshal(b, v) }

// isObject reports whether b is one JSON object, as strict readers want it: in
// UTF-8, no name twice.
func isObject(b []byte) bool {
	v := jsontext.Value(b)
	return v.Kind() == '{' && v.IsValid()
}

// addMember adds a member that it does not have to an object.
func addMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	object = bytes.TrimRight(object, " \t\r\n")
	body := bytes.TrimRight(object[:len(object)-1], " \t\r\n")
	quoted, err := json.Marshal(name)
	if err != nil { // no string fails
		panic(err)
	}
	var b bytes.Buffer
	b.Grow(len(object) + len(quoted) + len(value) + 2)
	b.Write(body)
	if len(body) > 0 && body[len(body)-1] != '{' {
		b.WriteByte(',')
	}
	b.Write(quoted)
	b.WriteByte(':')
	b.Write(value)
	b.WriteByte('}')
	return b.Bytes()
}

func milliseconds(n int64) time.Duration {
	const most = int64(1<<62) / int64(time.Millisecond)
	return time.Duration(max(0, min(n, most))) * time.Millisecond
}

// A reply is a result by its resultType.
type reply struct {
	complete json.RawMessage
	asks     *asks
	task     *taskMessage
}

// asks is an InputRequiredResult.
type asks struct {
	questions []question
	state     *string
}

// readReply reads a result to a call. taskable: the request may become a task.
// What the result does not say in the protocol's words is an error, never an
// empty success. Source: "resultType" in Result, InputRequiredResult,
// CreateTaskResult.
func readReply(raw json.RawMessage, taskable bool, limit int) (reply, error) {
	members := map[string]json.RawMessage{}
	if err := unmarshal(raw, &members); err != nil {
		return reply{}, invalid("the result: %w", err)
	}
	kind := "complete"
	if v, ok := members["resultType"]; ok {
		if !isString(v) {
			return reply{}, invalid("resultType is no string")
		}
		_ = unmarshal(v, &kind) // it is one
	}
	switch kind {
	case "complete":
		return reply{complete: raw}, nil
	case "input_required":
		a, err := readAsks(members, limit)
		return reply{asks: a}, err
	case "task":
		if !taskable {
			return reply{}, invalid("a task was made of a request that may not become one")
		}
		t, err := readTask(raw, limit)
		return reply{task: t}, err
	}
	return reply{}, invalid("resultType is %q", cut(kind))
}

func isString(v json.RawMessage) bool { return len(v) > 0 && v[0] == '"' }

// cut shortens what a server sent, for an error.
func cut(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

func readAsks(members map[string]json.RawMessage, limit int) (*asks, error) {
	requests, asked := members["inputRequests"]
	state, kept := members["requestState"]
	a := new(asks)
	if kept {
		if !isString(state) {
			return nil, invalid("requestState is no string")
		}
		a.state = new(string)
		_ = unmarshal(state, a.state) // it is one
	}
	if asked {
		var err error
		if a.questions, err = readRequests(requests, limit); err != nil {
			return nil, err
		}
	}
	if len(a.questions) == 0 && !kept {
		return nil, invalid("input_required without inputRequests and without requestState")
	}
	return a, nil
}

const mostKey = 1 << 10 // bytes; a task's keys are kept as long as its call

// readRequests reads an InputRequests map, in the order of its keys.
func readRequests(raw json.RawMessage, limit int) ([]question, error) {
	var requests map[string]json.RawMessage
	if !isObject(raw) || unmarshal(raw, &requests) != nil {
		return nil, invalid("inputRequests is no object")
	}
	if len(requests) > limit {
		return nil, invalid("%d questions at once, over Limits.Questions %d", len(requests), limit)
	}
	var all []question
	for key, r := range requests {
		if len(key) > mostKey {
			return nil, invalid("the key of a question has %d bytes, more than %d", len(key), mostKey)
		}
		q, err := readRequest(key, r)
		if err != nil {
			return nil, fmt.Errorf("%w (question %q)", err, cut(key))
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b question) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// readRequest makes a question of a request, and checks that it can be shown.
func readRequest(key string, raw json.RawMessage) (q question, err error) {
	q = question{Key: key, Request: raw}
	var r struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if !isObject(raw) || unmarshal(raw, &r) != nil {
		return q, invalid("a question is no request")
	}
	switch r.Method {
	case "elicitation/create":
		err = q.elicitation(r.Params)
		return q, err
	case "sampling/createMessage":
		if !isObject(r.Params) {
			return q, invalid("sampling/createMessage without params")
		}
		q.Kind = Sampling
		return q, nil
	case "roots/list":
		q.Kind = Roots
		return q, nil
	}
	return q, invalid("a question by the method %q", cut(r.Method))
}

// elicitation reads the params of elicitation/create.
func (q *question) elicitation(params json.RawMessage) (err error) {
	var p struct {
		Mode    *string         `json:"mode"`
		Message *string         `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     *string         `json:"url"`
	}
	if !isObject(params) || unmarshal(params, &p) != nil || p.Message == nil {
		return invalid("elicitation/create without a message")
	}
	switch {
	case p.Mode == nil || *p.Mode == "form":
		q.Kind = Form
		q.form, err = schemaOf(p.Schema)
		return err
	case *p.Mode == "url":
		if p.URL == nil || *p.URL == "" {
			return invalid("elicitation/create by URL without one")
		}
		q.Kind = URL
		return nil
	}
	return invalid("elicitation/create in the mode %q", cut(*p.Mode))
}

func schemaOf(raw json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if !isObject(raw) || json.Unmarshal(raw, &s) != nil {
		return nil, invalid("requestedSchema is no schema")
	}
	if refers(raw) {
		return nil, invalid("requestedSchema refers to schemas: a form is flat")
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, invalid("requestedSchema: %w", err)
	}
	return r, nil
}

// refers reports whether a schema has references, to itself for instance, which
// whoever holds a value against it would follow without end.
func refers(schema json.RawMessage) bool {
	d := jsontext.NewDecoder(bytes.NewReader(schema), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for name := ""; ; {
		t, err := d.ReadToken()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		if t.Kind() == '"' && strings.HasSuffix(strings.ToLower(name), "ref") && strings.HasPrefix(name, "$") {
			return true
		}
		name = ""
		if _, n := d.StackIndex(d.StackDepth()); t.Kind() == '"' && n%2 == 1 { // of an object, whose members count twice
			if kind, _ := d.StackIndex(d.StackDepth()); kind == '{' {
				name = t.String()
			}
		}
	}
}

// fits holds a response against what was asked.
func fits(q *question, response json.RawMessage) error {
	if q.Kind != Form {
		return nil
	}
	var a struct {
		Action  string `json:"action"`
		Content any    `json:"content"`
	}
	if err := unmarshal(response, &a); err != nil || a.Action != "accept" {
		return err
	}
	s := q.form
	if s == nil {
		shown := Question{Kind: q.Kind, Request: q.Request}
		shown.describe()
		var err error
		if s, err = schemaOf(shown.Schema); err != nil {
			return err
		}
	}
	if err := s.Validate(a.Content); err != nil {
		return fmt.Errorf("the content does not fit the form: %w", err)
	}
	return nil
}

// A taskMessage is what a server says of a task.
type taskMessage struct {
	ID        string
	Status    string
	Message   string
	TTL       *time.Duration // nil: without an end
	Poll      time.Duration  // 0: not said
	Questions []question
	Result    json.RawMessage
	Error     *serverError
	Odd       []string // members that are not what they must be, and are taken for not said
}

// readTask reads a task in any of its shapes: CreateTaskResult, the result of
// tasks/get, the params of notifications/tasks.
func readTask(raw json.RawMessage, limit int) (*taskMessage, error) {
	var m struct {
		ID       *string         `json:"taskId"`
		Status   string          `json:"status"`
		Message  string          `json:"statusMessage"`
		TTL      json.RawMessage `json:"ttlMs"`
		Poll     json.RawMessage `json:"pollIntervalMs"`
		Requests json.RawMessage `json:"inputRequests"`
		Result   json.RawMessage `json:"result"`
		Error    *struct {
			Code    *int64          `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if err := unmarshal(raw, &m); err != nil {
		return nil, invalid("a task: %w", err)
	}
	if m.ID == nil || *m.ID == "" || len(*m.ID) > 1024 {
		return nil, invalid("a task without a taskId")
	}
	t := &taskMessage{ID: *m.ID, Status: m.Status, Message: m.Message, Result: m.Result}
	t.times(m.TTL, m.Poll)
	switch m.Status {
	case "working", "cancelled":
	case "input_required":
		if len(m.Requests) == 0 { // CreateTaskResult has none
			return t, nil
		}
		var err error
		if t.Questions, err = readRequests(m.Requests, limit); err != nil {
			return nil, err
		}
	case "completed":
		if len(m.Result) > 0 && !isObject(m.Result) {
			return nil, invalid("the result of a task is no object")
		}
	case "failed":
		if m.Error == nil {
			t.Error = nil // CreateTaskResult has none
		} else if m.Error.Code == nil {
			return nil, invalid("the error of a task has no code")
		} else {
			t.Error = &serverError{Code: *m.Error.Code, Message: m.Error.Message, Data: m.Error.Data}
		}
	default:
		return nil, invalid("a task with the status %q", cut(m.Status))
	}
	return t, nil
}

// times takes the task's times in. What is wrong with them is no reason to lose
// sight of a task that has been made.
func (t *taskMessage) times(ttl, poll json.RawMessage) {
	if d, ok := wholeMilliseconds(ttl); !ok {
		t.Odd = append(t.Odd, "ttlMs")
	} else if len(ttl) > 0 && string(ttl) != "null" {
		t.TTL = &d
	}
	var ok bool
	if t.Poll, ok = wholeMilliseconds(poll); !ok {
		t.Odd = append(t.Odd, "pollIntervalMs")
	}
}

// wholeMilliseconds reads an integer from 0 as JSON Schema has it, for which
// 100.0 and 1e2 are integers; what is missing or null is 0.
func wholeMilliseconds(raw json.RawMessage) (time.Duration, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, true
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return milliseconds(n), n >= 0
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f != math.Trunc(f) {
		return 0, false
	}
	return milliseconds(int64(min(f, 1<<62))), true
}

// result is the outcome of an entry as its caller gets it.
func (e *entry) result() (*Result, error) {
	o := e.Outcome
	if o.State != Completed {
		kind := errorKinds[o.Kind]
		if kind == nil {
			kind = ErrFailed
		}
		return nil, &Error{ID: e.ID, Kind: kind, Reason: o.Reason, Code: o.Code, Data: o.Data, Outcome: o.Outcome}
	}
	r := &Result{ID: e.ID, Raw: o.Result}
	var said struct {
		IsError bool `json:"isError"`
		Meta    struct {
			Outcome string `json:"tallystick/outcome"`
			Call    string `json:"tallystick/call"`
		} `json:"_meta"`
	}
	if unmarshal(o.Result, &said) == nil {
		r.IsError, r.Outcome, r.ServerCall = said.IsError && e.Method == methodTool, said.Meta.Outcome, said.Meta.Call
	}
	return r, nil
}

func decode[T any](r *Result) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(r.Raw, out); err != nil { // the SDK's types are made for it
		return nil, &Error{ID: r.ID, Kind: ErrInvalidResponse, Reason: "the result is on disk as it came", Err: err}
	}
	return out, nil
}

// capabilities are what a request declares.
type capabilities struct{ form, url, sampling, roots, tasks bool }

// capabilities are what can be answered in a call: by the Answerer or a rule,
// and not refused. An empty name stands for any.
func (c *Client) capabilities(name string) capabilities {
	can := func(k Kind) bool {
		answerable := c.opts.Answerer != nil && slices.Contains(c.opts.Answerer.Kinds(), k)
		if name == "" { // a session's: what any call may have
			if unruled(k) == Ask && answerable {
				return true
			}
			return slices.ContainsFunc(c.opts.Policy, func(r Rule) bool {
				return (r.Kind == "" || r.Kind == k) && glob(r.Server, c.opts.Server) && (r.Do == Reply || r.Do == Ask && answerable)
			})
		}
		return c.opts.Policy.allows(c.opts.Server, name, k, answerable)
	}
	return capabilities{form: can(Form), url: can(URL), sampling: can(Sampling), roots: can(Roots)}
}

func (c capabilities) sdk() *mcp.ClientCapabilities {
	out := new(mcp.ClientCapabilities)
	if c.form || c.url {
		out.Elicitation = new(mcp.ElicitationCapabilities)
		if c.form {
			out.Elicitation.Form = new(mcp.FormElicitationCapabilities)
		}
		if c.url {
			out.Elicitation.URL = new(mcp.URLElicitationCapabilities)
		}
	}
	if c.sampling {
		//lint:ignore SA1019 deprecated for use, still part of the revision
		out.Sampling = new(mcp.SamplingCapabilities)
	}
	if c.roots {
		//lint:ignore SA1019 deprecated for use, still part of the revision
		out.RootsV2 = new(mcp.RootCapabilities)
	}
	return out
}

// wire is how a request of revision 2026-07-28 declares them.
func (c capabilities) wire() map[string]any {
	none := map[string]any{}
	out := map[string]any{}
	if c.form || c.url {
		modes := map[string]any{}
		if c.form {
			modes["form"] = none
		}
		if c.url {
			modes["url"] = none
		}
		out["elicitation"] = modes
	}
	if c.sampling {
		out["sampling"] = none
	}
	if c.roots {
		out["roots"] = none
	}
	if c.tasks {
		out["extensions"] = map[string]any{tasksExtension: none}
	}
	return out
}

// has reports whether a question of this kind was to be expected.
func (c capabilities) has(k Kind) bool {
	switch k {
	case Form:
		return c.form
	case URL:
		return c.url
	case Sampling:
		return c.sampling
	case Roots:
		return c.roots
	}
	return false
}

var errNobody = errors.New("nobody here can answer it")
