package engine

import (
	"context"
	"errors"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// commit carries events of the run to the store.
func (r *Run) commit(ctx context.Context, events Events) error {
	return r.commitAs(ctx, r.by, events)
}

func (r *Run) commitAs(ctx context.Context, by record.Actor, events Events) error {
	select {
	case r.committing <- struct{}{}:
		defer func() { <-r.committing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.forgotten() {
		return ErrLost
	}
	for try := 0; ; try++ {
		now, err := r.e.Store.Now(ctx)
		if err != nil {
			return err
		}
		c, change, refused := r.decide(by, now, events)
		if r.keeping == Carried {
			if refused == nil && change.After != nil {
				r.e.tell(c, change)
				r.adopt(ctx, change.After)
			}
			return refused
		}
		if c == nil && refused != nil {
			// A refusal is on record where the call is: so there must be one.
			if err := r.open(ctx, now); err != nil {
				return err
			}
			continue
		}
		after, err := r.e.commit(ctx, c, change)
		switch {
		case errors.Is(err, store.ErrConflict) && try < maxTries:
			if err := r.reload(ctx, c); err != nil {
				return err
			}
			continue
		case err != nil:
			if doubtful(err) {
				r.doubt(ctx)
			}
			return err
		case after != nil:
			r.adopt(ctx, after)
		}
		return r.lostBy(refused)
	}
}

// doubt is for a change that may have been applied all the same: if it has made
// the call, that has a lease to be renewed.
func (r *Run) doubt(ctx context.Context) {
	r.mu.Lock()
	opening := r.opened != nil
	r.unsure = r.unsure || opening
	r.mu.Unlock()
	if !opening {
		return
	}
	if c, err := r.e.Store.Load(ctx, r.id); err == nil {
		r.adopt(ctx, c)
	}
}

// forgotten reports whether the run has ended before anything put its call on
// record.
func (r *Run) forgotten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over && r.opened != nil
}

// decide asks the law. c is nil if the change makes the call.
func (r *Run) decide(by record.Actor, now time.Time, events Events) (c *record.Call, change record.Change, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := events(r.call, now)
	r.reporting = r.reported
	if r.reported != nil && r.keeping == Kept {
		list = append([]record.Event{record.Reported{Progress: *r.reported}}, list...)
	}
	if r.opened == nil {
		change, err = record.Decide(r.call, by, r.epoch, now, list...)
		return r.call, change, err
	}
	o := *r.opened
	o.Lease = r.e.lease(now)
	change, err = record.Decide(nil, by, r.epoch, now, append([]record.Event{o}, list...)...)
	return nil, change, err
}

// open commits the call with nothing but its opening.
func (r *Run) open(ctx context.Context, now time.Time) error {
	_, change, err := r.decide(r.by, now, func(*record.Call, time.Time) []record.Event { return nil })
	if err != nil {
		return err
	}
	after, err := r.e.commit(ctx, nil, change)
	if err == nil {
		r.adopt(ctx, after)
	}
	return err
}

// adopt makes the run know the call as committed. If that has made it, the run
// catches up.
func (r *Run) adopt(ctx context.Context, c *record.Call) {
	if made := r.learn(c); made {
		r.catchUp(ctx, c)
	}
}

// catchUp is for a run that has just been registered, of a call that was like
// that: of a change in between it was not told, a cancel, say. Who has looked at
// the run before it knows of that is told too.
func (r *Run) catchUp(ctx context.Context, c *record.Call) {
	now, err := r.e.Store.Load(context.WithoutCancel(ctx), c.ID) // also if the client has left meanwhile
	if err != nil {
		return
	}
	r.see(now)
	if now.Version > c.Version {
		r.e.notify(now)
	}
}

func (r *Run) learn(c *record.Call) (made bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened != nil && r.keeping == Kept {
		made = true
		r.opened = nil
		if c.State == record.Running && !r.over { // else nobody would end its lease
			r.e.hold(r)
		}
	}
	if r.reported == r.reporting {
		r.reported = nil
	}
	r.know(c)
	return made
}

// know takes a newer version of the call; the caller holds mu.
func (r *Run) know(c *record.Call) {
	if r.keeping == Kept && c.Version < r.call.Version {
		return
	}
	if c.Lease.Until.Before(r.call.Lease.Until) && c.Epoch == r.call.Epoch && c.State == record.Running {
		renewed := *c
		renewed.Lease = r.call.Lease
		c = &renewed
	}
	r.call = c
	if c.Task {
		select {
		case <-r.announced:
		default:
			close(r.announced)
			if !r.over { // else nobody would let it go
				r.e.takeIn(r) // its client no longer waits
			}
		}
	}
}

// see is told of every change of the call by this process.
func (r *Run) see(c *record.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened != nil {
		return
	}
	r.know(c)
	r.check()
}

// check ends what the call as it is now ends: a cancel the handler's context,
// an end or a take-over the lease. The caller holds mu.
func (r *Run) check() {
	switch {
	case r.call.Epoch != r.epoch || r.call.State != record.Running:
		if !r.over {
			r.lost(ErrLost)
		}
	case !r.call.CancelledAt.IsZero():
		r.cancel(ErrCancelled)
	}
}

// reload reads the call after a conflict with what was seen of it; nil: it was
// to be made. If it is as it was, the conflict is about a mark, which deciding
// anew does not mend. If it was made all the same, an earlier write has been
// applied of which the store said that it failed.
func (r *Run) reload(ctx context.Context, seen *record.Call) error {
	c, err := r.e.Store.Load(ctx, r.id)
	switch {
	case seen == nil && errors.Is(err, store.ErrNotFound):
		return store.ErrConflict
	case err != nil:
		return err
	case seen == nil:
		r.adopt(ctx, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen != nil && c.Version == seen.Version && c.Epoch == r.epoch && c.Lease == r.call.Lease {
		return store.ErrConflict
	}
	r.know(c)
	r.check()
	return nil
}

// lostBy ends the lease if the law says that the run has none.
func (r *Run) lostBy(err error) error {
	var refused *record.Refusal
	if errors.As(err, &refused) && (refused.Reason == record.ReasonStaleEpoch || refused.Reason == record.ReasonLeaseLost) {
		r.lose()
		return errors.Join(ErrLost, err)
	}
	return err
}

func (r *Run) lose() { r.lost(ErrLost) }

func (r *Run) renewed(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := *r.call
	c.Lease.Until = until
	r.call = &c
}

func (r *Run) expired(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !now.Before(r.call.Lease.Until)
}

// overdue reports whether the run must not go on: the call's deadline is so
// far gone that its handler was told and has not come to its end. An effect
// that has started is given the time to settle, but not for ever, and then the
// handler has its time to return.
func (r *Run) overdue(now time.Time) bool {
	settling := r.inEffect()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.call.Deadline
	for _, f := range r.call.Effects {
		if f.Epoch == r.epoch && f.EndedAt.After(last) {
			last = f.EndedAt
		}
	}
	last = last.Add(3 * r.e.Grace)
	if settling {
		last = last.Add(r.e.Settle)
	}
	return now.After(last)
}

// Close ends the run for good: nothing of it is renewed any more.
func (r *Run) Close() {
	r.mu.Lock()
	r.over = true
	unended := r.call.State == record.Running && r.keeping == Kept && r.opened == nil
	r.mu.Unlock()
	r.e.drop(r)
	r.e.letGo(r)
	r.lost(ErrLost)
	if unended {
		r.e.nudge() // its end could not be recorded: the loop waits for its lease to lapse
	}
}

// Draining reports whether the handler was told that the process shuts down.
func (r *Run) Draining() bool { return errors.Is(context.Cause(r.ctx), ErrDraining) }

// giveBack ends a run that has lost its lease in this process's eyes and not in
// the store's: a clock that was ahead and was set back makes it look live, and
// nobody would take the call over before the clock gets there again.
func (r *Run) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), r.e.Grace)
	defer cancel()
	_, err := r.e.Change(ctx, r.id, record.System, r.epoch, func(c *record.Call, now time.Time) []record.Event {
		if c.State != record.Running || c.Epoch != r.epoch || !c.Lease.Live(now) {
			return nil
		}
		return []record.Event{record.Stopped{Why: record.WhyHandback}}
	})
	var refused *record.Refusal
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, store.ErrNotFound) {
		r.e.Log.Warn("a run that has lost its lease could not be given back", "call", r.id, "err", err)
	}
}
