package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstPause = 500 * time.Millisecond // after a failure; doubles
	lastPause  = 30 * time.Second

	codeMissingCapability = -32021
	codeHeaderMismatch    = -32020
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

	// Of the driving goroutine.
	rounds  int           // sent in this attachment
	work    time.Duration // waited for the server in this attachment
	outages int           // attempts in a row to reach the server of a task

	mu     sync.Mutex                    // guards what follows
	k      kept                          // the entry as it is on disk
	live   progress                      // the latest report
	asking map[string]context.CancelFunc // who is at a question, by its id
	failed map[string]error              // questions that the Answerer could not answer
	clock  *stopwatch                    // of the request under way; nil: none
	result *Result
	err    error
}

func newDrive(c *Client, k kept) *drive {
	d := &drive{
		c: c, id: k.e.ID, k: k, done: make(chan struct{}), changed: make(chan struct{}, 1),
		can: c.capabilities(k.e.Name), asking: map[string]context.CancelFunc{}, failed: map[string]error{}, poke: k.pokes(),
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
		d.c.opts.Memory.saw(d.id, d.c.opts.Limits.Keep)
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
	k, err := d.c.opts.Memory.update(ctx, d.k, f)
	d.k = k
	d.mu.Unlock()
	if err == nil {
		d.tell()
	}
	return err
}

// refresh reads what another process may have changed. Errors: errLost,
// ErrNotFound if that has forgotten the call.
func (d *drive) refresh() error {
	d.mu.Lock()
	k, err := d.c.opts.Memory.reload(d.ctx, d.k)
	d.k = k
	d.mu.Unlock()
	if err == nil {
		d.tell()
	}
	return err
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
	d.stop()
	d.mu.Lock()
	k := d.k
	e := k.e
	if e.ended() {
		d.result, d.err = e.result()
	} else {
		d.err = d.explain(e, err)
	}
	d.mu.Unlock()
	d.c.opts.Memory.release(k)
	d.c.gone(d)
	d.tell()
	close(d.done)
}

// explain makes an [Error] of what stops a call that has not ended.
func (d *drive) explain(e *entry, err error) error {
	var known *Error
	switch {
	case errors.Is(err, errLost):
		return &Error{ID: d.id, Kind: ErrBusy, Err: err}
	case errors.As(err, &known):
		known.ID = d.id
		return known
	case d.ctx.Err() != nil:
		return &Error{ID: d.id, Kind: ErrDetached, Reason: "the call is on disk; attach to it to go on", Err: d.ctx.Err()}
	}
	return &Error{ID: d.id, Kind: ErrDetached, Reason: "the call is on disk, and can go on once this is mended", Err: err}
}

// step does what comes next. Its error stops the driving, not the call.
func (d *drive) step() error {
	e := d.entry()
	if !time.Now().Before(e.Deadline) {
		if e.Stage == stageSent {
			return d.unknown(errDeadline)
		}
		return d.end(outcome{State: Expired, Kind: "expired", Reason: "its deadline has passed"})
	}
	switch e.Stage {
	case stageReady:
		if e.CancelAsked {
			return d.end(outcome{State: Cancelled, Kind: "cancelled", Reason: "nothing had been sent"})
		}
		return d.send()
	case stageSent: // found so: the process that sent it has ended
		if e.CancelAsked || !d.resendable(e) {
			return d.unknown(errors.New("the process ended while the request was under way"))
		}
		return d.send()
	case stageAsking:
		return d.ask()
	case stageWatching:
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

// resendable reports whether the last request may be sent again although it may
// have been done: only to a server that keeps idempotency keys, and only for as
// long as it does.
func (d *drive) resendable(e *entry) bool {
	kept := d.c.opts.KeysKept
	if kept == 0 {
		l, err := d.c.links.get(d.ctx)
		if err != nil {
			return true // asked again before it is sent
		}
		kept = l.keys
	}
	return d.mayResend(kept, e)
}

// send sends the first request, or a retry, and takes its result in.
func (d *drive) send() error {
	began := time.Now()
	maybe := d.entry().Stage == stageSent // an attempt may have been done
	for attempt := 0; ; attempt++ {
		l, raw, err := d.attempt()
		if err == nil {
			return d.received(l, raw)
		}
		var broke *linkError
		if errors.As(err, &broke) && broke.kind == lost {
			maybe = true
		}
		wait, err := d.fell(err, maybe, attempt, began)
		if err != nil || d.entry().ended() {
			return err
		}
		if err := d.pause(wait); err != nil {
			return err
		}
		if d.entry().CancelAsked {
			return nil
		}
	}
}

// attempt commits that the request may have left, and sends it.
func (d *drive) attempt() (*link, json.RawMessage, error) {
	l, err := d.c.links.get(d.ctx)
	if err != nil {
		return nil, nil, err
	}
	if d.entry().Stage == stageSent {
		if err := d.refresh(); err != nil { // not after another process has taken it over
			return nil, nil, err
		}
		if !d.mayResend(l.keys, d.entry()) {
			return nil, nil, &linkError{kind: lost, err: errors.New("its server does not say that it would know the request again")}
		}
	}
	if d.entry().Stage == stageReady {
		if err := d.update(d.ctx, func(e *entry) error {
			if e.Stage = stageSent; e.FirstSent.IsZero() {
				e.FirstSent = time.Now()
			}
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	e := d.entry()
	raw, err := d.exchange(l, l.exchangeOf(e), d.outgoing(e))
	var said *serverError
	if errors.As(err, &said) && said.Code == codeHeaderMismatch && l.inHeaders(e) && l.learn(d.ctx, e.Name) {
		// Refused before it was looked at, for headers that only the tool's
		// schema tells.
		raw, err = d.exchange(l, l.exchangeOf(e), d.outgoing(e))
	}
	return l, raw, err
}

func (d *drive) mayResend(kept time.Duration, e *entry) bool {
	return kept > 0 && !e.FirstSent.IsZero() && time.Since(e.FirstSent) < kept
}

// outgoing is the request that the entry is at: the original params, and in a
// retry the answers to this round and its state, if there was one.
func (d *drive) outgoing(e *entry) outgoing {
	o := outgoing{method: e.Method, params: e.Params, capabilities: d.can}
	if e.Round == 0 {
		o.key = e.Key
		return o
	}
	o.more = map[string]json.RawMessage{}
	if e.State != nil {
		o.more["requestState"], _ = marshal(*e.State) // no string fails
	}
	if len(e.Questions) > 0 {
		o.more["inputResponses"] = responses(e.Questions)
	}
	return o
}

// responses is an InputResponses map.
func responses(questions []question) json.RawMessage {
	out := json.RawMessage("{}")
	for _, q := range questions {
		if q.Response != nil {
			out = addMember(out, q.Key, q.Response)
		}
	}
	return out
}

var errSilent = errors.New("the server was silent for Limits.Request")
var errWork = errors.New("Limits.Work is used up")
var errCancelAsked = errors.New("it was broken off by its caller")

// exchange sends a request of the call and waits for its response, within the
// time that the server has: what people take for live questions does not count.
func (d *drive) exchange(l *link, x *exchange, o outgoing) (json.RawMessage, error) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	e := d.entry()
	w := startStopwatch(d.c.opts.Limits.Request, d.c.opts.Limits.Work-d.work, time.Until(e.Deadline), cancel)
	d.mu.Lock()
	d.clock = w
	d.mu.Unlock()
	l.live.began(d)
	watching := make(chan struct{})
	d.c.wg.Go(func() { // a cancel that another process asks for breaks it off
		defer close(watching)
		d.awaitCancel(ctx, cancel)
	})
	raw, err := l.request(ctx, x, o, d.heard)
	cancel(nil)
	<-watching
	l.live.ended(d)
	d.mu.Lock()
	d.clock = nil
	d.mu.Unlock()
	d.work += w.end()
	return raw, err
}

func (d *drive) awaitCancel(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.poke:
			if err := d.refresh(); err != nil {
				cancel(err)
				return
			}
		case <-d.changed:
		}
		if d.entry().CancelAsked {
			cancel(errCancelAsked)
			return
		}
	}
}

// heard takes a report of progress. Reports that go backwards are ignored.
func (d *drive) heard(p progress) {
	d.mu.Lock()
	if p.Done >= d.live.Done {
		d.live = p
	}
	if d.clock != nil {
		d.clock.heard()
	}
	d.mu.Unlock()
	d.tell()
}

// reported takes what a task says of itself, which is newer than what a report
// said before it was one.
func (d *drive) reported(message string) {
	d.mu.Lock()
	d.live.Message = message
	d.mu.Unlock()
}

// fell decides what a request without a result means: an end of the call, a
// stop of the driving (an error), or another attempt after a while. maybe: this
// attempt or one before it may have been done.
func (d *drive) fell(err error, maybe bool, attempt int, began time.Time) (time.Duration, error) {
	var said *serverError
	var broke *linkError
	switch {
	case errors.Is(err, errLost):
		return 0, errLost
	case errors.As(err, &said):
		return 0, d.refusedBy(said)
	case errors.Is(err, ErrInvalidResponse):
		return 0, d.end(outcome{State: Failed, Kind: "invalid", Reason: err.Error()})
	case !errors.As(err, &broke):
		return 0, err
	}
	if !maybe && d.entry().Stage == stageSent {
		if err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error { e.Stage = stageReady; return nil }); err != nil {
			return 0, err
		}
	}
	switch {
	case maybe && errors.Is(err, errCancelAsked):
		return 0, d.unknown(err)
	case d.ctx.Err() != nil: // detached
		return 0, d.ctx.Err()
	case broke.kind == unauthorized:
		return 0, &Error{Kind: ErrUnauthorized, Reason: "give other credentials, and attach to the call", Err: broke}
	case maybe && !d.resendable(d.entry()):
		return 0, d.unknown(err)
	case errors.Is(err, errWork):
		return 0, d.tooMany(errWork.Error())
	case time.Since(began) >= d.c.opts.Limits.Outage:
		return 0, &Error{Kind: ErrUnreachable, Reason: "try again later: the call is on disk", Err: broke}
	}
	return pauseAfter(attempt, broke.after), nil
}

// refusedBy takes a JSON-RPC error in.
func (d *drive) refusedBy(said *serverError) error {
	if said.Code == codeMissingCapability && d.entry().Task == nil {
		// Nothing was done: with somebody who can answer, it can be.
		if err := d.update(d.ctx, func(e *entry) error {
			e.Stage = stageReady
			return nil
		}); err != nil {
			return err
		}
		return &Error{Kind: ErrNeedsInput, Reason: "the server has to ask, and " + errNobody.Error(), Code: said.Code, Data: said.Data, Err: said}
	}
	return d.end(failedBy(said))
}

func failedBy(said *serverError) outcome {
	o := outcome{State: Failed, Kind: "failed", Reason: said.Error(), Code: said.Code, Data: said.Data}
	var data struct {
		Outcome string `json:"outcome"`
	}
	if unmarshal(said.Data, &data) == nil {
		o.Outcome = data.Outcome
	}
	if o.Outcome == "expired" {
		o.State, o.Kind = Expired, "expired"
	}
	return o
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
		return d.update(d.ctx, func(e *entry) error {
			e.Stage, e.State, e.Questions, e.Task = stageWatching, nil, nil, newTask(r.task)
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
	return d.update(d.ctx, func(e *entry) error {
		e.Stage, e.Round, e.StateOnly, e.State, e.Questions = stageAsking, e.Round+1, only, r.asks.state, r.asks.questions
		return nil
	})
}

// tooMany stops a call whose server goes round and round.
func (d *drive) tooMany(why string) error {
	e := d.entry()
	return &Error{Kind: ErrRounds, Reason: why + "; attaching to the call gives it as much again", State: e.State, Questions: e.status().Open}
}

// pause waits, unless the call is to be cancelled.
func (d *drive) pause(wait time.Duration) error {
	t := time.NewTimer(min(wait, time.Until(d.entry().Deadline)))
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
