package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// resendable reports whether the last request may be sent again although it may
// have been done: only to a server that knows it again, by the idempotency key
// of a first request, or a retry's state, and only for as long as it keeps them.
func (d *drive) resendable(e *entry) bool {
	return e.KeysKept > 0 && (e.Round == 0 || e.State != nil) && !e.FirstSent.IsZero() &&
		time.Since(e.FirstSent) >= 0 && time.Since(e.FirstSent) < e.KeysKept
}

// send sends the first request, or a retry, and takes its result in.
func (d *drive) send() error {
	began := time.Now()
	maybe := d.entry().mayHaveLeft() // in an attempt before
	for attempt := 0; ; attempt++ {
		l, raw, err := d.attempt()
		if err == nil {
			return d.received(l, raw)
		}
		if pages := d.required(l, err); pages != nil && !maybe {
			return d.visit(pages, err)
		}
		if errors.Is(err, errCancelAsked) && !sent(err) {
			return nil // step ends it
		}
		var broke *linkError
		if errors.As(err, &broke) && broke.kind == lost && !maybe {
			maybe = true
			if err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error { e.Maybe = true; return nil }); err != nil {
				return err
			}
		}
		wait, err := d.fell(err, maybe, attempt, began)
		if err != nil || d.entry().ended() {
			return err
		}
		if err := d.pause(wait); err != nil {
			return err
		}
		if e := d.entry(); e.CancelAsked || !time.Now().Before(e.Deadline) {
			return nil // step ends it
		}
	}
}

// sent reports whether an error is of a request, and not of what comes before.
func sent(err error) bool {
	var broke *linkError
	return errors.As(err, &broke)
}

// attempt commits that the request may have left, and sends it.
func (d *drive) attempt() (*link, json.RawMessage, error) {
	l, err := d.connected()
	if err != nil {
		return nil, nil, err
	}
	if d.entry().Round > 0 && !l.modern {
		var done func()
		if l, done, err = d.another(d.ctx, l, func(l *link) bool { return l.modern }); err != nil {
			return nil, nil, err
		}
		defer done()
	}
	switch e := d.entry(); {
	case e.staying() && e.CancelAsked:
		return nil, nil, errCancelAsked
	case e.staying() && e.via == l:
		if err := d.current(); err != nil {
			return nil, nil, err
		}
	case e.Stage == stageReady || e.staying():
		if err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error {
			if e.CancelAsked {
				return errCancelAsked
			}
			e.leaves(l)
			return nil
		}); err != nil {
			return nil, nil, err
		}
	default:
		if err := d.refresh(); err != nil { // not after another process has taken it over
			return nil, nil, err
		}
		if l.keys == 0 || !d.resendable(d.entry()) {
			return nil, nil, &linkError{kind: lost, err: errors.New("its server does not say that it would know the request again")}
		}
	}
	e, err := d.left(l)
	if err != nil {
		return nil, nil, err
	}
	raw, err := d.exchange(l, l.exchangeOf(e), d.outgoing(e))
	var said *serverError
	if errors.As(err, &said) && said.Code == codeHeaderMismatch && l.inHeaders(e) && l.learn(d.ctx, e.Name) {
		// Refused before it was looked at, for headers that only the tool's
		// schema tells.
		raw, err = d.exchange(l, l.exchangeOf(e), d.outgoing(e))
	}
	return l, raw, err
}

// connected returns the connection, for which a call that is to be cancelled does
// not wait: nothing leaves any more.
func (d *drive) connected() (*link, error) {
	l, m, err := d.c.links.begin()
	if l != nil || err != nil {
		return l, err
	}
	late := time.NewTimer(time.Until(d.entry().Deadline))
	defer late.Stop()
	for {
		if d.entry().CancelAsked {
			return nil, errCancelAsked
		}
		select {
		case <-m.done:
			return m.link, m.err
		case <-late.C:
			return nil, &linkError{kind: notSent, err: errDeadline}
		case <-d.ctx.Done():
			return nil, &linkError{kind: notSent, err: d.ctx.Err()}
		case <-d.changed:
		case <-d.poke:
			if err := d.refresh(); err != nil {
				return nil, err
			}
		}
	}
}

// left notes that the request leaves now, if it has not: on disk it has.
func (d *drive) left(l *link) (*entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k.e.staying() {
		switch {
		case d.k.e.CancelAsked, d.cancelling.Load() > 0:
			return nil, errCancelAsked
		case d.ctx.Err() != nil:
			return nil, &linkError{kind: notSent, err: d.ctx.Err()}
		case !time.Now().Before(d.k.e.Deadline):
			return nil, &linkError{kind: notSent, err: errDeadline}
		case !l.alive():
			return nil, &linkError{kind: notSent, err: errors.New("the connection is lost")}
		}
	}
	e := d.k.e.clone()
	e.via, d.k.e = nil, e
	return e, nil
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
		if q.Response != nil && !q.Live {
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
	l.live.ended(d, err)
	d.mu.Lock()
	d.clock = nil
	d.mu.Unlock()
	d.work += w.end()
	return raw, err
}

func (d *drive) awaitCancel(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		d.withdrawAnswered()
		if d.entry().CancelAsked {
			cancel(errCancelAsked)
			return
		}
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
		return 0, d.refusedBy(said, maybe)
	case errors.Is(err, ErrInvalidResponse):
		return 0, d.end(outcome{State: Failed, Kind: "invalid", Reason: err.Error()})
	case !errors.As(err, &broke):
		return 0, err
	}
	if !maybe && d.entry().Stage == stageSent {
		if err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error { e.stays(); return nil }); err != nil {
			return 0, err
		}
	}
	switch {
	case maybe && errors.Is(err, errCancelAsked):
		return 0, d.unknown(err)
	case d.ctx.Err() != nil: // detached
		return 0, d.ctx.Err()
	case !maybe && d.entry().CancelAsked: // step ends it
		return 0, nil
	case broke.kind == unauthorized:
		return 0, &Error{Kind: ErrUnauthorized, Reason: "give other credentials, and attach to the call", Err: broke}
	case maybe && !d.resendable(d.entry()):
		return 0, d.unknown(err)
	case errors.Is(err, errWork):
		return 0, d.tooMany(errWork.Error())
	case time.Since(began) >= d.c.opts.Limits.Outage:
		return 0, &Error{Kind: ErrUnreachable, Reason: "the call is on disk, and can go on once this is mended", Err: broke}
	}
	return pauseAfter(attempt, broke.after), nil
}

// refusedBy takes the server's word in that there is no result.
func (d *drive) refusedBy(said *serverError, maybe bool) error {
	switch {
	case said.Status != 0 && maybe: // whoever said so need not know of the attempt before
		return d.unknown(said)
	case said.Code == codeMissingCapability:
		// Nothing was done, by this attempt: with somebody who can answer, it
		// can be.
		if !maybe {
			if err := d.update(context.WithoutCancel(d.ctx), func(e *entry) error { e.stays(); return nil }); err != nil {
				return err
			}
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
