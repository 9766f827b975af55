package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/record"
)

// A Call is what a handler's run sees of its logical call: what it asked, what
// was answered, what it has done. Its methods are safe for concurrent use and
// return at once; they are of use until the handler returns.
type Call struct {
	s       *Server
	journal journal
	f       *feature
	notify  func(p record.Progress)
	ctx     context.Context
	given   sync.Map // key to the facts ([]byte) of each answer that this run got
	unasked unasked

	mu   sync.Mutex // guards what follows
	no   error      // of the first question that this run got a no to
	over bool       // the handler has returned
}

// errOver: a call is used after its handler has returned, by a goroutine that it
// left behind.
var errOver = errors.New("the handler has returned: its call is of no use any more")

// journal is what a call needs of the engine's run.
type journal interface {
	Call() *record.Call
	Ask(q record.Question) (known record.Question, pending bool, err error)
	Once(ctx context.Context, f engine.Effect) ([]byte, error)
	Report(ctx context.Context, p record.Progress) (further bool, err error)
	Progress() record.Progress
	Answer(key string, a record.Responded, by record.Actor) error
	Carried() bool
}

// ID of the call: also its task id, if it is a task.
func (c *Call) ID() string { return c.journal.Call().ID }

// Owner is who made the call.
func (c *Call) Owner() Principal { return c.journal.Call().Owner }

// Roles and scopes that the owner had when the call was made.
func (c *Call) Roles() (roles, scopes []string) {
	r := c.journal.Call()
	return r.Roles, r.Scopes
}

// Deadline of the call: past it the call is expired, unless an effect has
// started, which settles first.
func (c *Call) Deadline() time.Time { return c.journal.Call().Deadline }

// A Question is something a handler asks.
type Question struct {
	Key     string        // names it within the call: 1 to 128 bytes without '~'
	Message string        // for people
	Facts   any           // what the answer rests on, as JSON; other facts void it
	Who     Who           // zero: the requester
	Within  time.Duration // how long it waits; zero: Limits.Question
}

// confirmation is the form of [Call.Confirm]: one required boolean without a
// default, so that nothing but a deliberate yes is one.
type confirmation struct {
	Confirm bool `json:"confirm" form:"title=Yes, go ahead"`
}

// Confirm asks for a yes. Nil means yes, and only yes. A no is ErrDeclined,
// whether it was said by declining or by answering false; see [Ask] for the
// other errors.
func (c *Call) Confirm(q Question) error {
	f, err := formOf[confirmation]()
	if err != nil {
		return err
	}
	known, err := c.ask(q, record.KindForm, f.request(q.Message), true)
	if err != nil {
		return err
	}
	var yes confirmation
	if err := f.read(known.Latest().Value, &yes); err != nil {
		return err
	}
	if !yes.Confirm {
		return c.refused(q.Key, ErrDeclined)
	}
	return nil
}

// refused notes that this run got a no.
func (c *Call) refused(key string, no error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.no == nil {
		c.no = fmt.Errorf("%w (question %q)", no, key)
	}
	return no
}

// mayBegin says why an effect may not start, as far as the call knows.
func (c *Call) mayBegin(e Effect) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return errOver
	case c.no != nil && !e.AfterNo:
		return fmt.Errorf("effect %q does not start after a no, unless it says AfterNo: %w", e.Name, c.no)
	}
	return nil
}

// end makes the call useless: its handler has returned.
func (c *Call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *Call) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Ask asks for a T, which must be a struct of strings, numbers, booleans and
// lists of enumerated strings, as elicitation allows no other forms. The form
// is made from its fields: `json` names them (omitempty: optional),
// `jsonschema` describes them, and `form` refines them, comma-separated:
// title=, format=email|uri|date|date-time, enum=a|b, minimum=, maximum=,
// minLength=, maxLength=, default=.
//
// The error is nil only for an answer to this exact question. ErrPending:
// nobody has answered yet; return, and the handler runs again when somebody
// has. ErrDeclined, ErrDismissed and ErrExpired are the other ends, each a
// different fact. T is then zero.
func Ask[T any](c *Call, q Question) (T, error) {
	var answer, zero T
	f, err := formOf[T]()
	if err != nil {
		return zero, err
	}
	known, err := c.ask(q, record.KindForm, f.request(q.Message), false)
	if err != nil {
		return zero, err
	}
	if err := f.read(known.Latest().Value, &answer); err != nil {
		return zero, err
	}
	return answer, nil
}

// Input asks with a request of your own: *mcp.ElicitParams for a form with your
// own schema or for URL mode, *mcp.CreateMessageParams or ...WithToolsParams for
// sampling, *mcp.ListRootsParams for roots (the last two are deprecated by the
// protocol). The message of the question is used where the request has none.
//
// A URL is not answered by the client's consent to open it, but when its page's
// server calls [Server.Decide] for the person who did. The response is then an
// *mcp.ElicitResult with what Decide was given as Content.
func (c *Call) Input(q Question, r mcp.InputRequest) (mcp.InputResponse, error) {
	kind, request, message, err := requestOf(r, q.Message)
	if err != nil {
		return nil, err
	}
	q.Message = message
	known, err := c.ask(q, kind, request, false)
	if err != nil {
		return nil, err
	}
	return responseOf(kind, request, known.Latest().Value)
}

// Answers returns what was answered to the key so far, oldest first: each
// person's answer to a question with a Count, and who gave it.
func (c *Call) Answers(key string) []Answer {
	var all []Answer
	for _, q := range c.journal.Call().Questions {
		if q.Key == key && q.State != record.Void {
			all = append(all, q.Answers...)
		}
	}
	return all
}

// Facts reads into facts what the answer that this run got for the key was
// given for: the facts that the run has asked with or, once an effect has
// started on the answer, those of then. Do effects with them and not with what
// was read afresh: a later run gets the same yes, though the world has changed.
// ErrPending: the run has got no answer.
func (c *Call) Facts(key string, facts any) error {
	given, ok := c.given.Load(key)
	if !ok {
		return ErrPending
	}
	return json.Unmarshal(given.([]byte), facts)
}

// ask puts the question to the journal and turns what is known into an error.
func (c *Call) ask(q Question, kind record.Kind, request []byte, confirm bool) (record.Question, error) {
	rq, err := c.question(q, kind, request, confirm)
	if err != nil {
		return rq, err
	}
	if c.isOver() {
		return rq, errOver
	}
	known, pending, err := c.journal.Ask(rq)
	if err != nil {
		return known, err
	}
	if pending && c.unasked != nil {
		if r, by, ok := c.unasked(known); ok {
			if err := c.journal.Answer(known.Key, r, by); err == nil {
				known.Answers = []record.Answer{{By: by, Action: r.Action, Value: r.Value}}
				known.State, pending = record.Answered, false
			}
		}
	}
	switch {
	case pending:
		return known, ErrPending
	case known.State == record.Answered:
		c.given.Store(q.Key, known.Facts)
		return known, nil
	case known.State == record.Declined:
		c.given.Store(q.Key, known.Facts)
		return known, c.refused(q.Key, ErrDeclined)
	case known.State == record.Dismissed:
		c.given.Store(q.Key, known.Facts)
		return known, c.refused(q.Key, ErrDismissed)
	case known.State == record.Lapsed:
		return known, c.refused(q.Key, ErrExpired)
	}
	return known, fmt.Errorf("question %q is in state %q", q.Key, known.State)
}

func (c *Call) question(q Question, kind record.Kind, request []byte, confirm bool) (record.Question, error) {
	rq := record.Question{Key: q.Key, Kind: kind, Message: q.Message, Request: request, Who: q.Who, Confirm: confirm, Within: q.Within}
	if !record.ValidKey(q.Key) {
		return rq, fmt.Errorf("question key %q: 1 to 128 bytes without '~'", q.Key)
	}
	if q.Who.Count < 0 || q.Who.Count > 1 && q.Who.Requester() {
		return rq, fmt.Errorf("question %q: Who.Count %d makes no sense for the requester alone", q.Key, q.Who.Count)
	}
	if able := c.named(q.Who); able >= 0 && able < q.Who.Needed() {
		return rq, fmt.Errorf("question %q: %d of those whom Who.Subjects names may answer it, and %d must", q.Key, able, q.Who.Needed())
	}
	if c.journal.Carried() && (!q.Who.Requester() || q.Who.OutOfBand || kind == record.KindURL) {
		return rq, fmt.Errorf("question %q: a read-only %s is carried by its client, so that only its requester can be asked, through it", q.Key, c.f.method)
	}
	if rq.Within <= 0 {
		rq.Within = c.s.limits.Question
	}
	if q.Facts != nil {
		facts, err := json.Marshal(q.Facts)
		if err != nil {
			return rq, fmt.Errorf("question %q: facts: %w", q.Key, err)
		}
		rq.Facts = facts
	}
	return rq, nil
}

// named counts the people who may answer by name; -1: others may too.
func (c *Call) named(w Who) int {
	if len(w.Roles) > 0 || len(w.Subjects) == 0 {
		return -1
	}
	able := map[string]bool{}
	for _, s := range w.Subjects {
		if !w.NotRequester || s != c.Owner().Subject {
			able[s] = true
		}
	}
	return len(able)
}

// Report says how far the handler is, for progress notifications and
// statusMessage. total 0 means that nobody knows. done and total never go
// backwards, so that a re-run does not. It is cheap: at most one write per
// heartbeat is made of it.
func (c *Call) Report(msg string, done, total float64) {
	if c.isOver() {
		return
	}
	further, err := c.journal.Report(c.ctx, record.Progress{Message: msg, Done: done, Total: total})
	if err != nil && !errors.Is(err, engine.ErrLost) && !errors.Is(err, engine.ErrLeft) {
		c.s.log.Warn("a progress report could not be stored", "call", c.ID(), "err", err)
	}
	if further && c.notify != nil && !c.journal.Call().Task { // a task's request has been answered
		c.notify(c.journal.Progress())
	}
}
