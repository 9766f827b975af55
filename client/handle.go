package client

import (
	"context"
	"errors"
	"time"
)

// A Handle is a call that this process drives, or has driven to its end. It is
// safe for concurrent use.
type Handle struct{ d *drive }

// ID names the call in the memory, for [Client.Attach] in another process.
func (h *Handle) ID() string { return h.d.id }

// Status is where the call stands.
func (h *Handle) Status() Status { return h.d.status() }

// Done is closed when the driving ends: the call has ended, or cannot go on.
func (h *Handle) Done() <-chan struct{} { return h.d.done }

// Wait waits for the end of the call. When ctx ends, the waiting does, and
// nothing else. The result stays on disk until a caller has had it, and
// Limits.Keep longer. Errors are [Error].
func (h *Handle) Wait(ctx context.Context) (*Result, error) {
	select {
	case <-h.d.done:
		return h.d.outcome()
	default:
	}
	select {
	case <-h.d.done:
		return h.d.outcome()
	case <-ctx.Done():
		return nil, &Error{ID: h.d.id, Kind: ErrDetached, Reason: "the call goes on", Err: ctx.Err()}
	}
}

// finish is Wait for those who have no handle to come back to.
func (h *Handle) finish(ctx context.Context) (*Result, error) {
	r, err := h.Wait(ctx)
	if errors.Is(err, ErrDetached) && ctx.Err() != nil {
		h.Detach()
		select { // it may have ended meanwhile
		case <-h.d.done:
			return h.d.outcome()
		default:
		}
	}
	return r, err
}

// Detach ends the driving, as the end of the process would, and waits for that.
func (h *Handle) Detach() {
	h.d.stop()
	<-h.d.done
}

// Cancel ends the call. A task is told by tasks/cancel, and driven until its
// server has said what became of it: it may complete all the same. What waits
// for an answer is given up without telling the server, which lets it expire. A
// request that is under way is broken off, and ErrUnknown is its end.
//
// Cancel returns when that is on disk; [Handle.Wait] tells the end.
func (h *Handle) Cancel(ctx context.Context) error {
	h.d.cancelling.Add(1) // from now on nothing leaves: what is written just now may come first
	defer h.d.cancelling.Add(-1)
	return h.d.change(ctx, (*entry).askCancel)
}

// Answer answers an open question, whoever else was asked. The question is
// given by Question.ID, or by Question.Key if one open question alone has that.
// A key may come again in the next round, and mean something else there: who
// has seen the question gives its ID.
//
// The answer is checked against the question, and is on disk when Answer
// returns. A question that has an answer keeps it, and one that is no longer
// asked takes none: both are errors.
func (h *Handle) Answer(ctx context.Context, question string, a Answer) error {
	return h.d.change(ctx, func(e *entry) error { return e.answer(question, a, "caller") })
}

// Again sends the last request of a call that ended with ErrUnknown once more,
// on the caller's word that this does no harm.
func (h *Handle) Again(ctx context.Context) (*Handle, error) {
	<-h.d.done
	c := h.d.c
	k, err := c.opts.Memory.claim(ctx, h.d.id)
	if err != nil {
		return nil, err
	}
	var was *entry
	k, err = c.opts.Memory.update(ctx, k, func(e *entry) error {
		was = e.clone()
		if e.Outcome == nil || e.Outcome.State != Unknown {
			return &Error{ID: e.ID, Kind: ErrInvalidResponse, Reason: "its outcome is not unknown"}
		}
		e.Stage, e.Maybe, e.Outcome, e.CancelAsked = stageReady, true, nil, false
		e.Deadline = time.Now().Add(c.opts.Limits.Deadline)
		return nil
	})
	if err != nil {
		c.opts.Memory.release(k)
		return nil, err
	}
	next, err := c.drive(k)
	if err != nil { // nobody sends it: it is as it was
		ctx := context.WithoutCancel(ctx)
		k, back := c.opts.Memory.update(ctx, k, func(e *entry) error { *e = *was; return nil })
		c.opts.Memory.release(k)
		return nil, errors.Join(err, back)
	}
	return next, nil
}

// Forget ends the driving and removes the call from the memory. What the
// server does with it does not change: cancel it first if it is to stop.
func (h *Handle) Forget(ctx context.Context) error {
	h.Detach()
	return h.d.c.opts.Memory.Forget(ctx, h.d.id)
}
