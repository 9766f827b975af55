package tallysticktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Result is what a client got for a request. It stays as it was: answer it
// later, twice, or after a restart, as a client can.
type Result struct {
	c            *Caller
	method, name string
	params       map[string]any

	// HTTPStatus of the response.
	HTTPStatus int
	// Err is the JSON-RPC error, if it is one.
	Err *Error
	// Raw is the result object, JSON.
	Raw json.RawMessage

	shown shown
	inner shown // of a task that has completed: its result
}

// An Error is a JSON-RPC error.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// A Question is what a client was asked.
type Question struct {
	WireKey string          // the handler's key, or key~2 and so on when it was asked anew
	Method  string          // elicitation/create, …
	Message string          // for people
	Params  json.RawMessage // all of the request
}

// shown are the members of results that matter here.
type shown struct {
	ResultType string `json:"resultType"`
	Content    []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured    json.RawMessage            `json:"structuredContent"`
	IsError       bool                       `json:"isError"`
	Meta          map[string]json.RawMessage `json:"_meta"`
	State         string                     `json:"requestState"`
	InputRequests map[string]inputRequest    `json:"inputRequests"`
	TaskID        string                     `json:"taskId"`
	Status        string                     `json:"status"`
	StatusMessage string                     `json:"statusMessage"`
	Result        json.RawMessage            `json:"result"`
	Error         *Error                     `json:"error"`
}

type inputRequest struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (r *Result) read(contentType string, body []byte) error {
	if strings.HasPrefix(contentType, "text/event-stream") {
		var last []byte // what comes before the response is notifications
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				last = data
			}
		}
		body = last
	}
	var msg struct {
		Result json.RawMessage `json:"result"`
		Error  *Error          `json:"error"`
	}
	if err := json.Unmarshal(body, &msg); err != nil {
		return fmt.Errorf("HTTP %d is no JSON-RPC: %q", r.HTTPStatus, body)
	}
	r.Raw, r.Err = msg.Result, msg.Error
	if r.Err != nil {
		return nil
	}
	if err := json.Unmarshal(r.Raw, &r.shown); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	r.inner = r.shown
	if r.IsTask() && r.shown.Status == "completed" && !r.isHandle() {
		r.inner = shown{}
		if err := json.Unmarshal(r.shown.Result, &r.inner); err != nil {
			return fmt.Errorf("the task's result cannot be read: %w", err)
		}
	}
	return nil
}

// IsTask reports whether the call is a task.
func (r *Result) IsTask() bool { return r.shown.TaskID != "" }

// isHandle reports whether it is the answer to a call that is a task: that has
// the task's status and never its result.
func (r *Result) isHandle() bool { return r.shown.ResultType == "task" }

// InputRequired reports whether the client is asked something.
func (r *Result) InputRequired() bool { return len(r.shown.InputRequests) > 0 }

// Status is a task's status; otherwise input_required, completed, or the word
// of [Result.Outcome]: pending, held, declined, … A JSON-RPC error is "error",
// another tool result with isError is "tool_error".
func (r *Result) Status() string {
	switch {
	case r.Err != nil:
		return "error"
	case r.IsTask():
		return r.shown.Status
	case r.shown.ResultType == "input_required":
		return "input_required"
	case r.Outcome() != "":
		return r.Outcome()
	case r.IsError():
		return "tool_error"
	}
	return "completed"
}

// StatusMessage of a task.
func (r *Result) StatusMessage() string { return r.shown.StatusMessage }

// Text of the first content block: of a task, of its result.
func (r *Result) Text() string {
	if len(r.inner.Content) == 0 {
		return ""
	}
	return r.inner.Content[0].Text
}

// Structured decodes the structured content: of a task, of its result.
func (r *Result) Structured(into any) {
	r.c.b.t.Helper()
	if err := json.Unmarshal(r.inner.Structured, into); err != nil {
		r.fatalf("its structured content: %v", err)
	}
}

// IsError reports whether the tool's result says so: of a task, its result.
func (r *Result) IsError() bool { return r.inner.IsError }

// Outcome is the word for machines, of _meta tallystick/outcome, or of the
// error data of a task that failed: declined, expired, pending, held, … Empty if
// there is none.
func (r *Result) Outcome() string {
	if r.shown.Error != nil {
		var data struct {
			Outcome string `json:"outcome"`
		}
		_ = json.Unmarshal(r.shown.Error.Data, &data) // data of another form has no outcome
		return data.Outcome
	}
	return meta(r.inner, "tallystick/outcome")
}

// CallID is the call's, where the result names it: a task's does, and one that
// says pending or held.
func (r *Result) CallID() string {
	if r.IsTask() {
		return r.shown.TaskID
	}
	return meta(r.shown, "tallystick/call")
}

func meta(s shown, member string) string {
	var text string
	_ = json.Unmarshal(s.Meta[member], &text) // absent: empty
	return text
}

// Asked returns the question with the handler's key, or nil if it is not asked.
func (r *Result) Asked(key string) *Question {
	for wire, q := range r.shown.InputRequests {
		if wire == key || isAgain(wire, key) {
			var params struct {
				Message string `json:"message"`
			}
			_ = json.Unmarshal(q.Params, &params) // some kinds have no message
			return &Question{WireKey: wire, Method: q.Method, Message: params.Message, Params: q.Params}
		}
	}
	return nil
}

// isAgain reports whether wire is key~2 or a later one.
func isAgain(wire, key string) bool {
	n, ok := strings.CutPrefix(wire, key+"~")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

type action string

// Values for [Result.Answer] other than an accepted content.
const (
	Decline action = "decline" // a person says no
	Dismiss action = "cancel"  // a person closes the question
)

// Answer answers the questions with those keys: content that is accepted
// (marshalled to JSON), [Decline] or [Dismiss]. It sends the request again with
// the answers or, of a task, updates it and returns it as it is then.
//
// A key that was not asked is sent as it is, so that a test can see what
// becomes of that.
func (r *Result) Answer(answers map[string]any) *Result {
	r.c.b.t.Helper()
	responses := map[string]any{}
	for key, value := range answers {
		if q := r.Asked(key); q != nil {
			key = q.WireKey
		}
		if a, ok := value.(action); ok {
			responses[key] = map[string]any{"action": a}
		} else {
			responses[key] = map[string]any{"action": "accept", "content": value}
		}
	}
	return r.respond(responses)
}

// Confirm says yes to a Call.Confirm.
func (r *Result) Confirm(key string) *Result {
	r.c.b.t.Helper()
	return r.Answer(map[string]any{key: map[string]any{"confirm": true}})
}

// Decline says no.
func (r *Result) Decline(key string) *Result {
	r.c.b.t.Helper()
	return r.Answer(map[string]any{key: Decline})
}

func (r *Result) respond(responses map[string]any) *Result {
	r.c.b.t.Helper()
	if r.IsTask() {
		ack := r.c.request("tasks/update", r.shown.TaskID, map[string]any{"inputResponses": responses})
		if ack.Err != nil {
			return ack
		}
		return r.Poll()
	}
	if r.shown.State == "" {
		r.fatalf("it asks nothing and so cannot be answered")
	}
	params := maps.Clone(r.params)
	params["requestState"], params["inputResponses"] = r.shown.State, responses
	return r.c.request(r.method, r.name, params)
}

// Repeat sends the same request again, with the same state and answers.
func (r *Result) Repeat() *Result {
	r.c.b.t.Helper()
	return r.c.request(r.method, r.name, r.params)
}

// Poll asks what has become of the call: tasks/get of a task, the tool
// call_status of a call that was answered with its id.
func (r *Result) Poll() *Result {
	r.c.b.t.Helper()
	switch id := r.CallID(); {
	case r.IsTask():
		return r.c.request("tasks/get", id, nil)
	case id != "":
		return r.c.request("tools/call", "call_status", arguments(map[string]any{"callId": id}))
	}
	r.fatalf("it names no call to ask for")
	return nil
}

// Cancel cancels a task and returns it as it is then.
func (r *Result) Cancel() *Result {
	r.c.b.t.Helper()
	if !r.IsTask() {
		r.fatalf("only a task can be cancelled")
	}
	if ack := r.c.request("tasks/cancel", r.shown.TaskID, nil); ack.Err != nil {
		return ack
	}
	return r.Poll()
}

// Await polls until the status is one of those, and returns the call as it is
// then. A result that has the status already is returned as it is, but for a
// task's first answer, which never has the task's result. One that can
// no longer come to it fails the test, and so does one that does not within ten
// seconds.
func (r *Result) Await(status ...string) *Result {
	r.c.b.t.Helper()
	limit := time.Now().Add(patience)
	for {
		changed := r.c.b.world.changed()
		if slices.Contains(status, r.Status()) {
			if r.isHandle() {
				return r.Poll() // with what has become of it
			}
			return r
		}
		switch open := r.Status(); {
		case open == "working", open == "pending", open == "held", open == "input_required" && r.IsTask():
		default:
			r.fatalf("it is %s and does not become %s", open, strings.Join(status, " or "))
		}
		if time.Now().After(limit) {
			r.fatalf("after %v it is %s and not %s", patience, r.Status(), strings.Join(status, " or "))
		}
		pause(changed)
		r = r.Poll()
	}
}

// String is the response, for a failing test's log.
func (r *Result) String() string {
	if r.Err != nil {
		return fmt.Sprintf("error %v %s", r.Err, r.Err.Data)
	}
	return string(r.Raw)
}

func (r *Result) fatalf(format string, args ...any) {
	r.c.b.t.Helper()
	r.c.b.t.Fatalf("%s %s: %s\n%s\n%s", r.method, r.name, fmt.Sprintf(format, args...), r, r.c.b.Trail())
}
