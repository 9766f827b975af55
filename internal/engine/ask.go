package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/record"
)

// ErrAskedTwice: a handler asked the same key twice in one run.
var ErrAskedTwice = errors.New("the same key was asked twice in one run")

// ErrFull: a call remembers as much as it may.
var ErrFull = errors.New("the call can remember no more")

// full says that the call remembers as much as it may. The caller holds mu.
func (r *Run) full() error {
	if n := r.call.Size(); r.e.Journal > 0 && n >= r.e.Journal {
		return fmt.Errorf("%w: %d bytes are over the limit JournalBytes (%d); ask less, or return less from effects", ErrFull, n, r.e.Journal)
	}
	return nil
}

// fail makes the run fail whatever its handler returns: it asks what it may
// not. The caller holds mu.
func (r *Run) fail(err error) error {
	if r.fault == nil {
		r.fault = err
	}
	return err
}

// Fault is what the handler did that it may not; nil: nothing.
func (r *Run) Fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// Ask returns what is known of a question, and that it is pending if nothing
// is. It does no I/O; what is new goes on record when the run pauses.
func (r *Run) Ask(q record.Question) (known record.Question, pending bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[q.Key] {
		return q, false, r.fail(fmt.Errorf("%w: %q", ErrAskedTwice, q.Key))
	}
	q.Digest = q.Sum()
	f := r.call.Look(q.Key, q.Digest).Found
	settled := f != nil && f.State != record.Open
	if !settled && r.maxOpen > 0 && len(r.pending) >= r.maxOpen {
		return q, false, r.fail(fmt.Errorf("%d open questions are over the limit OpenQuestions (%d)", len(r.pending)+1, r.maxOpen))
	}
	if f == nil { // what is known already takes no more room
		if err := r.full(); err != nil {
			return q, false, r.fail(err)
		}
	}
	r.keys[q.Key] = true
	r.asked = append(r.asked, q)
	if settled {
		if f.State != record.Lapsed { // a no as well, for an effect that is meant after it
			r.relied = append(r.relied, record.Reliance{Key: q.Key, Digest: q.Digest, No: f.State != record.Answered})
		}
		return *f, false, nil
	}
	r.pending[q.Key] = true
	return q, true, nil
}

// Answer answers a question that this run has just asked, with an answer that
// came before it was asked.
func (r *Run) Answer(key string, a record.Responded, by record.Actor) error {
	r.mu.Lock()
	var asked *record.Question
	for i := range r.asked {
		if r.asked[i].Key == key {
			asked = &r.asked[i]
		}
	}
	r.mu.Unlock()
	if asked == nil {
		return fmt.Errorf("question %q was not asked", key)
	}
	err := r.commitAs(r.ctx, by, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Asked{Question: *asked}, a}
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, key)
	r.relied = append(r.relied, record.Reliance{Key: key, Digest: asked.Digest})
	return nil
}

// Pending reports whether a question of this run waits for an answer.
func (r *Run) Pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0
}

// Asks returns the questions of this run that wait for an answer.
func (r *Run) Asks() []record.Question {
	r.mu.Lock()
	defer r.mu.Unlock()
	var open []record.Question
	for _, q := range r.asked {
		if f := r.call.Look(q.Key, q.Digest).Found; f == nil {
			open = append(open, q)
		} else if f.State == record.Open {
			open = append(open, *f)
		}
	}
	return open
}

// asking is what the run's questions make of the call: what is asked in other
// words or no more at all is void, what is new is asked.
func (r *Run) asking(c *record.Call) []record.Event {
	var events []record.Event
	for _, q := range c.Open() {
		if !r.keys[q.Key] {
			events = append(events, record.Voided{WireKey: q.WireKey})
		}
	}
	for _, q := range r.asked {
		look := c.Look(q.Key, q.Digest)
		if look.Found != nil {
			continue
		}
		if look.Stale != nil {
			events = append(events, record.Voided{WireKey: look.Stale.WireKey})
		}
		events = append(events, record.Asked{Question: q})
	}
	return events
}
