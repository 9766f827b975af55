package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tallystick/tallystick/record"
)

// Keeping says where the journal of a run lives.
type Keeping int

// Ways of keeping.
const (
	// Kept in the store, from the first change on.
	Kept Keeping = iota
	// Carried by the client in the sealed state: nothing is written.
	Carried
)

// A Run is one holder's right to execute a call's handler. It remembers what
// the handler asks and does. Its methods are safe for concurrent use.
type Run struct {
	e       *Engine
	id      string
	epoch   int64
	keeping Keeping
	by      record.Actor
	timeout time.Duration // of running time, over all runs of the call; zero: none
	maxOpen int           // questions that are open at once; zero: no limit

	// AskFirst: the first effect or report announces the call as a task. Set
	// before Do.
	AskFirst bool
	// For is what the run is done for, as its starter wants to find it again.
	// Set before Do.
	For any

	ctx    context.Context // of the handler: ends with cancel, timeout, lease
	cancel context.CancelCauseFunc
	// lease is the context of effects: it ends with the lease and nothing else.
	lease context.Context
	lost  context.CancelCauseFunc

	announced chan struct{} // closed when the call has been announced as a task
	counted   bool          // among the runs without a waiting client, since then; the engine's mu guards it
	tenant    string

	committing chan struct{} // capacity 1: one change at a time; held over the store's write

	mu      sync.Mutex
	call    *record.Call
	opened  *record.Opened // what makes the call, until the first commit has
	since   time.Time      // when this execution began
	worked  time.Duration  // in the executions before it
	asked   []record.Question
	keys    map[string]bool
	pending map[string]bool // keys that the handler was told to be pending
	relied  []record.Reliance
	fault   error // the handler asked what it may not
	begun   bool  // an effect has started: the client's leaving ends nothing
	starts  int   // effects whose start is being committed: it may come to that
	away    bool  // the client has left
	left    bool  // and before that
	gone    bool  // the handler did not return when told to, and was left behind
	over    bool
	unsure  bool // the store could not say whether it has made the call

	held map[string]bool // effects of which the handler was last told that they are held

	reported  *record.Progress // not yet committed
	reporting *record.Progress // being committed
	effects   map[string]chan struct{}
}

func (e *Engine) newRun(c *record.Call, stored bool) *Run {
	r := &Run{
		e: e, id: c.ID, epoch: c.Epoch, call: c, tenant: c.Owner.Tenant,
		by:        record.Actor{Principal: c.Owner, Roles: c.Roles, Channel: record.ChannelRun},
		announced: make(chan struct{}), committing: make(chan struct{}, 1),
		effects: map[string]chan struct{}{}, held: map[string]bool{},
		begun: stored && c.EffectBegun(),
	}
	if c.Task {
		close(r.announced)
	}
	r.timeout, r.maxOpen = e.Bounds(c)
	r.lease, r.lost = context.WithCancelCause(context.Background())
	r.ctx, r.cancel = context.WithCancelCause(r.lease)
	e.join(r)
	return r
}

// Begin makes a run of a call that does not exist yet. It comes into being
// with the run's first change, or with [Run.Keep]; a carried one never does.
func (e *Engine) Begin(ctx context.Context, o record.Opened, k Keeping) (*Run, error) {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	o.Lease = e.lease(now)
	if k == Carried {
		o.Lease.Until = o.Call.Deadline
	}
	change, err := record.Decide(nil, record.System, record.NoEpoch, now, o)
	if err != nil {
		return nil, err
	}
	r := e.newRun(change.After, false)
	r.keeping = k
	if k == Kept {
		r.opened = &o
	}
	return r, nil
}

// Carry makes a run of a call that its client carries. A nil run without an
// error means that it may not be run again: it has ended as the call that comes
// instead tells.
func (e *Engine) Carry(ctx context.Context, c *record.Call, by record.Actor, answers Events, retry record.Retry) (*Run, *record.Call, error) {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	events := append([]record.Event{record.TimePassed{}}, answers(c, now)...)
	events = append(events, record.Taken{Lease: record.Lease{Holder: e.holder, Until: c.Deadline}, Retry: &retry})
	change, err := record.Decide(c, by, record.NoEpoch, now, events...)
	if err != nil {
		return nil, nil, err
	}
	e.tell(c, change)
	if change.After.State != record.Running {
		return nil, change.After, nil
	}
	r := e.newRun(change.After, false)
	r.keeping = Carried
	return r, nil, nil
}

// Retry claims a round of a kept call with the answers given to it.
func (e *Engine) Retry(ctx context.Context, id string, by record.Actor, answers Events, retry record.Retry) (*Run, error) {
	return e.take(ctx, id, by, answers, &retry)
}

// Call is the call as the run knows it now. It must not be modified.
func (r *Run) Call() *record.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.call
}

// IsKept reports whether the call is in the store.
func (r *Run) IsKept() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keeping == Kept && r.opened == nil
}

// Carried reports whether the call is carried by its client.
func (r *Run) Carried() bool { return r.keeping == Carried }

// Announced is closed once the call is a task.
func (r *Run) Announced() <-chan struct{} { return r.announced }

// Context is the handler's.
func (r *Run) Context() context.Context { return r.ctx }

// Do executes the handler once and returns what it came to. A handler that
// does not return within the engine's grace once it is told to stop is left
// behind: its context has ended, and nothing it does any more counts.
func (r *Run) Do() End {
	if cause := context.Cause(r.ctx); cause != nil {
		return stopped(cause) // told to stop before it began
	}
	r.mu.Lock()
	r.asked, r.keys, r.relied, r.pending, r.fault = nil, map[string]bool{}, nil, map[string]bool{}, nil
	r.since = time.Now()
	budget := r.budget()
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.worked += time.Since(r.since)
	}()

	done := make(chan End, 1)
	r.e.work.Go(func() {
		end := failed("the handler ended its goroutine", "panic")
		defer func() { // also when it does, by runtime.Goexit
			done <- end
			r.late(end)
		}()
		end = r.execute()
	})
	var timeout <-chan time.Time
	if budget > 0 {
		t := time.NewTimer(budget)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case end := <-done:
		return end
	case <-timeout:
		r.cancel(r.outOfTime())
	case <-r.ctx.Done():
	}
	settling := r.inEffect()
	grace := time.NewTimer(r.e.Grace)
	defer grace.Stop()
	for {
		select {
		case end := <-done:
			return end
		case <-grace.C:
			// An effect settles, or its lease ends; then the handler has its
			// time to return.
			was := settling
			if settling = r.inEffect(); settling || was {
				grace.Reset(r.e.Grace)
				continue
			}
			r.mu.Lock()
			r.gone = true
			r.mu.Unlock()
			return stopped(context.Cause(r.ctx))
		}
	}
}

const codeInternal = -32603

func failed(message, outcome string) End {
	return End{Error: &record.Error{Code: codeInternal, Message: message, Outcome: outcome}}
}

// stopped is the end of a handler that did not come to one of its own.
func stopped(cause error) End {
	if errors.Is(cause, ErrTimeout) {
		return failed(cause.Error(), "timeout")
	}
	return failed(cause.Error(), "stopped")
}

// budget is how long the handler may run now; zero: no limit.
func (r *Run) budget() time.Duration {
	left := time.Duration(0)
	if r.timeout > 0 {
		left = max(r.timeout-r.call.Ran-r.worked, time.Millisecond)
	}
	if now, err := r.e.Store.Now(r.lease); err == nil {
		if d := max(r.call.Deadline.Sub(now), time.Millisecond); left == 0 || d < left {
			left = d
		}
	}
	return left
}

// outOfTime says which of the two limits ended the run.
func (r *Run) outOfTime() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timeout > 0 && r.call.Ran+r.worked+time.Since(r.since) >= r.timeout {
		return ErrTimeout
	}
	return ErrDeadline
}

// execute calls the handler and survives its panic: it fails its call only.
func (r *Run) execute() (end End) {
	defer func() {
		if p := recover(); p != nil {
			r.e.Log.Error("a handler panicked; its call fails", "call", r.id, "tool", r.Call().Action.Label(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			end = failed("the handler panicked", "panic")
		}
	}()
	return r.e.Handle(r.ctx, r)
}

// Put puts the run's questions on record and, unless stay is given, ends it:
// the call then waits. A question whose answers are void again and again ends
// the call instead. It returns the call as it is then.
func (r *Run) Put(ctx context.Context, pause *record.Paused) (*record.Call, error) {
	err := r.commit(ctx, func(c *record.Call, now time.Time) []record.Event {
		events := r.asking(c)
		if pause != nil {
			p := *pause
			p.Ran = r.worked
			events = append(events, p)
		}
		return events
	})
	var refused *record.Refusal
	if errors.As(err, &refused) && refused.Reason == record.ReasonUnstable {
		return r.Finish(ctx, End{Error: &record.Error{
			Code: codeInternal, Outcome: "unstable_question",
			Message: fmt.Sprintf("the question %q changes at every run: its message, schema, facts or who may answer differ each time", refused.Key),
		}})
	}
	if pause != nil {
		r.Close()
	}
	return r.Call(), err
}

// Finish ends the call with what its handler came to.
func (r *Run) Finish(ctx context.Context, end End) (*record.Call, error) {
	defer r.Close()
	err := r.commit(ctx, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Finished{Result: end.Result, Error: end.Error, ToolError: end.ToolError, Held: len(r.held) > 0, Ran: r.worked}}
	})
	return r.Call(), err
}

// Release ends the run without an end of the call.
func (r *Run) Release(ctx context.Context, why record.Why) error {
	defer r.Close()
	if !r.IsKept() {
		return nil
	}
	return r.commit(ctx, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Stopped{Why: why, Ran: r.worked}}
	})
}

// Respond records answers that came while the run goes on.
func (r *Run) Respond(ctx context.Context, by record.Actor, answers Events) error {
	return r.commitAs(ctx, by, answers)
}

// Keep brings the call into being in the store.
func (r *Run) Keep(ctx context.Context) error {
	return r.commit(ctx, func(*record.Call, time.Time) []record.Event { return nil })
}

// late puts the end of a handler that was left behind on record. It changes
// nothing: its run is over.
func (r *Run) late(end End) {
	r.mu.Lock()
	gone := r.gone
	r.mu.Unlock()
	if gone {
		r.tooLate(end)
	}
}

// tooLate offers the law an end that it will refuse, so that the refusal is on
// record.
func (r *Run) tooLate(end End) {
	if end.Pending || !r.IsKept() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.e.Lease)
	defer cancel()
	_, err := r.e.Change(ctx, r.id, r.by, r.epoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Finished{Result: end.Result, Error: end.Error, ToolError: end.ToolError}}
	})
	var refused *record.Refusal
	if err != nil && !errors.As(err, &refused) {
		r.e.Log.Warn("a late end could not be put on record", "call", r.id, "err", err)
	}
}

// Settle ends a run that no client waits for.
func (r *Run) Settle(ctx context.Context, end End) error {
	var err error
	switch {
	case r.lease.Err() != nil:
		r.mu.Lock()
		gone := r.gone
		r.mu.Unlock()
		if !gone { // else its real end is still to come
			r.tooLate(end)
		}
		r.Close()
		r.giveBack()
		return ErrLost
	case end.Pending:
		_, err = r.Put(ctx, &record.Paused{})
	case errors.Is(context.Cause(r.ctx), ErrDraining) && (end.Error != nil || end.ToolError):
		err = r.Release(ctx, record.WhyHandback)
	default:
		_, err = r.Finish(ctx, end)
	}
	r.Close()
	return err
}

// Leave says that the client's connection is lost. Unless an effect has begun,
// or the call has become a task, the handler's context ends.
func (r *Run) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = true
	r.leave()
}

// leave does what the client's leaving means, as soon as it is known whether an
// effect has begun. The caller holds mu.
func (r *Run) leave() {
	if !r.away || r.begun || r.starts > 0 || r.over || r.call.Task {
		return
	}
	r.left = true
	r.cancel(ErrLeft)
}

// HasLeft reports whether the client left before that.
func (r *Run) HasLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// Report notes how far the handler is, and reports whether that is further than
// before. It is committed with the next change or the next heartbeat.
func (r *Run) Report(ctx context.Context, p record.Progress) (further bool, err error) {
	r.mu.Lock()
	old := r.progress()
	p.Done, p.Total = rising(old.Done, p.Done), rising(old.Total, p.Total)
	first := r.reported == nil && r.call.Progress == nil
	further = first || p.Done > old.Done
	if first || p != old {
		r.reported = &p
	}
	announce := r.AskFirst && !r.call.Task
	r.mu.Unlock()
	if announce {
		return further, r.Announce(ctx)
	}
	return further, nil
}

// rising is the greater of both, as far as the new one is a number at all.
func rising(old, v float64) float64 {
	if v > old && !math.IsInf(v, 0) {
		return v
	}
	return old
}

// Announce makes the running call a task, unless its client has left and would
// never hear of it. It is one conditional commit, against the run's own end:
// whichever comes first counts, and the other is told so.
func (r *Run) Announce(ctx context.Context) error {
	if r.HasLeft() {
		return ErrLeft
	}
	err := r.commit(ctx, func(c *record.Call, now time.Time) []record.Event { return r.announcing(c) })
	if err == nil && !r.Call().Task {
		return ErrLost
	}
	return err
}

// Promote is Announce if there is room among the runs without a waiting client:
// else it is ErrBusy, and may be tried again.
func (r *Run) Promote(ctx context.Context) error {
	if !r.e.room(r.Call().Owner.Tenant) {
		return ErrBusy
	}
	return r.Announce(ctx)
}

// announcing announces a run that is still one.
func (r *Run) announcing(c *record.Call) []record.Event {
	if c.Task || c.State != record.Running || c.Epoch != r.epoch {
		return nil
	}
	return []record.Event{record.Announced{}}
}

// Forget ends the run of a call that nothing has put on record, and reports
// whether it is one: from then on nothing can.
func (r *Run) Forget() bool {
	r.committing <- struct{}{}
	defer func() { <-r.committing }()
	r.mu.Lock()
	kept := r.keeping == Kept && r.opened == nil || r.unsure
	r.mu.Unlock()
	if kept {
		return false
	}
	r.Close()
	return true
}

// Progress is the latest report, committed or not.
func (r *Run) Progress() record.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress()
}

func (r *Run) progress() record.Progress {
	switch {
	case r.reported != nil:
		return *r.reported
	case r.call.Progress != nil:
		return *r.call.Progress
	}
	return record.Progress{}
}

// flush commits a report that nothing else has committed.
func (r *Run) flush(ctx context.Context) error {
	r.mu.Lock()
	idle := r.reported == nil || r.over || r.opened != nil || r.keeping == Carried
	r.mu.Unlock()
	if idle {
		return nil
	}
	return r.commit(ctx, func(*record.Call, time.Time) []record.Event { return nil })
}
