package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// An exchange is one request of a tool, prompt or resource and its response.
type exchange struct {
	s      *Server
	f      *feature
	r      *wire.Request
	id     Identity
	by     record.Actor
	action record.Action
	kinds  []record.Kind // that this request's client can be asked
	// values is the request's context without its end: what the SDK finds the
	// request's own stream by.
	values context.Context
	// client is the request's context: it ends with the client's connection.
	client context.Context
}

// begin serves a first request.
func (x *exchange) begin(ctx context.Context) (json.RawMessage, error) {
	a := Access{Verb: Begin, By: x.id, Method: x.r.Method, Name: x.r.Name, Owner: x.id, Arguments: x.r.Arguments}
	if err := x.s.authorize(ctx, a); err != nil {
		return x.failure(err, "")
	}
	now, err := x.s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	o := x.opening(now)
	if x.f.readOnly {
		run, err := x.s.engine.Begin(ctx, o, engine.Carried)
		if err != nil {
			return nil, err
		}
		return x.drive(ctx, run)
	}
	if x.f.Task == TaskRequired && !x.r.DeclaresTasks() {
		return x.missingTasks()
	}
	key, err := x.idempotencyKey()
	if err != nil {
		return nil, err
	}
	if key != "" {
		return x.keyed(ctx, o, key)
	}
	return x.open(ctx, o)
}

// opening describes the call that this request makes.
func (x *exchange) opening(now time.Time) record.Opened {
	deadline := x.f.Deadline
	if deadline <= 0 {
		deadline = x.s.limits.Deadline
	}
	return record.Opened{
		MaxLive: x.s.limits.LiveCalls,
		Call: &record.Call{
			ID: newID(), Owner: x.id.principal(), Roles: x.id.Roles, Scopes: x.id.Scopes,
			Action: x.action, Args: x.r.Arguments, Kinds: x.kinds, Trace: x.s.observer.Parent(x.values),
			CreatedAt: now, Deadline: now.Add(deadline), Retention: x.s.limits.Retention, MaxRuns: x.f.MaxRuns,
		},
	}
}

// open makes the call: a task that a worker runs, or a run for this request.
func (x *exchange) open(ctx context.Context, o record.Opened) (json.RawMessage, error) {
	asTask := x.f.Task != TaskForbidden && x.r.DeclaresTasks()
	if asTask && !x.f.AskFirst && x.f.TaskAfter <= 0 {
		o.Call.Task = true
		c, err := x.s.engine.Create(ctx, x.by, o)
		if err != nil {
			return nil, err
		}
		return x.status(c)
	}
	run, err := x.s.engine.Begin(ctx, o, engine.Kept)
	if err != nil {
		return nil, err
	}
	run.AskFirst = asTask && x.f.AskFirst
	if o.Key != (record.MarkID{}) {
		if err := run.Keep(ctx); err != nil {
			run.Close() // the call may have been made all the same
			return nil, err
		}
	}
	return x.drive(ctx, run)
}

// storeError makes a store's refusal one that the client is told.
func (x *exchange) storeError(err error) error {
	if errors.Is(err, store.ErrQuota) {
		return &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("too many calls of this tenant are under way (limit: LiveCalls %d); try again later", x.s.limits.LiveCalls), Status: 429}
	}
	return err
}

// keyMeta is the member of a request's _meta that holds its idempotency key.
const keyMeta = "tallystick/idempotencyKey"

// idempotencyKey returns the request's key; that of somebody unknown is
// nobody's, and ignored.
func (x *exchange) idempotencyKey() (string, error) {
	raw, ok := x.r.Meta[keyMeta]
	if !ok || x.id.Subject == "" {
		return "", nil
	}
	var key string
	if json.Unmarshal(raw, &key) != nil || key == "" || len(key) > 256 {
		return "", wire.Errorf(wire.CodeInvalidParams, "_meta %q must be a string of 1 to 256 bytes", keyMeta)
	}
	return key, nil
}

// keyed makes the call of an idempotency key, or goes back to the one it has
// made. The key is claimed with the call, before the handler runs.
func (x *exchange) keyed(ctx context.Context, o record.Opened, key string) (json.RawMessage, error) {
	o.Key = record.KeyMark(x.id.principal(), x.f.name, key)
	for range 3 {
		m, err := x.s.store.Mark(ctx, o.Key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			res, err := x.open(ctx, o)
			if errors.Is(err, store.ErrConflict) {
				continue // the same key was claimed meanwhile
			}
			return res, err
		case err != nil:
			return nil, err
		case m.Digest != x.action.ArgsDigest:
			x.s.engine.Refuse(ctx, m.Call, x.by, "idempotency_conflict", "")
			return nil, &wire.Error{
				Code: wire.CodeInvalidParams, Message: "this idempotency key was used with other arguments",
				Data: map[string]any{"reason": "idempotency_conflict"},
			}
		}
		c, err := x.s.engine.Load(ctx, m.Call)
		if errors.Is(err, store.ErrNotFound) {
			continue // purged between the two reads
		}
		if err != nil {
			return nil, err
		}
		if err := x.s.authorize(ctx, accessTo(c, Resume, x.id)); err != nil {
			return x.failure(err, c.ID)
		}
		return x.rejoin(ctx, c)
	}
	return nil, errors.New("an idempotency key could neither be claimed nor found")
}

// rejoin answers a repeated first request with the round that is open now, or
// with what the call has come to. It goes on with the call if its run has died,
// if what was asked is settled, and if this client is asked live.
func (x *exchange) rejoin(ctx context.Context, c *record.Call) (json.RawMessage, error) {
	for range 3 { // each further time because another request was quicker
		var err error
		if c, err = x.settled(ctx, c); err != nil {
			return nil, err
		}
		if c.State != record.Waiting || c.Background {
			return x.status(c)
		}
		now, err := x.s.store.Now(ctx)
		if err != nil {
			return nil, err
		}
		last := c.Rounds[len(c.Rounds)-1]
		if last.Closed && !x.r.Legacy && !x.news(c, now) {
			return x.reissue(ctx, c)
		}
		got := &answers{}
		if !last.Closed {
			got.digest = last.Answers // they stand
		}
		res, err := x.claim(ctx, c, c.Round, got)
		var refused *record.Refusal
		if !errors.As(err, &refused) {
			return res, err
		}
		if c, err = x.s.engine.Load(ctx, c.ID); err != nil {
			return nil, err
		}
	}
	return nil, errInFlight()
}

// settled waits, bounded, while a run serves another request of the call, or a
// worker goes on with one whose run has died.
func (x *exchange) settled(ctx context.Context, c *record.Call) (*record.Call, error) {
	rests := func(c *record.Call) bool {
		return c.Task || c.State != record.Running && c.State != record.Ready
	}
	if rests(c) {
		return c, nil
	}
	return x.s.engine.Await(ctx, c.ID, x.s.limits.InlineWait, rests)
}

// drive lets a run go on for this request, in a goroutine of the engine's unless
// it is carried: the run's end does not depend on the client's connection. If
// that is lost, the handler is told to stop, unless an effect has begun. After
// TaskAfter the run goes on as it is and the request gets a task.
func (x *exchange) drive(ctx context.Context, run *engine.Run) (json.RawMessage, error) {
	if run.Carried() {
		return x.driveHere(ctx, run)
	}
	type reply struct {
		res json.RawMessage
		err error
	}
	replies := make(chan reply, 1)
	at := &place{moved: make(chan struct{}, 1), gone: ctx.Done()}
	at.move(run)
	run.For = x
	x.s.engine.Go(func() {
		r := reply{err: errPanicked}
		defer func() { replies <- r }()
		r.res, r.err = x.run(context.WithoutCancel(ctx), run, at)
	})
	var timer *time.Timer
	var after <-chan time.Time
	if x.f.TaskAfter > 0 && x.r.DeclaresTasks() {
		timer = time.NewTimer(x.f.TaskAfter)
		defer timer.Stop()
		after = timer.C
	}
	for {
		run := at.run.Load()
		select {
		case r := <-replies:
			if run.Call().Task {
				return x.status(run.Call())
			}
			return r.res, r.err
		case <-run.Announced():
			return x.status(run.Call())
		case <-after:
			if ctx.Err() != nil {
				continue // nobody would hear of the task
			}
			if err := run.Promote(context.WithoutCancel(ctx)); err != nil {
				x.s.log.Info("a call that was to become a task stays inline for now", "call", run.Call().ID, "tool", x.f.name, "err", err)
				timer.Reset(max(x.f.TaskAfter, time.Second))
			}
		case <-at.moved:
		case <-ctx.Done():
			run.Leave()
			return nil, ctx.Err()
		}
	}
}

var errPanicked = errors.New("a callback panicked")

// driveHere is drive for a run of which nothing is kept: it ends with its client,
// or at the latest a grace later.
func (x *exchange) driveHere(ctx context.Context, run *engine.Run) (res json.RawMessage, err error) {
	at := &place{moved: make(chan struct{}, 1), gone: ctx.Done()}
	at.move(run)
	run.For = x
	defer context.AfterFunc(ctx, func() { at.run.Load().Leave() })()
	err = errPanicked
	x.s.engine.Here(func() { res, err = x.run(context.WithoutCancel(ctx), run, at) })
	return res, err
}

// A place is where an exchange has got to: the run that serves it now.
type place struct {
	run   atomic.Pointer[engine.Run]
	moved chan struct{}   // capacity 1: run is another
	gone  <-chan struct{} // closed when the client is
}

func (p *place) move(run *engine.Run) {
	p.run.Store(run)
	select {
	case <-p.gone: // whoever would have told the run did not know of it
		run.Leave()
	default:
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// run executes the handler until there is a response for the client.
func (x *exchange) run(ctx context.Context, run *engine.Run, at *place) (json.RawMessage, error) {
	defer func() { run.Close() }()
	for round := 0; ; round++ {
		end := run.Do()
		switch {
		case run.HasLeft():
			return nil, errors.Join(engine.ErrLeft, run.Release(ctx, record.WhyLeft))
		case run.Call().Task:
			if end.Pending { // it may have become one after the handler asked
				if never := x.s.unanswerable(run.Call(), run.Asks()); never != nil {
					end = *never
				}
			}
			if err := run.Settle(ctx, end); err != nil && !errors.Is(err, engine.ErrLost) {
				return nil, err
			}
			return x.status(run.Call())
		case !end.Pending:
			return x.finish(ctx, run, end)
		case round >= x.s.limits.Rounds || run.Call().Round >= x.s.limits.Rounds:
			return x.finish(ctx, run, x.failed(limitError("Rounds", max(round, run.Call().Round)+1, x.s.limits.Rounds)))
		}
		way, res, err := x.deliver(ctx, run)
		if way == responds {
			return res, err
		}
		next, res, err := x.goOn(ctx, run, way)
		if next == nil {
			return res, err
		}
		run = next
		at.move(run)
	}
}

// A way is how a request goes on once its questions were brought to whoever can
// answer them.
type way int

const (
	responds  way = iota // with a response
	runsAgain            // its run executes the handler again
	claims               // its run has paused; another is to claim the round
)

// goOn has the handler run again within a request: by the run that it has, or by
// one that claims the round. It returns that run, or the response. Permission is
// asked here and nowhere else, before anything is claimed.
func (x *exchange) goOn(ctx context.Context, run *engine.Run, w way) (*engine.Run, json.RawMessage, error) {
	c := run.Call()
	if err := x.mayGoOn(ctx, run); err != nil {
		if w == runsAgain {
			if err := run.Release(ctx, record.WhyLeft); err != nil {
				x.s.log.Warn("a run that may not go on could not be released; its lease will lapse", "call", c.ID, "err", err)
			}
		}
		res, err := x.failure(err, x.callID(c))
		return nil, res, err
	}
	if w == runsAgain {
		return run, nil, nil
	}
	next, err := x.s.engine.Retry(ctx, c.ID, x.by, none, record.Retry{N: c.Round})
	if err != nil {
		return nil, nil, err
	}
	if next == nil { // it may not be run again, and has ended
		if c, err = x.s.engine.Load(ctx, c.ID); err != nil {
			return nil, nil, err
		}
		res, err := x.status(c)
		return nil, res, err
	}
	next.For, next.AskFirst = x, run.AskFirst
	return next, nil, nil
}

// callID is the call's id as somebody can come back with it: no store knows of a
// call that its client carries.
func (x *exchange) callID(c *record.Call) string {
	if x.f.readOnly {
		return ""
	}
	return c.ID
}

// access describes an access of this request's sender to its call.
func (x *exchange) access(c *record.Call, verb Verb) Access {
	a := accessTo(c, verb, x.id)
	a.CallID = x.callID(c)
	return a
}

// mayGoOn is asked before the handler runs again within a request: that may have
// waited for long, and nobody is their token for longer than it is valid.
func (x *exchange) mayGoOn(ctx context.Context, run *engine.Run) error {
	a := x.access(run.Call(), Resume)
	if t := x.r.Token(); t != nil && !t.Expiration.IsZero() && !time.Now().Before(t.Expiration) {
		return x.s.deny(ctx, a, errExpired)
	}
	return x.s.authorize(ctx, a)
}

// finish ends the call with what its handler came to, and responds with what
// has become of the call: that may be something else.
func (x *exchange) finish(ctx context.Context, run *engine.Run, end engine.End) (json.RawMessage, error) {
	if run.Draining() && (end.Error != nil || end.ToolError) {
		if err := run.Release(ctx, record.WhyHandback); err != nil {
			return nil, err
		}
		return nil, &wire.Error{Code: wire.CodeInternal, Message: "the server is shutting down; try again", Status: 503}
	}
	if run.AskFirst {
		if err := run.Announce(ctx); err != nil {
			return nil, err
		}
		c, err := run.Finish(ctx, end)
		if err != nil {
			return nil, err
		}
		return x.status(c)
	}
	if run.Forget() {
		return x.response(end)
	}
	c, err := run.Finish(ctx, end)
	if err != nil {
		var refused *record.Refusal
		if errors.As(err, &refused) {
			if c, lerr := x.s.engine.Load(ctx, c.ID); lerr == nil {
				if c.State != record.Ended && !c.Background {
					return nil, errInFlight() // its run has lost its lease: the same request goes on with it
				}
				return x.status(c) // it ended otherwise meanwhile
			}
		}
		return nil, err
	}
	return x.status(c)
}

// failed makes an end of an error of ours or the handler's.
func (x *exchange) failed(err error) engine.End { return x.s.endOf(x.f, produced{err: err}, "") }

// A route is how the questions of a run can reach somebody.
type route struct {
	mine   []record.Question // this request's client can be asked
	nobody *record.Question  // nobody can: the first of those
}

// routes finds out who can be asked what. x.by is who would relay the answer.
func (x *exchange) routes(asks []record.Question) route {
	var rt route
	for i, q := range asks {
		switch {
		case q.MayAnswer(x.by, x.id.principal()) && slices.Contains(x.kinds, q.Kind):
			rt.mine = append(rt.mine, q)
		case x.s.elsewhere(q):
		case rt.nobody == nil:
			rt.nobody = &asks[i]
		}
	}
	return rt
}

// elsewhere reports whether a question can be answered other than through the
// requester's client.
func (s *Server) elsewhere(q record.Question) bool {
	return !q.Who.Requester() || q.Who.OutOfBand || s.opts.AnswerAt != nil
}

// deliver brings the run's questions to whoever can answer them, and says how the
// request goes on.
func (x *exchange) deliver(ctx context.Context, run *engine.Run) (way, json.RawMessage, error) {
	asks := run.Asks()
	if len(asks) == 0 {
		return runsAgain, nil, nil // all were answered while the handler returned
	}
	rt := x.routes(asks)
	if rt.nobody != nil {
		res, err := x.nobody(ctx, run, *rt.nobody)
		return responds, res, err
	}
	switch {
	case len(rt.mine) > 0 && x.r.Legacy:
		return x.live(ctx, run, rt.mine)
	case len(rt.mine) > 0:
		return x.ask(ctx, run)
	}
	c, err := run.Put(ctx, &record.Paused{Background: true, Task: x.f.Task != TaskForbidden && x.r.DeclaresTasks()})
	if err != nil {
		return responds, nil, err
	}
	if c.Task {
		res, err := x.status(c)
		return responds, res, err
	}
	res, err := x.pend(c)
	return responds, res, err
}

// ask closes the round with the questions that this client can be asked.
func (x *exchange) ask(ctx context.Context, run *engine.Run) (way, json.RawMessage, error) {
	c, err := run.Put(ctx, &record.Paused{})
	if err != nil {
		return responds, nil, err
	}
	if c.State == record.Waiting && !c.Task && !x.asked(c) { // answered elsewhere meanwhile
		return claims, nil, nil
	}
	if c.State != record.Waiting || c.Task {
		res, err := x.status(c)
		return responds, res, err
	}
	res, err := x.reissue(ctx, c)
	return responds, res, err
}

func none(*record.Call, time.Time) []record.Event { return nil }

// pend waits, bounded and as long as the client is there, for others to answer,
// and then says that it is pending.
func (x *exchange) pend(c *record.Call) (json.RawMessage, error) {
	c, err := x.s.engine.Await(x.client, c.ID, x.s.limits.InlineWait, func(c *record.Call) bool {
		return c.State == record.Ended || c.State == record.Held
	})
	if err != nil {
		return nil, err
	}
	return x.status(c)
}

// nobody ends the call before anything of it is sent, since nobody can be
// asked. It is never a default yes.
func (x *exchange) nobody(ctx context.Context, run *engine.Run, q record.Question) (json.RawMessage, error) {
	name, required := capabilityOf(q.Kind)
	if run.Forget() {
		x.ended(record.Failed)
		return x.missing(name, required)
	}
	if _, err := run.Finish(ctx, engine.End{Error: missingError(name, required)}); err != nil {
		return nil, err
	}
	return x.missing(name, required)
}

func (x *exchange) missingTasks() (json.RawMessage, error) {
	return x.missing("the Tasks extension ("+wire.TasksExtension+")", map[string]any{"extensions": map[string]any{wire.TasksExtension: map[string]any{}}})
}

func missingError(name string, required map[string]any) *record.Error {
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": required})
	return &record.Error{Code: wire.CodeMissingCapability, Message: missingText(name), Data: data, Outcome: "nobody_to_ask"}
}

func missingText(name string) string { return "this needs a client that declares " + name }

// missing says which capability is missing: the 2025 era has no error for it.
func (x *exchange) missing(name string, required map[string]any) (json.RawMessage, error) {
	observe.At(x.values).Came("nobody_to_ask")
	if x.r.Legacy && x.r.Method == wire.MethodCallTool {
		return toolFailure(errors.New(missingText(name)), "nobody_to_ask", ""), nil
	}
	return nil, wire.MissingCapability(missingText(name), required)
}
