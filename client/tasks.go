package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"

	usualPoll    = 2 * time.Second        // where the server does not say
	leastPoll    = 100 * time.Millisecond // whatever the server says
	listenedPoll = 5 * time.Minute        // while a listen tells of the task
	grace        = 10 * time.Second       // after a task's end of life

	codeInvalidParams  = -32602
	codeMethodNotFound = -32601
)

func newTask(m *taskMessage) *taskState {
	t := &taskState{ID: m.ID, Since: time.Now()}
	t.take(m)
	return t
}

func (t *taskState) take(m *taskMessage) {
	t.Status, t.Message = m.Status, m.Message
	if m.Poll > 0 {
		t.Poll = m.Poll
	}
	if t.EndOfLife = (time.Time{}); m.TTL != nil {
		t.EndOfLife = t.Since.Add(*m.TTL)
	}
}

// A vigil is what a drive knows while it watches its task.
type vigil struct {
	l     *link
	w     *watch
	next  time.Time       // of the next tasks/get
	fails int             // in a row
	asked bool            // it was polled after the end of its life
	heard bool            // a listen tells of it
	still map[string]bool // what the latest poll still asks
}

// watch follows a task until it has ended, or the connection has. Each state
// comes by the server's notifications where it listens, and by polling where
// not.
func (d *drive) watch() error {
	l, err := d.c.links.get(d.ctx)
	if err != nil {
		return d.unreachable(err)
	}
	d.outages = 0
	e := d.entry()
	v := &vigil{l: l, w: l.watcher.add(e.Task.ID), next: d.firstPoll(e)}
	defer l.watcher.remove(v.w)
	defer d.withdraw()
	for {
		if err := d.attend(v); err != nil {
			return err
		}
		e := d.entry()
		switch {
		case e.ended() || !time.Now().Before(e.Deadline) || !l.alive():
			return nil
		case d.overdue(e, v):
			return d.end(outcome{State: Expired, Kind: "expired", Reason: "the task's time to live has passed, and the server has not said how it ended"})
		}
		if err := d.await(v.w.signal, time.Until(d.nextLook(e, v))); err != nil {
			return err
		}
	}
}

// unreachable waits before the next attempt to reach a server that works on a
// task: for as long as the task may live.
func (d *drive) unreachable(err error) error {
	var broke *linkError
	if !errors.As(err, &broke) {
		return err
	}
	if broke.kind == unauthorized {
		return &Error{Kind: ErrUnauthorized, Reason: "give other credentials, and attach to the call", Err: err}
	}
	d.outages++
	return d.pause(pauseAfter(d.outages-1, broke.after))
}

// firstPoll keeps the first interval too. A task that this process has not
// seen begin is asked for at once, and one of which it is not known whether the
// answers have arrived.
func (d *drive) firstPoll(e *entry) time.Time {
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

func (d *drive) nextLook(e *entry, v *vigil) time.Time {
	next := v.next
	ends := []time.Time{e.Deadline}
	if end := e.Task.EndOfLife; !end.IsZero() {
		ends = append(ends, end, end.Add(grace+time.Millisecond))
	}
	for _, end := range ends {
		if end.Before(next) && end.After(time.Now()) {
			next = end
		}
	}
	return next
}

// overdue reports whether the task has outlived itself and was asked for since.
func (d *drive) overdue(e *entry, v *vigil) bool {
	return v.asked && !e.Task.EndOfLife.IsZero() && time.Now().After(e.Task.EndOfLife.Add(grace))
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
	if e := d.entry(); !e.ended() && !time.Now().Before(v.next) {
		if err := d.poll(v); err != nil {
			return err
		}
	}
	if d.entry().ended() {
		return nil
	}
	if e := d.entry(); e.CancelAsked && !e.Task.Cancelled {
		if err := d.cancelTask(v); err != nil || d.entry().ended() {
			return err
		}
	}
	if d.entry().CancelAsked { // nobody is asked for it any more
		d.withdraw()
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
		if v.next = now.Add(interval(e.Task)); heard && !e.unsure() {
			v.next = now.Add(max(listenedPoll, interval(e.Task)))
		}
	}
	if end := e.Task.EndOfLife; !end.IsZero() && !now.Before(end) && !v.asked {
		v.next = now
	}
}

// poll asks for the task.
func (d *drive) poll(v *vigil) error {
	raw, err := d.taskRequest(v, methodGet, nil)
	if err != nil {
		return d.pollFailed(v, err)
	}
	v.fails = 0
	e := d.entry()
	v.asked = v.asked || !e.Task.EndOfLife.IsZero() && time.Now().After(e.Task.EndOfLife)
	if err := d.observed(v, raw, true); err != nil {
		return err
	}
	if e := d.entry(); !e.ended() {
		v.next = time.Now().Add(interval(e.Task))
		if v.heard {
			v.next = time.Now().Add(max(listenedPoll, interval(e.Task)))
		}
	}
	return nil
}

// taskRequest sends one request about the task.
func (d *drive) taskRequest(v *vigil, method string, more map[string]json.RawMessage) (json.RawMessage, error) {
	e := d.entry()
	params, err := marshal(map[string]string{"taskId": e.Task.ID})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(d.ctx, d.c.opts.Limits.Request, errSilent)
	defer cancel()
	return v.l.request(ctx, &exchange{name: e.Task.ID}, outgoing{method: method, params: params, more: more, capabilities: d.can}, nil)
}

// pollFailed decides what a tasks/* request without a result means.
func (d *drive) pollFailed(v *vigil, err error) error {
	var said *serverError
	var broke *linkError
	v.asked = true
	switch {
	case errors.As(err, &said) && (said.Code == codeInvalidParams || said.Code == codeMethodNotFound):
		o := failedBy(said)
		o.Reason = "the server no longer knows the task: " + o.Reason
		return d.end(o)
	case errors.As(err, &said), errors.Is(err, ErrInvalidResponse):
		d.c.log.Warn("a task could not be asked for", "call", d.id, "err", err)
	case !errors.As(err, &broke):
		return err
	case broke.kind == unauthorized:
		return &Error{Kind: ErrUnauthorized, Reason: "give other credentials, and attach to the call", Err: err}
	}
	wait := pauseAfter(v.fails, 0)
	if broke != nil {
		wait = pauseAfter(v.fails, broke.after)
	}
	v.fails++
	v.next = time.Now().Add(max(wait, interval(d.entry().Task)))
	return nil
}

// observed takes a state of the task in. What it changes is on disk before
// anything follows from it; a mere report is not kept.
func (d *drive) observed(v *vigil, raw json.RawMessage, polled bool) error {
	m, err := readTask(raw, d.c.opts.Limits.Questions)
	if err != nil {
		return d.end(outcome{State: Failed, Kind: "invalid", Reason: err.Error()})
	}
	e := d.entry()
	if m.ID != e.Task.ID {
		return d.end(outcome{State: Failed, Kind: "invalid", Reason: "the server told of another task"})
	}
	switch m.Status {
	case "completed":
		if m.Result == nil {
			return d.end(outcome{State: Failed, Kind: "invalid", Reason: "a completed task without a result"})
		}
		r, err := readReply(m.Result, false, 0)
		if err != nil || r.complete == nil {
			return d.end(outcome{State: Failed, Kind: "invalid", Reason: "the result of a completed task is none"})
		}
		return d.end(outcome{State: Completed, Result: m.Result})
	case "failed":
		if m.Error == nil {
			return d.end(outcome{State: Failed, Kind: "invalid", Reason: "a failed task without an error"})
		}
		o := failedBy(m.Error)
		if m.Message != "" {
			o.Reason = m.Message
		}
		return d.end(o)
	case "cancelled":
		return d.end(outcome{State: Cancelled, Kind: "cancelled", Reason: m.Message})
	}
	if polled {
		v.still = map[string]bool{}
		for _, q := range m.Questions {
			v.still[q.Key] = true
		}
	}
	next := e.clone()
	if !next.merge(m, polled) {
		d.reported(m.Message)
		d.tell()
		return nil
	}
	d.reported(m.Message)
	return d.update(d.ctx, func(e *entry) error { e.merge(m, polled); return nil })
}

// merge takes a state of a live task into the entry, and reports whether that
// changes anything that is kept. A key is the same question for the whole life
// of a task: it is asked and answered once.
func (e *entry) merge(m *taskMessage, polled bool) (changed bool) {
	before := *e.Task
	e.Task.take(m)
	changed = before.Status != e.Task.Status || before.Poll != e.Task.Poll || !before.EndOfLife.Equal(e.Task.EndOfLife)
	asked := map[string]bool{}
	for _, q := range m.Questions {
		asked[q.Key] = true
		if known := e.question(q.Key); known == nil {
			e.Questions = append(e.Questions, q)
			changed = true
		} else if known.Gone && known.Response == nil {
			known.Gone, changed = false, true
		}
	}
	for i := range e.Questions {
		q := &e.Questions[i]
		switch {
		case asked[q.Key]:
		case q.open():
			q.Gone, changed = true, true // answered elsewhere, or given up
		case q.Response != nil && !q.Acked && q.Tried && polled:
			q.Acked, changed = true, true // it arrived; its acknowledgement was lost
		}
	}
	return changed
}

// sendAnswers sends what has been answered and not acknowledged. Answers that
// may have arrived already (Tried, found after a restart) are sent again only
// if a poll says that they have not.
func (d *drive) sendAnswers(v *vigil) error {
	e := d.entry()
	var due []question
	for _, q := range e.Questions {
		if q.Response != nil && !q.Acked && !q.Gone && (!q.Tried || v.still[q.Key]) {
			due = append(due, q)
		}
	}
	if len(due) == 0 {
		return nil
	}
	mark := func(f func(*question)) error {
		return d.update(d.ctx, func(e *entry) error {
			for _, sent := range due {
				if q := e.question(sent.Key); q != nil && q.Response != nil {
					f(q)
				}
			}
			return nil
		})
	}
	if err := mark(func(q *question) { q.Tried = true }); err != nil {
		return err
	}
	v.still = nil
	_, err := d.taskRequest(v, methodUpdate, map[string]json.RawMessage{"inputResponses": responses(due)})
	var said *serverError
	switch {
	case err == nil:
		v.next = time.Now() // it goes on: see how
		return mark(func(q *question) { q.Acked = true })
	case errors.As(err, &said) && said.Code == codeInvalidParams:
		return d.answersRefused(due, said, v)
	}
	return d.pollFailed(v, err)
}

// answersRefused: the server has stored none of them, or does not know the
// task, which the next poll tells. Each may be given once more.
func (d *drive) answersRefused(due []question, said *serverError, v *vigil) error {
	v.next = time.Now()
	for _, q := range due {
		if q.Refused != "" {
			return &Error{Kind: ErrNeedsInput, Reason: "the server does not take the answer to " + fmt.Sprintf("%q", cut(q.Key)), Code: said.Code, Data: said.Data, Err: said}
		}
	}
	return d.update(d.ctx, func(e *entry) error {
		for _, refused := range due {
			if q := e.question(refused.Key); q != nil {
				q.Response, q.By, q.Tried, q.Refused = nil, "", false, said.Message
			}
		}
		return nil
	})
}

// cancelTask tells the server, which acknowledges whatever comes of it.
func (d *drive) cancelTask(v *vigil) error {
	if _, err := d.taskRequest(v, methodCancel, nil); err != nil {
		return d.pollFailed(v, err)
	}
	v.next = time.Now()
	return d.update(d.ctx, func(e *entry) error { e.Task.Cancelled = true; return nil })
}
