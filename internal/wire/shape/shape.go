// Package shape holds the messages of a server against JSON schemas, for tests:
// always against small ones of ours, which also say what a message must not
// have, and against the official ones where the environment has them.
package shape

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// OfficialDir is the environment variable that names a folder with the official
// schemas, as published: they are not part of this module. Without it, ours
// alone judge.
const OfficialDir = "TALLYSTICK_SCHEMAS"

// The files that OfficialDir must have.
const (
	officialCore  = "mcp-2026-07-28.schema.json"
	officialTasks = "ext-tasks.schema.json"
)

//go:embed shapes.json
var ours []byte

// A Judge knows some schemas. It is safe for concurrent use.
type Judge struct {
	own         *schemas
	core, tasks *schemas // nil without the official ones
}

// New reads the schemas: ours, and those in the folder official unless it is
// empty.
func New(official string) (*Judge, error) {
	j := new(Judge)
	var err error
	if j.own, err = parse("shapes.json", ours); err != nil || official == "" {
		return j, err
	}
	if j.core, err = read(official, officialCore); err != nil {
		return nil, err
	}
	j.tasks, err = read(official, officialTasks)
	return j, err
}

// FromEnvironment is New with the folder that OfficialDir names. If it names
// none, it says so on standard error.
var FromEnvironment = sync.OnceValues(func() (*Judge, error) {
	dir := os.Getenv(OfficialDir)
	if dir == "" {
		fmt.Fprintf(os.Stderr, "messages are held against our own schemas only: %s names no folder with the official ones\n", OfficialDir)
	}
	return New(dir)
})

// Official reports whether the official schemas judge too.
func (j *Judge) Official() bool { return j.core != nil }

// schemas are the definitions of one file. A value is held against one of them
// as the property that has its name.
type schemas struct {
	file  string
	names map[string]bool
	root  *jsonschema.Resolved
}

func read(dir, file string) (*schemas, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("the folder that %s names lacks a schema: %w", OfficialDir, err)
	}
	return parse(file, b)
}

func parse(file string, b []byte) (*schemas, error) {
	root := new(jsonschema.Schema)
	if err := json.Unmarshal(b, root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := &schemas{file: file, names: map[string]bool{}}
	root.Properties = map[string]*jsonschema.Schema{}
	for name := range root.Defs {
		s.names[name] = true
		root.Properties[name] = &jsonschema.Schema{Ref: "#/$defs/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")}
	}
	var err error
	if s.root, err = root.Resolve(nil); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// check holds a value against a definition.
func (s *schemas) check(name string, v any) error {
	if !s.names[name] {
		return fmt.Errorf("%s does not define %q", s.file, name)
	}
	if err := s.root.Validate(map[string]any{name: v}); err != nil {
		return fmt.Errorf("%s, %s: %w", s.file, name, err)
	}
	return nil
}

// A message is what a server sent.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Code int `json:"code"`
	} `json:"error"`
	Params map[string]any `json:"params"`
}

// Message judges one message that a server sent in answer to a request of
// revision 2026-07-28: a notification, or the response to method. What is
// answered with a result must have been a valid request; it is judged too.
func (j *Judge) Message(request, sent []byte) error {
	var m message
	if err := json.Unmarshal(sent, &m); err != nil {
		return fmt.Errorf("no message: %w", err)
	}
	whole, err := decode(sent)
	if err != nil {
		return fmt.Errorf("no message: %w", err)
	}
	switch {
	case m.Method != nil && m.ID != nil:
		return fmt.Errorf("a server sends no requests in this revision, and sent %s", *m.Method)
	case m.Method != nil:
		return errors.Join(placed(request, *m.Method, m.Params), j.notification(*m.Method, m.Params, whole))
	case m.Error != nil:
		return j.failure(m.Error.Code, whole)
	}
	return j.result(request, m, whole)
}

// decode reads JSON for a schema. A number that no float64 can hold is as good
// as a large one.
func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return floats(v), nil
}

func floats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = floats(member)
		}
	case []any:
		for i, item := range v {
			v[i] = floats(item)
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			f = math.MaxFloat64
		}
		return f
	}
	return v
}

// same compares ids as values: a number by each of its digits, a string however
// it is escaped.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y string
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// placed says whether a notification may come in answer to a request: a listen
// has what it listens for and its end, under its own id, and any other request
// its progress and its logs.
func placed(request []byte, method string, params map[string]any) error {
	var asked struct {
		ID     any    `json:"id"`
		Method string `json:"method"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return fmt.Errorf("a notification for what is no request: %w", err)
	}
	own := method == "notifications/progress" || method == "notifications/message"
	if listens := asked.Method == "subscriptions/listen"; listens == own {
		return fmt.Errorf("%s is sent for %s", method, asked.Method)
	}
	if own {
		return nil
	}
	meta, _ := params["_meta"].(map[string]any)
	if id := meta["io.modelcontextprotocol/subscriptionId"]; id != asked.ID {
		return fmt.Errorf("%s is of the subscription %v, and the request is %v", method, id, asked.ID)
	}
	if about, ok := params["requestId"]; ok && about != asked.ID {
		return fmt.Errorf("%s is about %v, and the request is %v", method, about, asked.ID)
	}
	return nil
}

func (j *Judge) notification(method string, params map[string]any, whole any) error {
	if err := j.own.check(method, whole); err != nil {
		return err
	}
	if method == "notifications/tasks" {
		if err := times(params); err != nil {
			return err
		}
	}
	if !j.Official() {
		return nil
	}
	switch method {
	case "notifications/tasks":
		return j.tasks.check("TaskStatusNotification", whole)
	case "notifications/subscriptions/acknowledged":
		return errors.Join(j.core.check("SubscriptionsAcknowledgedNotification", whole), j.tasks.check("TaskSubscriptionAcknowledgedNotifications", params["notifications"]))
	}
	return j.core.check("ServerNotification", whole)
}

// officialErrors are the definitions of errors that say more than that they are.
var officialErrors = map[int]string{
	-32020: "HeaderMismatchError", -32021: "MissingRequiredClientCapabilityError", -32022: "UnsupportedProtocolVersionError",
}

func (j *Judge) failure(code int, whole any) error {
	if err := j.own.check("error response", whole); err != nil {
		return err
	}
	if name := fmt.Sprint("error ", code); j.own.names[name] {
		if err := j.own.check(name, whole.(map[string]any)["error"]); err != nil {
			return err
		}
	} else if -32768 <= code && code <= -32000 {
		return fmt.Errorf("error %d is not among those of the protocol, and not an application's own", code)
	}
	if !j.Official() {
		return nil
	}
	if name := officialErrors[code]; name != "" {
		return j.core.check(name, whole)
	}
	return j.core.check("JSONRPCErrorResponse", whole)
}

// officialResults are the definitions of results by method.
var officialResults = map[string]string{
	"tools/call": "CallToolResult", "prompts/get": "GetPromptResult", "resources/read": "ReadResourceResult", "tools/list": "ListToolsResult",
	"prompts/list": "ListPromptsResult", "resources/list": "ListResourcesResult", "resources/templates/list": "ListResourceTemplatesResult",
	"server/discover": "DiscoverResult", "completion/complete": "CompleteResult", "subscriptions/listen": "SubscriptionsListenResult",
}

// officialTaskResults are those that the Tasks extension defines.
var officialTaskResults = map[string]string{"tasks/get": "GetTaskResult", "tasks/update": "UpdateTaskResult", "tasks/cancel": "CancelTaskResult"}

// asks are the requests that may be answered with input_required.
var asks = []string{"tools/call", "prompts/get", "resources/read"}

func (j *Judge) result(request []byte, m message, whole any) error {
	var asked struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return fmt.Errorf("a result for what is no request: %w", err)
	}
	r, err := decode(request)
	if err != nil {
		return fmt.Errorf("a result for what is no request: %w", err)
	}
	if !same(asked.ID, m.ID) {
		return fmt.Errorf("the result has the id %s, and the request has %s", m.ID, asked.ID)
	}
	shape := "request"
	if name := "request " + asked.Method; j.own.names[name] {
		shape = name
	}
	if err := j.own.check(shape, r); err != nil {
		return fmt.Errorf("answered with a result: %w", err)
	}
	if err := j.own.check("response", whole); err != nil {
		return err
	}
	kind, _ := m.Result["resultType"].(string)
	switch {
	case kind == "input_required" && slices.Contains(asks, asked.Method):
		return j.both("input_required", m.Result, j.core, "InputRequiredResult")
	case kind == "task" && asked.Method == "tools/call":
		return errors.Join(times(m.Result), j.both("created task", m.Result, j.tasks, "CreateTaskResult"))
	case kind != "complete":
		return fmt.Errorf("%s is answered with resultType %q", asked.Method, kind)
	case asked.Method == "tasks/get":
		status, _ := m.Result["status"].(string)
		if err := errors.Join(times(m.Result), j.both("result tasks/get "+status, m.Result, j.tasks, "GetTaskResult")); err != nil || status != "completed" || !j.Official() {
			return err
		}
		return j.core.check("CallToolResult", m.Result["result"])
	case officialTaskResults[asked.Method] != "":
		return j.both("result "+asked.Method, m.Result, j.tasks, officialTaskResults[asked.Method])
	}
	name, official := "result", "Result"
	if j.own.names["result "+asked.Method] {
		name = "result " + asked.Method
	}
	if o := officialResults[asked.Method]; o != "" {
		official = o
	}
	return j.both(name, m.Result, j.core, official)
}

// both holds a value against a definition of ours and one of theirs.
func (j *Judge) both(name string, v any, theirs *schemas, official string) error {
	if err := j.own.check(name, v); err != nil || theirs == nil {
		return err
	}
	return theirs.check(official, v)
}

// times reads a task's timestamps: a pattern alone would let the 99th of a
// month pass. Their order is left to the tests of tasks: a store's clock may go
// backwards.
func times(task map[string]any) error {
	for _, member := range []string{"createdAt", "lastUpdatedAt"} {
		stamp, _ := task[member].(string)
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
	}
	return nil
}

// statuses are the HTTP statuses that each error code may travel with.
var statuses = map[int][]int{
	-32700: {http.StatusBadRequest},
	-32600: {http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType},
	-32601: {http.StatusNotFound},
	-32602: {http.StatusBadRequest, http.StatusRequestEntityTooLarge},
	-32603: {http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	-32020: {http.StatusBadRequest},
	-32021: {http.StatusBadRequest},
	-32022: {http.StatusBadRequest},
}

// Response judges a whole HTTP response: each message as [Judge.Message] does,
// and that the status goes with it. Of a stream that broke off, what came whole
// is judged.
func (j *Judge) Response(request []byte, status int, contentType string, body []byte) error {
	kind, _, _ := strings.Cut(contentType, ";")
	if kind == "text/event-stream" {
		if status != http.StatusOK {
			return fmt.Errorf("a stream with status %d", status)
		}
		var errs []error
		for _, event := range events(body) {
			if err := j.Message(request, event); err != nil {
				errs = append(errs, fmt.Errorf("%w in %.2000s", err, event))
			}
		}
		return errors.Join(errs...)
	}
	if len(body) == 0 {
		if status != http.StatusAccepted && status != http.StatusOK {
			return fmt.Errorf("nothing but status %d", status)
		}
		return nil
	}
	if kind != "application/json" {
		return fmt.Errorf("content type %q, status %d: %.200s", contentType, status, body)
	}
	if err := j.Message(request, body); err != nil {
		return fmt.Errorf("%w in %.2000s", err, body)
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	switch {
	case m.Error == nil && status != http.StatusOK:
		return fmt.Errorf("a result with status %d", status)
	case m.Error != nil && statuses[m.Error.Code] == nil && status < 400, m.Error != nil && statuses[m.Error.Code] != nil && !slices.Contains(statuses[m.Error.Code], status):
		return fmt.Errorf("error %d with status %d", m.Error.Code, status)
	}
	return nil
}

// events are the data of a stream's whole events.
func events(body []byte) [][]byte {
	var all [][]byte
	for {
		event, rest, whole := bytes.Cut(body, []byte("\n\n"))
		if !whole {
			return all
		}
		for line := range bytes.Lines(event) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
				all = append(all, bytes.TrimSpace(data))
			}
		}
		body = rest
	}
}
