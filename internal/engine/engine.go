// Package engine runs calls: it claims them, keeps their leases, carries what
// their runs decide to the store, and lets time pass for them.
//
// It knows no protocol and no rules; the rules are in package record. What a
// run does is a function that the owner of the engine gives it.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// Errors of the engine. Refusals of the law come as [*record.Refusal].
var (
	// ErrLost: the run's lease is gone; nothing it does counts any more.
	ErrLost = errors.New("the run has lost its lease")
	// ErrLeft: the client went away before any effect began.
	ErrLeft = errors.New("the client is gone")
	// ErrCancelled is the cause of a run's context after tasks/cancel.
	ErrCancelled = errors.New("the call was cancelled")
	// ErrTimeout is the cause when a run has used up its running time.
	ErrTimeout = errors.New("the run took too long (limit: Timeout)")
	// ErrDeadline is the cause when the call's deadline has passed.
	ErrDeadline = errors.New("the call's deadline has passed")
	// ErrBusy: as many runs without a waiting client as there may be.
	ErrBusy = errors.New("too many runs without a waiting client (limits: Workers, WorkersPerTenant)")
	// ErrDraining is the cause when the process is shutting down.
	ErrDraining = errors.New("the server is shutting down")
)

// Told are the errors of [Run.Once] that are about the call and not about what
// is beneath it; refusals of the law and ends of effects apart.
var Told = []error{ErrLost, ErrLeft, ErrCancelled, ErrTimeout, ErrDeadline, ErrDraining, ErrCarried, ErrNested, ErrFull, context.Canceled, context.DeadlineExceeded}

// An End is what a handler's run came to.
type End struct {
	Pending   bool   // it waits for answers; the rest is empty
	Result    []byte // the result object, JSON
	ToolError bool   // the result tells of an error
	Error     *record.Error
	// Err is what the handler failed with, if that is for whoever waits for the
	// run alone. Error then says it to everybody else.
	Err error
}

// Options of an engine. All are required but where a default is named.
type Options struct {
	Store store.Store
	// Handle is one execution of the call's handler, from the top.
	Handle func(ctx context.Context, r *Run) End
	// MayRun is asked before a stored call is run; an error ends the call.
	MayRun func(ctx context.Context, c *record.Call) *record.Error
	// MayAct is asked before each start of an effect.
	MayAct func(ctx context.Context, r *Run, effect string) error
	// Bounds says how long the runs of a call may take together, and how many
	// questions may be open at once; zero: no limit.
	Bounds func(c *record.Call) (timeout time.Duration, open int)
	// Journal bounds what one call remembers (record.Call.Size), in bytes: a
	// call that has reached it can ask and do nothing new. Zero: no limit.
	Journal int
	// Committed is told of every change that counts, before anybody else of this
	// process is: that has been committed, or was made to a carried call. before
	// is nil if the change made the call. Nil: nobody is told. It must not block.
	Committed func(before *record.Call, c record.Change)
	Log       *slog.Logger

	// Deployment is part of the keys of effects with a subject.
	Deployment string
	Node       string        // names this process's place; default: "node"
	Workers    int           // background runs at once; default 32
	PerTenant  int           // of one tenant; default: half of Workers
	Lease      time.Duration // default 10 s
	Heartbeat  time.Duration // default 3 s
	Drain      time.Duration // how long a drain may take; default 30 s
	Grace      time.Duration // for a handler to return once told to; default 5 s
	Settle     time.Duration // for a started effect to end past its call's deadline; default 5 min
}

// An Engine runs calls. It is safe for concurrent use.
type Engine struct {
	Options
	holder string // node/boot
	boot   string

	wake    chan struct{} // capacity 1: the loop looks again
	dropped chan struct{} // capacity 1: a run is over; the heartbeat may have no more to do

	stopping chan struct{} // closed when the drain begins

	mu       sync.Mutex
	runs     map[string][]*Run   // live runs that are kept, by call id; the last is the newest
	going    map[*Run]struct{}   // all runs that are not closed, kept or not
	tenants  map[string]int      // background runs per tenant, announced ones too
	active   map[string]bool     // calls being run in the background, from before the claim
	busy     int                 // background runs
	watches  map[string][]*Watch // by call id
	next     time.Time           // when the loop looks again by itself; zero: never
	draining bool                // no more calls are taken
	hurrying bool                // runs are told to stop
	beating  bool                // the heartbeat goroutine is running

	work group // every goroutine of the engine
}

// New returns an engine that does nothing until [Engine.Work].
func New(o Options) *Engine {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Lease, 10*time.Second)
	def(&o.Heartbeat, 3*time.Second)
	def(&o.Drain, 30*time.Second)
	def(&o.Grace, 5*time.Second)
	def(&o.Settle, 5*time.Minute)
	if o.Workers <= 0 {
		o.Workers = 32
	}
	if o.PerTenant <= 0 {
		o.PerTenant = max(o.Workers/2, 1)
	}
	if o.Node == "" {
		o.Node = "node"
	}
	boot := rand.Text()
	return &Engine{
		Options: o, boot: boot, holder: o.Node + "/" + boot,
		wake:     make(chan struct{}, 1),
		dropped:  make(chan struct{}, 1),
		stopping: make(chan struct{}),
		runs:     map[string][]*Run{},
		going:    map[*Run]struct{}{},
		tenants:  map[string]int{},
		active:   map[string]bool{},
		watches:  map[string][]*Watch{},
	}
}

// Work claims and runs calls until ctx ends, then drains: it takes no more,
// lets runs come to their end, hands back those that do not within the drain
// time, and returns once none is left.
func (e *Engine) Work(ctx context.Context) error {
	if err := e.Store.Takeover(ctx, e.Node, e.boot); err != nil {
		e.drain() // requests may have come already
		return fmt.Errorf("taking over the leases of earlier processes: %w", err)
	}
	for ctx.Err() == nil {
		other := e.Store.Wake() // before looking: what changes meanwhile wakes
		again, err := e.look(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Error("looking for calls to run failed; trying again", "err", err)
			e.sleep(ctx, time.Second, nil)
			continue
		}
		if !again {
			e.idle(ctx, other)
		}
	}
	e.drain()
	return nil
}

// batch is how many calls of each kind are looked at together.
const batch = 64

// look does what is due now and reports whether there may be more of it.
func (e *Engine) look(ctx context.Context) (again bool, err error) {
	select {
	case <-e.wake: // what it was for is looked at now
	default:
	}
	now, err := e.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	e.next = time.Time{} // what comes up while the store is asked wakes the loop
	e.mu.Unlock()
	due, err := e.Store.Due(ctx, now, batch+e.Workers, e.saturated())
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	e.next = due.Next
	free := e.Workers - e.busy
	e.mu.Unlock()
	var failed error
	for _, id := range due.Overdue {
		if err := e.pass(ctx, id); err != nil {
			failed = fmt.Errorf("letting time pass for call %s: %w", id, err)
		}
	}
	started := 0
	for _, id := range due.Ready {
		if started >= free {
			break
		}
		ok, err := e.start(ctx, id, false)
		switch {
		case err != nil:
			failed = fmt.Errorf("looking at call %s, which is ready: %w", id, err)
		case ok:
			started++
		}
	}
	if _, err := e.Store.Purge(ctx, now, batch); err != nil {
		return false, err
	}
	return len(due.Overdue) > 0 || started > 0, failed
}

// idle waits until something is due or somebody wakes the loop. Nothing is
// polled: the store said when the next thing is due, and every commit of this
// process that brings something nearer wakes it.
func (e *Engine) idle(ctx context.Context, other <-chan struct{}) {
	e.mu.Lock()
	next := e.next
	e.mu.Unlock()
	var timer <-chan time.Time
	if !next.IsZero() {
		now, err := e.Store.Now(ctx)
		if err != nil {
			return
		}
		t := time.NewTimer(max(next.Sub(now), time.Millisecond))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-timer:
	case <-e.wake:
	case <-other:
	}
}

// sleep waits that long, or until ctx or the channel given ends it.
func (e *Engine) sleep(ctx context.Context, d time.Duration, early <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-t.C:
	}
}

// nudge makes the loop look again.
func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// saturated names the tenants that have all the runs they may have.
func (e *Engine) saturated() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var full []string
	for t, n := range e.tenants {
		if n >= e.PerTenant {
			full = append(full, t)
		}
	}
	return full
}

// pass lets time pass for one call: its run has died, or something expired.
func (e *Engine) pass(ctx context.Context, id string) error {
	_, err := e.Change(ctx, id, record.System, record.NoEpoch, func(c *record.Call, now time.Time) []record.Event {
		if c.State == record.Running && !c.Lease.Live(now) {
			return []record.Event{record.Stopped{Why: record.WhyDied}}
		}
		return []record.Event{record.TimePassed{}}
	})
	var refused *record.Refusal
	if errors.As(err, &refused) {
		return nil // another was quicker
	}
	return ignore(err, store.ErrNotFound)
}

// Load returns a call as it is at this moment: what has expired is expired,
// even if nobody has looked at it since. A call that this process runs, and that
// no other can have changed, is as its run knows it.
func (e *Engine) Load(ctx context.Context, id string) (*record.Call, error) {
	if !e.Store.Shared() {
		if r := e.Live(id); r != nil && r.lease.Err() == nil {
			if c := r.Call(); c.State == record.Running {
				return c, nil
			}
		}
	}
	c, err := e.Store.Load(ctx, id)
	if err != nil || c.State == record.Ended || c.State == record.Running {
		return c, err
	}
	now, err := e.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	due := c.Due()
	if c.State == record.Ready {
		due = c.Deadline
	}
	if due.IsZero() || now.Before(due) {
		return c, nil
	}
	return e.Change(ctx, id, record.System, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.TimePassed{}}
	})
}

// Events says what happens to a call as it is at a moment. It is asked anew
// whenever the call changed before the change was applied.
type Events = func(c *record.Call, now time.Time) []record.Event

// Change carries events to the store and returns the call as it is then. A
// refusal of the law is put on record and returned.
func (e *Engine) Change(ctx context.Context, id string, by record.Actor, epoch int64, events Events) (*record.Call, error) {
	for try := 0; ; try++ {
		c, err := e.Store.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		now, err := e.Store.Now(ctx)
		if err != nil {
			return nil, err
		}
		change, refused := record.Decide(c, by, epoch, now, events(c, now)...)
		after, err := e.commit(ctx, c, change)
		if errors.Is(err, store.ErrConflict) && try < maxTries {
			continue
		}
		if err != nil {
			return nil, err
		}
		return after, refused
	}
}

// maxTries bounds how often a change is decided anew. Each conflict means that
// another change of the same call went through.
const maxTries = 100

// commit applies a change and tells everybody who waits for the call.
func (e *Engine) commit(ctx context.Context, before *record.Call, c record.Change) (*record.Call, error) {
	if c.After == nil && !c.Remove && len(c.Audit) == 0 {
		return before, nil
	}
	if err := e.Store.Commit(ctx, c); err != nil {
		if doubtful(err) {
			e.lookAfter(before, c)
		}
		return nil, err
	}
	e.tell(before, c)
	if c.After == nil {
		return before, nil
	}
	if before != nil && c.After.State == record.Running && before.Epoch == c.After.Epoch {
		c.After.Lease = before.Lease // the store keeps it, and so do we
	}
	e.notify(c.After)
	return c.After, nil
}

// tell tells the engine's owner, and who watches a call that is gone.
func (e *Engine) tell(before *record.Call, c record.Change) {
	if e.Committed != nil {
		e.Committed(before, c)
	}
	if c.Remove {
		e.gone(c.ID)
	}
}

// doubtful reports whether a change may have been applied of which the store
// said that it failed.
func doubtful(err error) bool {
	return ignore(err, store.ErrConflict, store.ErrQuota, store.ErrFull, store.ErrClosed) != nil
}

// lookAfter finds out what became of a doubtful change, so that whoever waits
// for it is told: for a while, since the store is in trouble.
func (e *Engine) lookAfter(before *record.Call, c record.Change) {
	if c.After == nil && !c.Remove {
		return
	}
	e.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.Lease)
		defer cancel()
		for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
			now, err := e.Store.Load(ctx, c.ID)
			switch {
			case err == nil && now.Version > c.Version:
				if c.After != nil && now.UpdatedAt.Equal(c.After.UpdatedAt) {
					e.tell(before, c)
				}
				e.notify(now)
				e.nudge() // of a lease that no run here has only the store knows
				return
			case errors.Is(err, store.ErrNotFound) && c.Remove:
				e.tell(before, c)
				return
			case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrClosed), ctx.Err() != nil:
				return
			}
			select {
			case <-e.stopping: // the next process reads it
				return
			default:
				e.sleep(ctx, wait, e.stopping)
			}
		}
	})
}

// Refuse puts a refusal that concerns a call on record.
func (e *Engine) Refuse(ctx context.Context, id string, by record.Actor, reason record.Reason, note string) {
	_, err := e.Change(ctx, id, by, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Refused{Reason: reason, Note: note}}
	})
	var r *record.Refusal
	if err != nil && !errors.As(err, &r) && !errors.Is(err, store.ErrNotFound) {
		e.Log.Error("a refusal could not be put on record", "call", id, "reason", reason, "err", err)
	}
}

// Create makes a call that workers will run.
func (e *Engine) Create(ctx context.Context, by record.Actor, o record.Opened) (*record.Call, error) {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	change, err := record.Decide(nil, by, record.NoEpoch, now, o)
	if err != nil {
		return nil, err
	}
	return e.commit(ctx, nil, change)
}
