package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"

	codeInvalidParams = -32602
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

// noticed logs what of a task cannot be meant.
func (d *drive) noticed(m *taskMessage) {
	if len(m.Odd) > 0 {
		d.c.log.Warn("what a server says of its task is not understood, and ignored", "call", d.id, "members", m.Odd)
	}
}

// observed takes a state of the task in. What it changes is on disk before
// anything follows from it; a mere report is not kept.
func (d *drive) observed(v *vigil, raw json.RawMessage, polled bool) error {
	m, err := readTask(raw, d.c.opts.Limits.Questions)
	if err != nil {
		return d.end(outcome{State: Failed, Kind: "invalid", Reason: err.Error()})
	}
	d.noticed(m)
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
	if !d.mayAsk(next.Asked - e.Asked) {
		return d.tooMany("the task has asked more than Limits.Rounds times Limits.Questions")
	}
	d.reported(m.Message)
	return d.come(d.ctx, func(e *entry) { e.merge(m, polled) })
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
			e.Questions, changed = append(e.Questions, e.numbered([]question{q})...), true
		} else if known.Gone { // anew: what was answered to the one before is not meant for it
			*known, changed = e.numbered([]question{q})[0], true
		}
	}
	for i := range e.Questions {
		q := &e.Questions[i]
		switch {
		case asked[q.Key]:
		case q.open():
			changed = true
			q.gone() // answered elsewhere, or given up
		case q.Response != nil && !q.Acked && q.Tried && polled:
			changed = true
			q.acked() // it arrived; its acknowledgement was lost
		}
	}
	return changed
}

// sendAnswers sends what has been answered and not acknowledged. Answers that
// may have arrived already (Tried, found after a restart) are sent again only
// if a poll says that they have not.
func (d *drive) sendAnswers(v *vigil) error {
	due := v.answersDue(d.entry())
	if len(due) == 0 || !v.l.alive() {
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
		v.reached()
		v.answers, v.polls.after = repeat{}, time.Now() // it goes on: see how
		return mark((*question).acked)
	case errors.As(err, &said) && said.Code == codeInvalidParams:
		v.reached()
		return d.answersRefused(due, said, v)
	}
	// They may have arrived: a poll tells whether the task still asks.
	after, err := d.fault(err)
	v.answers.failed(after, interval(d.entry().Task))
	v.polls.after = v.answers.after
	return err
}

// answersDue are the answers that are to be sent now.
func (v *vigil) answersDue(e *entry) (due []question) {
	if !v.answers.due() {
		return nil
	}
	for _, q := range e.Questions {
		if q.Response != nil && !q.Acked && !q.Gone && (!q.Tried || v.still[q.Key]) {
			due = append(due, q)
		}
	}
	return due
}

// answersRefused: the server has stored none of them, or does not know the
// task, which the next poll tells. Each may be given once more.
func (d *drive) answersRefused(due []question, said *serverError, v *vigil) error {
	v.polls.after = time.Now()
	for _, q := range due {
		if q.Refused != "" {
			return &Error{Kind: ErrNeedsInput, Reason: "the server does not take the answer to " + fmt.Sprintf("%q", cut(q.Key)), Code: said.Code, Data: said.Data, Err: said}
		}
	}
	return d.update(d.ctx, func(e *entry) error {
		for _, refused := range due {
			if q := e.question(refused.Key); q != nil {
				q.Response, q.By, q.Tried, q.Refused = nil, "", false, strings.ToValidUTF8(said.Message[:min(len(said.Message), 1<<10)], "?")
			}
		}
		return nil
	})
}

// cancelTask tells the server, which acknowledges whatever comes of it. One
// that says no has been told: what becomes of the task, polls tell.
func (d *drive) cancelTask(v *vigil) error {
	_, err := d.taskRequest(v, methodCancel, nil)
	var said *serverError
	switch {
	case err == nil:
		v.reached()
	case errors.As(err, &said) && said.Status == 0:
		d.c.log.Warn("the server does not cancel a task", "call", d.id, "err", err)
	default:
		after, err := d.fault(err)
		v.cancels.failed(after, 0)
		return err
	}
	v.polls.after = time.Now()
	return d.update(d.ctx, func(e *entry) error { e.Task.Cancelled = true; return nil })
}
