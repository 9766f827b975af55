package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstPause = 500 * time.Millisecond // after a failure; doubles
	lastPause  = 30 * time.Second

	codeMissingCapability = -32021
	codeHeaderMismatch    = -32020
	codeMethodNotFound    = -32601
)

// A drive is one call while this process is at it. Its goroutine decides and
// sends; goroutines of its own wait for Answerers, and report to it.
type drive struct {
	c    *Client
	id   string
	can  capabilities
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // closed at the end

	poke    <-chan struct{} // somebody else has changed the entry on disk
	changed chan struct{}   // capacity 1: an Answerer's goroutine has

	cancelling atomic.Int32 // callers who are about to put a cancel on disk

	// Of the driving goroutine.
	rounds int             // sent in this attachment
	work   time.Duration   // waited for the server in this attachment
	first  map[string]bool // questions that are on disk as shown, and are yet to be, for the first time

	mu     sync.Mutex                    // guards what follows
	k      kept                          // the entry as it is on disk
	live   progress                      // the latest report
	asking map[string]context.CancelFunc // who is at a question, by its id
	failed map[string]error              // questions that the Answerer could not answer
	broken error                         // an answer could not be kept
	asks   int                           // live questions and a task's, in this attachment
	clock  *stopwatch                    // of the request under way; nil: none
	result *Result
	err    error
}

func newDrive(c *Client, k kept, can capabilities) *drive {
	d := &drive{
		c: c, id: k.e.ID, k: k, done: make(chan struct{}), changed: make(chan struct{}, 1),
		can: can, first: map[string]bool{}, asking: map[string]context.CancelFunc{}, failed: map[string]error{}, poke: k.pokes(),
	}
	d.can.tasks = k.e.Method == methodTool
	d.ctx, d.stop = context.WithCancel(c.ctx)
	return d
}

func (d *drive) entry() *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.k.e
}

func (d *drive) status() Status {
	d.mu.Lock()
	k, p := d.k, d.live
	d.mu.Unlock()
	s := d.c.opts.Memory.statusOf(k)
	if !s.State.Final() {
		s.Done, s.Total = p.Done, p.Total
		if p.Message != "" {
			s.Message = p.Message
		}
	}
	return s
}

func (d *drive) outcome() (*Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k.e.ended() {
		d.c.opts.Memory.saw(d.k, d.c.opts.Limits.Keep)
	}
	return d.result, d.err
}

// change changes the entry on disk, whoever asks for it. The driving goroutine
// sees it afterwards.
func (d *drive) change(ctx context.Context, f func(*entry) error) error {
	select {
	case <-d.done: // the entry is nobody's, or another process's
		return d.c.opts.Memory.change(ctx, d.id, f)
	default:
	}
	err := d.update(ctx, f)
	if errors.Is(err, errLost) { // it has just been let go of, or is another process's
		return d.c.opts.Memory.change(ctx, d.id, f)
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
	return err
}

// update changes the entry on disk. Its error means that nothing was changed.
func (d *drive) update(ctx context.Context, f func(*entry) error) error {
	d.mu.Lock()
	before := d.k.version
	k, err := d.c.opts.Memory.update(ctx, d.k, f)
	d.k = k
	d.mu.Unlock()
	if k.version > before+1 { // with what somebody else has changed
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
	if err == nil && !k.e.ended() { // the end is told once Wait tells it too
		d.tell()
	}
	return err
}

// refresh reads what another process may have changed. Errors: errLost,
// ErrNotFound if that has forgotten the call.
func (d *drive) refresh() error {
	d.mu.Lock()
	before := d.k.version
	k, err := d.c.opts.Memory.reload(d.ctx, d.k)
	d.k = k
	d.mu.Unlock()
	if err == nil && k.version != before {
		d.tell()
	}
	return err
}

// current puts it on disk once more that this memory drives the call, unless it
// has less than a glance ago: nobody else can have taken the call over since
// then, and what others have changed is heard within that time. Errors: errLost.
func (d *drive) current() error {
	d.mu.Lock()
	age := time.Now().Round(0).Sub(d.k.at.Round(0)) // by the clock of leases: while the machine sleeps, no other goes
	d.mu.Unlock()
	if age >= 0 && age < glance {
		return nil
	}
	return d.update(d.ctx, func(*entry) error { return nil })
}

func (d *drive) tell() {
	if d.c.opts.Notify != nil {
		d.c.opts.Notify(d.status())
	}
}

// run drives the call to its end, or to where it cannot go on.
func (d *drive) run() {
	var err error
	for !d.entry().ended() && err == nil {
		if err = d.ctx.Err(); err == nil {
			err = d.step()
		}
	}
	detached := d.ctx.Err()
	d.stop()
	d.takeBack()
	d.mu.Lock()
	k := d.k
	e := k.e
	if e.ended() {
		d.result, d.err = e.result()
	} else {
		d.err = d.explain(e, err, detached)
	}
	d.mu.Unlock()
	d.c.opts.Memory.release(k)
	d.mu.Lock()
	if d.k.driver == d.c.opts.Memory.me {
		d.k.driver, d.k.until = "", time.Time{}
	}
	d.mu.Unlock()
	d.c.gone(d)
	close(d.done)
	d.tell()
}

// takeBack has the entry say again what is so, where a commit has said what was
// to follow and the driving has ended before that.
func (d *drive) takeBack() {
	if e := d.entry(); !e.staying() && (len(d.first) == 0 || e.ended()) {
		return
	}
	err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error {
		if e.staying() {
			e.stays()
		}
		for id := range d.first {
			if q := e.questionByID(id); q != nil && q.open() {
				q.Shown = false
			}
		}
		return nil
	})
	if err != nil {
		d.c.log.Warn("what has not followed stays on record as if it had", "call", d.id, "err", err)
	}
}

// explain makes an [Error] of what stops a call that has not ended.
func (d *drive) explain(e *entry, err, detached error) error {
	maybe := e.mayHaveLeft()
	var known *Error
	switch {
	case errors.Is(err, errLost):
		return &Error{ID: d.id, Kind: ErrBusy, Err: err}
	case errors.As(err, &known):
		known.ID, known.MaybeDone = d.id, maybe
		return known
	case detached != nil:
		return &Error{ID: d.id, Kind: ErrDetached, MaybeDone: maybe, Reason: "the call is on disk; attach to it to go on", Err: detached}
	}
	return &Error{ID: d.id, Kind: ErrDetached, MaybeDone: maybe, Reason: "the call is on disk, and can go on once this is mended", Err: err}
}

// step does what comes next. Its error stops the driving, not the call.
func (d *drive) step() error {
	e := d.entry()
	if !time.Now().Before(e.Deadline) {
		if e.mayHaveLeft() {
			return d.unknown(errDeadline)
		}
		return d.end(outcome{State: Expired, Kind: "expired", Reason: "its deadline has passed"})
	}
	switch {
	case e.Stage == stageReady || e.staying():
		if e.CancelAsked && e.Maybe {
			return d.unknown(errCancelAsked)
		}
		if e.CancelAsked {
			return d.end(outcome{State: Cancelled, Kind: "cancelled", Reason: "nothing had been sent"})
		}
		if o := e.unvisited(); o != nil {
			return d.end(*o)
		}
		return d.send()
	case e.Stage == stageSent: // found so: the process that sent it has ended
		if e.CancelAsked || !d.resendable(e) {
			return d.unknown(errors.New("the process ended while the request was under way"))
		}
		return d.send()
	case e.Stage == stageAsking:
		return d.ask()
	case e.Stage == stageWatching:
		return d.watch()
	}
	return fmt.Errorf("the stage %q is not one of this release", e.Stage)
}

func (d *drive) end(o outcome) error {
	return d.update(context.WithoutCancel(d.ctx), func(e *entry) error {
		if !e.ended() {
			e.end(o)
		}
		return nil
	})
}

func (d *drive) unknown(err error) error {
	return d.end(outcome{State: Unknown, Kind: "unknown", Reason: err.Error() + ": look whether it was done before it is done again"})
}

// received takes a result in.
func (d *drive) received(l *link, raw json.RawMessage) error {
	e := d.entry()
	r, err := readReply(raw, d.can.tasks && l.modern, d.c.opts.Limits.Questions)
	if err == nil && r.asks != nil && !l.modern {
		err = invalid("input_required in a revision that does not have it")
	}
	if err != nil {
		return d.end(outcome{State: Failed, Kind: "invalid", Reason: err.Error()})
	}
	switch {
	case r.complete != nil:
		return d.end(outcome{State: Completed, Result: r.complete})
	case r.task != nil:
		d.noticed(r.task)
		return d.update(context.WithoutCancel(d.ctx), func(e *entry) error {
			e.Stage, e.Maybe, e.State, e.Questions, e.Task = stageWatching, false, nil, nil, newTask(r.task)
			return nil
		})
	}
	for _, q := range r.asks.questions {
		if !d.can.has(q.Kind) && (q.Kind == Sampling || q.Kind == Roots) {
			return d.end(outcome{State: Failed, Kind: "invalid", Reason: fmt.Sprintf("the server asks for %s, which was not declared", q.Kind)})
		}
	}
	only := e.StateOnly + 1
	if len(r.asks.questions) > 0 {
		only = 0
	}
	return d.come(context.WithoutCancel(d.ctx), func(e *entry) {
		e.Maybe = false
		e.Stage, e.Round, e.StateOnly, e.State, e.Questions = stageAsking, e.Round+1, only, r.asks.state, e.numbered(r.asks.questions)
	})
}

// tooMany stops a call whose server goes round and round.
func (d *drive) tooMany(why string) error {
	e := d.entry()
	return &Error{Kind: ErrRounds, Reason: why + "; attaching to the call gives it as much again", State: e.State, Questions: e.status().Open}
}

// pause waits, unless the call is to be cancelled.
func (d *drive) pause(wait time.Duration) error {
	t := time.NewTimer(max(0, min(wait, time.Until(d.entry().Deadline))))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-d.poke:
			if err := d.refresh(); err != nil {
				return err
			}
		case <-d.changed:
		}
		if d.entry().CancelAsked {
			return nil
		}
	}
}

// pauseAfter is how long to wait after so many failures: growing, spread out,
// and never less than the server asks for.
func pauseAfter(attempt int, asked time.Duration) time.Duration {
	p := min(firstPause<<min(attempt, 10), lastPause)
	return max(p/2+rand.N(p/2+1), asked)
}
