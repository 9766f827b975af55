package tallystick

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
)

// Members of a result's _meta that are for machines.
const (
	metaOutcome = "tallystick/outcome"
	metaCall    = "tallystick/call"
)

// complete adds resultType to a marshalled result object. One that a client of
// the SDK has received, and a handler passes on, has it already.
func complete(raw []byte) json.RawMessage {
	const member = `{"resultType":"complete"`
	if bytes.Contains(raw, []byte(`"resultType":`)) {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) == nil && members["resultType"] != nil {
			delete(members, "resultType")
			raw, _ = json.Marshal(members) // each is JSON
		}
	}
	if len(raw) <= 2 {
		return json.RawMessage(member + "}")
	}
	return json.RawMessage(member + "," + string(raw[1:]))
}

// toolResult is a tool result of ours, in words for people and for machines.
func toolResult(text string, isError bool, outcome, call string) json.RawMessage {
	res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: isError}
	if outcome != "" {
		res.Meta = mcp.Meta{metaOutcome: outcome}
		if call != "" {
			res.Meta[metaCall] = call
		}
	}
	raw, err := json.Marshal(res)
	if err != nil {
		raw = []byte(`{"content":[],"isError":true}`)
	}
	return complete(raw)
}

func toolFailure(err error, outcome, call string) json.RawMessage {
	return toolResult(err.Error(), true, outcome, call)
}

// failure tells an error of ours: tools in a result, the rest in a JSON-RPC
// error.
func (x *exchange) failure(err error, call string) (json.RawMessage, error) {
	if x.r.Method == wire.MethodCallTool {
		return toolFailure(err, outcome(err), call), nil
	}
	return nil, wire.Errorf(outcomeCode(outcome(err)), "%v", err)
}

// execute is the engine's way to a handler: one run of a call.
func (s *Server) execute(ctx context.Context, run *engine.Run) engine.End {
	var round context.Context
	if x, ok := run.For.(*exchange); ok {
		round = x.values
	}
	ctx, span := s.observer.Run(ctx, round, run.Call())
	code := int64(wire.CodeInternal) // if it panics
	defer func() { span.End(code) }()
	end := s.handle(ctx, run)
	word := record.Completed
	switch code = 0; {
	case end.Pending:
		word = record.InputRequired
	case end.Error != nil:
		word, code = record.Failed, end.Error.Code
	}
	span.Came(string(word))
	return end
}

func (s *Server) handle(ctx context.Context, run *engine.Run) engine.End {
	c := run.Call()
	f := s.feature(c.Action.Method, c.Action.Name)
	if f == nil || f.version != c.Action.Version {
		return engine.End{Error: &record.Error{Code: wire.CodeInvalidParams, Message: "what was called has changed since; call it again", Outcome: "changed"}}
	}
	call := &Call{s: s, journal: run, f: f, ctx: ctx}
	x, _ := run.For.(*exchange)
	if x != nil {
		call.notify = x.progress()
		if f.AcceptUnaskedAnswers && !x.r.HasRequestState {
			call.unasked = func(q record.Question) (record.Responded, record.Actor, bool) { return x.unasked(ctx, q) }
		}
	}
	p := func() produced {
		defer call.end()
		return f.run(ctx, call)
	}()
	if err := run.Fault(); err != nil {
		p = produced{err: err}
	}
	// A handler that returns its context's error means what ended the context.
	if cause := context.Cause(ctx); p.err != nil && cause != nil && errors.Is(p.err, ctx.Err()) {
		p.err = cause
	}
	if run.Pending() && (p.err == nil || errors.Is(p.err, ErrPending)) {
		if c := run.Call(); c.Background {
			if end := s.unanswerable(c, run.Asks()); end != nil {
				return *end
			}
		}
		return engine.End{Pending: true}
	}
	if errors.Is(p.err, ErrPending) {
		p.err = errors.New("the handler says that a question is pending, and has asked none in this run")
	}
	if errors.Is(p.err, store.ErrQuota) { // there is no call, and the request is refused
		return engine.End{Error: &record.Error{Code: wire.CodeInternal, Message: p.err.Error()}, Err: p.err}
	}
	id := c.ID
	if run.Carried() {
		id = "" // nobody could look it up
	}
	return s.endOf(f, p, id)
}

// unanswerable ends a call in the background if it asks what nobody can be
// asked: its client did not declare it when it made the call, or no client
// watches it, since it is no task.
func (s *Server) unanswerable(c *record.Call, asks []record.Question) *engine.End {
	for _, q := range asks {
		switch {
		case s.elsewhere(q):
		case !slices.Contains(c.Kinds, q.Kind):
			return &engine.End{Error: missingError(capabilityOf(q.Kind))}
		case !c.Task:
			text := fmt.Sprintf("the requester cannot be asked %q any more: the call goes on without a client, since others were asked or an effect was held; make the call anew", q.Key)
			return &engine.End{Error: &record.Error{Code: wire.CodeInternal, Message: text, Outcome: "nobody_to_ask"}}
		}
	}
	return nil
}

// endOf makes the end of a run of what its handler returned.
func (s *Server) endOf(f *feature, p produced, call string) engine.End {
	if p.err == nil {
		if len(p.result) > s.limits.ResultBytes {
			p = produced{err: fmt.Errorf("the result is too large: %w", limitError("ResultBytes", len(p.result), s.limits.ResultBytes))}
		} else {
			return engine.End{Result: p.result, ToolError: p.toolError}
		}
	}
	var je *jsonrpc.Error
	if errors.As(p.err, &je) {
		e := &record.Error{Code: je.Code, Message: je.Message}
		if e.Message == "" { // a task says why it failed, in its statusMessage too
			e.Message = fmt.Sprintf("error %d", e.Code)
		}
		if jsontext.Value(je.Data).IsValid() { // what cannot be sent would make the task unreadable
			e.Data = je.Data
		}
		if e.Code == wire.CodeMissingCapability && !requires(e.Data) {
			e.Code = wire.CodeInternal // that error has to say which capability
		}
		return engine.End{Error: e}
	}
	name := outcome(p.err)
	if f.method == wire.MethodCallTool {
		return engine.End{Result: toolFailure(p.err, name, call), ToolError: true}
	}
	if name == "" {
		id := newID()
		s.log.Error("a handler failed", "method", f.method, "name", record.Action{Method: f.method, Name: f.name}.Label(), "correlation", id, "err", p.err)
		data, _ := json.Marshal(map[string]string{"correlationId": id})
		return engine.End{Error: &record.Error{Code: wire.CodeInternal, Message: "internal error", Data: data}}
	}
	return engine.End{Error: &record.Error{Code: outcomeCode(name), Message: p.err.Error(), Outcome: name}}
}

// requires reports whether an error's data names required capabilities.
func requires(data []byte) bool {
	var d struct {
		Required map[string]json.RawMessage `json:"requiredCapabilities"`
	}
	return json.Unmarshal(data, &d) == nil && len(d.Required) > 0
}

// progress passes reports on as progress notifications, if the request wants
// them.
func (x *exchange) progress() func(record.Progress) {
	token, ok := x.r.Meta["progressToken"]
	if !ok || x.r.Notify == nil {
		return nil
	}
	return func(p record.Progress) {
		params := map[string]any{"progressToken": token, "progress": p.Done}
		if trace := x.s.observer.Give(x.values); trace != nil {
			params["_meta"] = trace
		}
		if p.Total > 0 {
			params["total"] = p.Total
		}
		if p.Message != "" {
			params["message"] = p.Message
		}
		if err := x.r.Notify(x.values, "notifications/progress", params); err != nil {
			x.s.log.Debug("a progress notification was not sent", "err", err)
		}
	}
}

// unasked finds an answer that came with a first request.
func (x *exchange) unasked(ctx context.Context, q record.Question) (record.Responded, record.Actor, bool) {
	raw, ok := x.r.InputResponses[q.Key]
	if !ok {
		return record.Responded{}, x.by, false
	}
	q.WireKey = q.Key
	g, wrong := readAnswer(&q, raw)
	if wrong != nil || g.consent || g.Action != record.Accept {
		return record.Responded{}, x.by, false
	}
	a := Access{Verb: Reply, By: x.id, Method: x.r.Method, Name: x.r.Name, Owner: x.id, Question: q.Key, Arguments: x.r.Arguments}
	return g.Responded, x.by, x.s.authorize(ctx, a) == nil
}

// response is the response to a call that ended without being kept.
func (x *exchange) response(end engine.End) (json.RawMessage, error) {
	outcome := record.Completed
	if end.Error != nil {
		outcome = record.Failed
	}
	x.ended(outcome)
	observe.At(x.values).Came(string(outcome))
	if end.Err != nil {
		return nil, end.Err
	}
	if end.Error != nil {
		return nil, errorOf(end.Error)
	}
	return end.Result, nil
}

// ended tells of the end of a call that was not kept.
func (x *exchange) ended(outcome record.Outcome) {
	x.s.observer.Ended(record.Action{Method: x.f.method, Name: x.f.name}, x.id.Tenant, outcome)
}

func errorOf(e *record.Error) *wire.Error {
	w := &wire.Error{Code: e.Code, Message: e.Message}
	if data := dataOf(e); data != nil {
		w.Data = data
	}
	return w
}

// dataOf is the data of a call's error, and where it has none the outcome word.
func dataOf(e *record.Error) json.RawMessage {
	if len(e.Data) > 0 || e.Outcome == "" {
		return e.Data
	}
	data, _ := json.Marshal(map[string]string{"outcome": e.Outcome})
	return data
}

// status responds with what a kept call has come to. Only the call's own error
// is an error; all other ends are results, so that a model can read them.
func (x *exchange) status(c *record.Call) (json.RawMessage, error) {
	span := observe.At(x.values)
	span.Of(c)
	span.Came(string(c.Status()))
	switch {
	case c.Task:
		if !x.r.DeclaresTasks() {
			return x.missingTasks()
		}
		return x.s.taskCreated(c), nil
	case c.State == record.Ended && c.Outcome == record.Completed:
		return c.Result, nil
	case c.State == record.Ended && c.Outcome == record.Failed && c.Error != nil && c.Error.Outcome != "unknown":
		return nil, errorOf(c.Error)
	}
	word, text, isError := x.s.words(c)
	if x.r.Method != wire.MethodCallTool {
		return nil, wire.Errorf(outcomeCode(word), "%s", text)
	}
	// Clients hold results against the tool's output schema, and drop one without
	// structured content that is no error.
	return toolResult(text, isError || x.f.structured, word, x.callID(c)), nil
}

// words says what a call has come to, for machines and for people.
func (s *Server) words(c *record.Call) (word, text string, isError bool) {
	switch c.Status() {
	case record.Expired:
		return "expired", "Expired: nobody answered, or the work was not done, in time. Calling again starts anew.", true
	case record.Cancelled:
		return "cancelled", "Cancelled.", true
	case record.Failed:
		return "unknown", "It is not known whether it was done. A person has to find out before it is tried again.", true
	case record.OutcomeHeld:
		return "held", "On hold: it is not known whether it was done. A person has to find out; do not try it again. " + followUp(c), true
	}
	return "pending", "Pending: " + s.awaited(c) + " " + followUp(c), false
}

func followUp(c *record.Call) string {
	return "Ask for the outcome with the tool " + callStatusTool + ", callId " + c.ID + "."
}

// awaited says who is awaited, and where they can answer.
func (s *Server) awaited(c *record.Call) string {
	var parts []string
	for _, q := range c.Open() {
		who := "the requester"
		switch {
		case len(q.Who.Roles) > 0:
			who = "somebody with the role " + strings.Join(q.Who.Roles, " or ")
		case len(q.Who.Subjects) > 0:
			who = "a named person"
		case q.Who.NotRequester:
			who = "somebody other than the requester"
		}
		if n := q.Who.Needed(); n > 1 {
			who = fmt.Sprintf("%d of %d people (%s)", n-q.Accepts(), n, who)
		}
		part := "waiting for an answer from " + who
		if s.opts.AnswerAt != nil {
			if at := s.opts.AnswerAt(c.ID, s.waiting(c, q)); at != "" {
				part += " at " + at
			}
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 && c.State == record.Waiting && !c.Background {
		return "answered; it goes on when the request is sent again with its state."
	}
	if len(parts) == 0 {
		return "being worked on."
	}
	return strings.Join(parts, "; ") + "."
}

// reissue responds with the questions that are open for this request, under
// the same wire keys, and a fresh state for the round that is open.
func (x *exchange) reissue(ctx context.Context, c *record.Call) (json.RawMessage, error) {
	open := slices.DeleteFunc(c.Open(), func(q record.Question) bool { return !q.MayAnswer(x.by, c.Owner) })
	return x.inputRequired(ctx, c, open, c.Round)
}

// inputRequired is the result that asks. A request that cannot be asked what
// is recorded, nor the requester elsewhere, is told which capability it lacks.
func (x *exchange) inputRequired(ctx context.Context, c *record.Call, asked []record.Question, round int) (json.RawMessage, error) {
	span := observe.At(x.values)
	span.Of(c)
	span.Came(string(record.InputRequired))
	requests := map[string]inputRequest{}
	for i, q := range asked {
		switch {
		case slices.Contains(x.kinds, q.Kind):
			requests[q.WireKey] = inputRequest{Method: methodOf(q.Kind), Params: q.Request}
		case !x.s.elsewhere(q), len(requests) == 0 && i == len(asked)-1:
			return x.missing(capabilityOf(q.Kind))
		}
	}
	if len(requests) == 0 {
		return x.status(c) // a state alone asks for nothing, and not all clients come back with one
	}
	state, err := x.seal(ctx, c, round)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		ResultType    string                  `json:"resultType"`
		InputRequests map[string]inputRequest `json:"inputRequests,omitempty"`
		RequestState  string                  `json:"requestState"`
	}{"input_required", requests, state})
}

type inputRequest struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// seal makes the client's half of the tally: what binds it to this principal
// and action, and for a kept call its id and round, for a carried one its
// whole journal.
func (x *exchange) seal(ctx context.Context, c *record.Call, round int) (string, error) {
	now, err := x.s.store.Now(ctx)
	if err != nil {
		return "", err
	}
	claims := seal.Claims{
		Principal: x.id.principal().Tag(), Client: x.id.Client, Action: x.action.Digest(),
		Round: round, Issued: now, Expires: c.Expires(), Deadline: c.Deadline,
	}
	if x.f.readOnly {
		if claims.Journal, err = json.Marshal(c); err != nil {
			return "", err
		}
	} else {
		claims.Call = c.ID
	}
	state, err := x.s.sealer.Seal(claims)
	if errors.Is(err, seal.ErrTooLarge) {
		x.ended(record.Failed)
		return "", wire.Errorf(wire.CodeInternal, "what this read-only %q carries is too large (limit: StateBytes %d); make it ask less, or drop ReadOnlyHint so that it is kept", x.f.name, x.s.limits.StateBytes)
	}
	return state, err
}
