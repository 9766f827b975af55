package client

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	usualPoll    = 2 * time.Second        // where the server does not say
	leastPoll    = 100 * time.Millisecond // whatever the server says
	listenedPoll = 5 * time.Minute        // while a listen tells of the task
	grace        = 10 * time.Second       // after a task's end of life
	mostMissed   = 3                      // polls without an answer after that
	breath       = time.Second            // of a response, when something else is due
)

// A vigil is what a drive knows while it watches its task, over all of its
// connections: what the server's silence has put off stays put off when there
// is a new one.
type vigil struct {
	l     *link
	w     *watch
	still map[string]bool // what the latest poll still asks
	heard bool            // a listen tells of it

	connects, polls, cancels, answers repeat

	polled time.Time // when the latest tasks/get was sent
	heeded time.Time // when the latest that was answered was
	missed int       // attempts to ask after the task's end of life that failed, in a row
}

// A repeat is a request that is sent again until it is answered.
type repeat struct {
	fails int       // in a row
	after time.Time // not before that
}

func (r *repeat) due() bool { return !time.Now().Before(r.after) }

func (r *repeat) failed(asked, least time.Duration) {
	r.after = time.Now().Add(max(pauseAfter(r.fails, asked), least))
	r.fails++
}

// reached: the server has answered about the task. Nothing else ends what its
// silence has put off.
func (v *vigil) reached() {
	v.connects = repeat{}
	v.polls.fails, v.missed = 0, 0
}

// over reports whether the task has ended, or its time has; and the call's.
func (v *vigil) over(e *entry) bool {
	return e.ended() || !time.Now().Before(e.Deadline) || v.overdue(e)
}

// overdue reports whether the task has outlived itself, and the server was
// asked for it since: it has answered, or is silent again and again.
func (v *vigil) overdue(e *entry) bool {
	end := e.Task.EndOfLife
	return !end.IsZero() && time.Now().After(end.Add(grace)) && (!v.heeded.Before(end) || v.missed >= mostMissed)
}

// watch follows a task until it has ended, over as many connections as it
// takes.
func (d *drive) watch() error {
	v := new(vigil)
	defer d.withdraw()
	for {
		e := d.entry()
		switch {
		case !e.ended() && v.overdue(e):
			return d.end(outcome{State: Expired, Kind: "expired", Reason: "the task's time to live has passed, and the server has not said how it ended"})
		case v.over(e):
			return nil
		case e.CancelAsked: // nobody is asked for it any more
			d.withdraw()
		}
		var err error
		if v.connects.due() {
			err = d.follow(v)
		} else {
			err = d.await(nil, time.Until(sooner(v.connects.after, e.Deadline)))
		}
		if err != nil {
			return err
		}
	}
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// follow watches over one connection until that is lost. Each state comes by
// the server's notifications where it listens, and by polling where not.
func (d *drive) follow(v *vigil) error {
	l, done, err := d.reach()
	if err != nil {
		return d.unreachable(v, err)
	}
	defer done()
	e := d.entry()
	v.l, v.w, v.still = l, l.watcher.add(e.Task.ID), nil
	defer l.watcher.remove(v.w)
	if v.polls.after.IsZero() {
		v.polls.after = firstPoll(e)
	}
	for {
		if err := d.attend(v); err != nil {
			return err
		}
		e := d.entry()
		switch {
		case v.over(e):
			return nil
		case !l.alive():
			v.connects.failed(0, 0)
			return nil
		}
		if err := d.await(v.w.signal, time.Until(v.nextLook(e))); err != nil {
			return err
		}
	}
}

// reach returns a connection to a server that has tasks. Where several answer
// at one address, the one that answered first may be of another release: then
// the task has a connection of its own. done is to be called at its end.
func (d *drive) reach() (l *link, done func(), err error) {
	ctx, cancel := context.WithDeadline(d.ctx, d.entry().Deadline)
	defer cancel()
	if l, err = d.c.links.get(ctx); err != nil {
		return nil, nil, err
	}
	if l.tasks {
		return l, func() {}, nil
	}
	return d.another(ctx, l, func(l *link) bool { return l.tasks })
}

// another makes a connection of this call's own to a server that will do, where
// the one that all share is to one that will not. done is to be called at its
// end.
func (d *drive) another(ctx context.Context, shared *link, will func(*link) bool) (l *link, done func(), err error) {
	if shared.web.isHTTP() {
		if l, err = d.connectAlone(ctx); err != nil {
			return nil, nil, err
		}
		done = func() {
			if err := l.close(); err != nil {
				d.c.log.Debug("a connection was not closed", "err", err)
			}
		}
		if will(l) {
			return l, done, nil
		}
		done()
	}
	return nil, nil, &linkError{kind: notSent, err: errors.New("the server has begun to speak a revision without rounds and tasks")}
}

// connectAlone makes a connection that no other call uses.
func (d *drive) connectAlone(ctx context.Context) (*link, error) {
	m := &making{done: make(chan struct{})}
	d.c.wg.Go(func() {
		m.link, m.err = d.c.connect()
		close(m.done)
	})
	select {
	case <-m.done:
		return m.link, m.err
	case <-ctx.Done():
		d.c.wg.Go(func() {
			if <-m.done; m.err == nil {
				_ = m.link.close() // nobody needs it
			}
		})
		return nil, &linkError{kind: notSent, err: ctx.Err()}
	}
}

// unreachable has the next attempt to reach a server that works on a task wait:
// for as long as the task may live.
func (d *drive) unreachable(v *vigil, err error) error {
	after, err := d.fault(err)
	v.connects.failed(after, 0)
	if end := d.entry().Task.EndOfLife; !end.IsZero() && time.Now().After(end.Add(grace)) {
		v.missed++
	}
	return err
}

// fault sorts why a request about the task has no result: how long the server
// wants to be waited for, or an error that stops the driving.
func (d *drive) fault(err error) (after time.Duration, stop error) {
	var said *serverError
	var broke *linkError
	switch {
	case errors.Is(err, errMeanwhile):
		return 0, nil
	case errors.As(err, &said), errors.Is(err, ErrInvalidResponse):
		d.c.log.Warn("a task could not be asked for", "call", d.id, "err", err)
		return 0, nil
	case !errors.As(err, &broke):
		return 0, err
	case broke.kind == unauthorized:
		return 0, &Error{Kind: ErrUnauthorized, Reason: "give other credentials, and attach to the call", Err: err}
	}
	return broke.after, nil
}

// firstPoll keeps the first interval too. A task that this process has not
// seen begin is asked for at once, and one of which it is not known whether the
// answers have arrived.
func firstPoll(e *entry) time.Time {
	if first := e.Task.Since.Add(interval(e.Task)); first.After(time.Now()) && !e.unsure() {
		return first
	}
	return time.Now()
}

// unsure reports whether answers may have reached the server or not, which only
// a poll tells.
func (e *entry) unsure() bool {
	return slices.ContainsFunc(e.Questions, func(q question) bool { return q.Response != nil && q.Tried && !q.Acked && !q.Gone })
}

// interval is the server's, with up to a tenth more so that many tasks are not
// asked for at once.
func interval(t *taskState) time.Duration {
	p := t.Poll
	if p == 0 {
		p = usualPoll
	}
	p = max(p, leastPoll)
	return p + rand.N(p/10+1)
}

// nextLook is when something is due next.
func (v *vigil) nextLook(e *entry) time.Time {
	next := sooner(v.polls.after, e.Deadline)
	times := []time.Time{v.answers.after}
	if e.CancelAsked && !e.Task.Cancelled {
		times = append(times, v.cancels.after)
	}
	if end := e.Task.EndOfLife; !end.IsZero() {
		times = append(times, end, end.Add(grace+time.Millisecond))
	}
	for _, t := range times {
		if t.After(time.Now()) {
			next = sooner(next, t)
		}
	}
	return next
}

// attend does what is due: take what a listen has told, poll, ask and answer
// questions, cancel.
func (d *drive) attend(v *vigil) error {
	if raw := v.w.take(); raw != nil {
		if err := d.observed(v, raw, false); err != nil {
			return err
		}
	}
	v.reckon(d.entry())
	if !d.entry().ended() && v.polls.due() && v.l.alive() {
		if err := d.poll(v); err != nil {
			return err
		}
	}
	e := d.entry()
	switch {
	case e.ended():
		return nil
	case e.CancelAsked: // nobody is asked for it any more
		d.withdraw()
		if !e.Task.Cancelled && v.cancels.due() && v.l.alive() {
			return d.cancelTask(v)
		}
		return nil
	}
	if err := d.putQuestions(); err != nil {
		// Nobody is at what it asks: what it has been answered is sent all the
		// same.
		return errors.Join(d.sendAnswers(v), err)
	}
	return d.sendAnswers(v)
}

// reckon puts the next poll off while a listen tells of the task, and back when
// it has ended; a task that has outlived itself is asked for once more.
func (v *vigil) reckon(e *entry) {
	if e.ended() {
		return
	}
	now := time.Now()
	if heard := v.w.listened(); heard != v.heard {
		v.heard = heard
		next := now.Add(interval(e.Task))
		if heard && !e.unsure() {
			next = now.Add(max(listenedPoll, interval(e.Task)))
		}
		if v.polls.fails == 0 || next.After(v.polls.after) {
			v.polls.after = next
		}
	}
	if end := e.Task.EndOfLife; !end.IsZero() && !now.Before(end) && v.polled.Before(end) {
		v.polls.after = now
	}
}

// poll asks for the task.
func (d *drive) poll(v *vigil) error {
	sent := time.Now()
	raw, err := d.taskRequest(v, methodGet, nil)
	if errors.Is(err, errMeanwhile) {
		v.polls.after = time.Now().Add(interval(d.entry().Task))
		return nil
	}
	v.polled = sent
	if err != nil {
		return d.pollFailed(v, err)
	}
	v.reached()
	v.heeded = sent
	if err := d.observed(v, raw, true); err != nil {
		return err
	}
	if e := d.entry(); !e.ended() {
		v.polls.after = time.Now().Add(interval(e.Task))
		if v.heard {
			v.polls.after = time.Now().Add(max(listenedPoll, interval(e.Task)))
		}
	}
	return nil
}

// pollFailed: the server's word that it does not know the task is final.
// Anything else may be another instance's, or nobody's.
func (d *drive) pollFailed(v *vigil, err error) error {
	var said *serverError
	if errors.As(err, &said) && said.Code == codeInvalidParams {
		o := failedBy(said)
		o.Reason = "the server no longer knows the task: " + o.Reason
		return d.end(o)
	}
	after, err := d.fault(err)
	if err != nil {
		return err
	}
	least := interval(d.entry().Task)
	if end := d.entry().Task.EndOfLife; !end.IsZero() && !time.Now().Before(end) {
		least = 0
		if v.polled.After(end.Add(grace)) {
			v.missed++
		}
	}
	v.polls.failed(after, least)
	return nil
}

// errMeanwhile: something else was due about the task.
var errMeanwhile = errors.New("given up for something more urgent")

// taskRequest sends one request about the task. While it is under way, what
// others change is heard; a cancel, an answer or a new state of the task leave
// the response a little longer, and then it is given up with errMeanwhile.
func (d *drive) taskRequest(v *vigil, method string, more map[string]json.RawMessage) (json.RawMessage, error) {
	e := d.entry()
	params, err := marshal(map[string]string{"taskId": e.Task.ID})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(d.ctx, d.patience(e), errSilent)
	defer cancel()
	type response struct {
		raw json.RawMessage
		err error
	}
	got := make(chan response, 1)
	d.c.wg.Go(func() {
		raw, err := v.l.request(ctx, &exchange{name: e.Task.ID}, outgoing{method: method, params: params, more: more, capabilities: d.can}, nil)
		got <- response{raw, err}
	})
	var enough <-chan time.Time
	woken := false
	defer func() {
		if woken { // it is for the loop to take it up
			v.w.tell()
		}
	}()
	for {
		select {
		case r := <-got:
			return r.raw, r.err
		case <-enough:
			cancel()
			if r := <-got; r.err == nil {
				return r.raw, nil
			}
			return nil, errMeanwhile
		case <-v.w.signal:
		case <-d.changed:
		case <-d.poke:
			if err := d.refresh(); err != nil {
				cancel()
				<-got
				return nil, err
			}
		}
		woken = true
		if enough == nil && d.urgent(v, method) {
			enough = time.After(breath)
		}
	}
}

// patience is how long a request about the task may be silent.
func (d *drive) patience(e *entry) time.Duration {
	most := min(d.c.opts.Limits.Request, time.Until(e.Deadline))
	if end := e.Task.EndOfLife; !end.IsZero() {
		most = min(most, max(time.Until(end.Add(grace)), grace))
	}
	return most
}

// urgent reports whether something is due that a request under way keeps from
// being done.
func (d *drive) urgent(v *vigil, method string) bool {
	e := d.entry()
	switch {
	case v.w.waits():
		return true
	case e.CancelAsked:
		return method != methodCancel && !e.Task.Cancelled && v.cancels.due()
	}
	return method == methodGet && len(v.answersDue(e)) > 0
}
