package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// lease returns a fresh lease of this process.
func (e *Engine) lease(now time.Time) record.Lease {
	return record.Lease{Holder: e.holder, Until: now.Add(e.Lease)}
}

// hold registers a kept run, whose lease is from then on renewed.
func (e *Engine) hold(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[r.id] = append(e.runs[r.id], r)
	if !e.beating {
		e.beating = true
		e.work.Go(e.beat)
	}
}

// drop forgets a run, and lets its tenant have another.
func (e *Engine) drop(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.going, r)
	left := slices.DeleteFunc(e.runs[r.id], func(o *Run) bool { return o == r })
	if len(left) == 0 {
		delete(e.runs, r.id)
	} else {
		e.runs[r.id] = left
	}
	select {
	case e.dropped <- struct{}{}:
	default:
	}
}

// beat renews the leases of all kept runs, in one write, as long as there are
// any. A run whose lease was not renewed in time is told that it has lost it.
func (e *Engine) beat() {
	tick := time.NewTicker(e.Heartbeat)
	defer tick.Stop()
	for {
		beat := false
		select {
		case <-tick.C:
			beat = true
		case <-e.dropped:
		}
		e.mu.Lock()
		if len(e.runs) == 0 {
			e.beating = false
			e.mu.Unlock()
			return
		}
		if !beat {
			e.mu.Unlock()
			continue
		}
		e.mu.Unlock()
		e.renew(e.live())
	}
}

func (e *Engine) renew(runs []*Run) {
	ctx, cancel := context.WithTimeout(context.Background(), e.Lease)
	defer cancel()
	now, err := e.Store.Now(ctx)
	if err != nil {
		e.Log.Error("reading the store's clock failed", "err", err)
		return
	}
	until := now.Add(e.Lease)
	var refs []store.LeaseRef
	for _, r := range runs {
		if !r.overdue(now) {
			refs = append(refs, store.LeaseRef{Call: r.id, Epoch: r.epoch})
		}
	}
	kept, err := e.Store.Renew(ctx, e.holder, refs, until)
	if err != nil {
		e.Log.Error("renewing leases failed", "runs", len(refs), "err", err)
	}
	renewed := make(map[store.LeaseRef]bool, len(kept))
	for _, ref := range kept {
		renewed[ref] = true
	}
	for _, r := range runs {
		switch {
		case renewed[store.LeaseRef{Call: r.id, Epoch: r.epoch}]:
			r.renewed(until)
			e.refresh(ctx, r)
		case err == nil || r.expired(now):
			r.lose()
		}
		if err := r.flush(ctx); err != nil {
			e.Log.Warn("a progress report could not be stored", "call", r.id, "err", err)
		}
	}
}

// refresh tells a run what other processes have done to its call: they cannot
// cancel its context, so that it must look.
func (e *Engine) refresh(ctx context.Context, r *Run) {
	if !e.Store.Shared() {
		return
	}
	if c, err := e.Store.Load(ctx, r.id); err == nil {
		r.see(c)
	}
}

// Refresh has the run look at what other processes have done to its call.
func (r *Run) Refresh(ctx context.Context) { r.e.refresh(ctx, r) }

// attend reports whether a run is at a call that a run of another waits for, or
// soon will be. Who waits lends it a worker: if those that wait had all the
// places, the call would never get one, and they would wait for ever. That is
// smaller than to hand the waiting calls back, which would run their handlers
// again and again, up to MaxRuns.
func (e *Engine) attend(ctx context.Context, id string) (bool, error) {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	c, err := e.Load(ctx, id)
	if err == nil && c.State == record.Running && !c.Lease.Live(now) {
		if err := e.pass(ctx, id); err != nil { // the loop has not come to it yet
			return false, err
		}
		c, err = e.Load(ctx, id)
	}
	switch {
	case err != nil:
		return false, ignore(err, store.ErrNotFound)
	case c.State == record.Ready:
		_, err := e.start(context.Background(), id, true) // not with what the waiting handler's context carries
		return err == nil, err
	}
	return c.State == record.Running, nil
}

// start takes a ready call and runs it in the background. It reports whether
// it did. lent: a run that waits for the call lends it its place, and so it
// needs no free one.
func (e *Engine) start(ctx context.Context, id string, lent bool) (bool, error) {
	c, err := e.Store.Load(ctx, id)
	if err != nil || c.State != record.Ready {
		return false, ignore(err, store.ErrNotFound)
	}
	tenant := c.Owner.Tenant
	e.mu.Lock()
	if e.draining || e.active[id] || !lent && !e.hasRoom(tenant) {
		e.mu.Unlock()
		return false, nil
	}
	e.active[id] = true
	e.occupy(tenant)
	e.mu.Unlock()
	e.work.Go(func() {
		defer func() {
			e.mu.Lock()
			delete(e.active, id)
			e.vacate(tenant)
			e.mu.Unlock()
			e.nudge()
		}()
		if !e.background(context.WithoutCancel(ctx), id) {
			e.sleep(ctx, time.Second, e.stopping) // what fails is not tried at once again
		}
	})
	return true, nil
}

// room reports whether another run without a waiting client may begin.
func (e *Engine) room(tenant string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasRoom(tenant)
}

// takeIn counts a run that was announced as one without a waiting client, until
// it is let go. It may be one too many: then the workers have less.
func (e *Engine) takeIn(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.counted {
		r.counted = true
		e.occupy(r.tenant)
	}
}

func (e *Engine) letGo(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.counted {
		r.counted = false
		e.vacate(r.tenant)
		defer e.nudge()
	}
}

// The next three need mu.

func (e *Engine) hasRoom(tenant string) bool {
	return e.busy < e.Workers && e.tenants[tenant] < e.PerTenant
}

func (e *Engine) occupy(tenant string) {
	e.busy++
	e.tenants[tenant]++
}

func (e *Engine) vacate(tenant string) {
	e.busy--
	if e.tenants[tenant]--; e.tenants[tenant] == 0 {
		delete(e.tenants, tenant)
	}
}

// background is one run of a call that no client waits for. It reports whether
// the call could be claimed, or was another's.
func (e *Engine) background(ctx context.Context, id string) (ok bool) {
	defer e.survive()
	r, err := e.claim(ctx, id)
	var refused *record.Refusal
	switch {
	case errors.As(err, &refused):
		return true
	case err != nil:
		e.Log.Error("claiming a call failed", "call", id, "err", err)
		return false
	case r == nil:
		return true
	}
	defer r.Close()
	end := r.Do()
	if err := r.Settle(ctx, end); err != nil {
		e.Log.Warn("a run's end could not be recorded; the call will be taken again", "call", id, "err", err)
	}
	return true
}

// claim takes a ready call for a worker, if its owner may still have it run.
func (e *Engine) claim(ctx context.Context, id string) (*Run, error) {
	c, err := e.Store.Load(ctx, id)
	if err != nil || c.State != record.Ready {
		return nil, ignore(err, store.ErrNotFound)
	}
	if denied := e.MayRun(ctx, c); denied != nil {
		_, err := e.Change(ctx, id, record.System, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
			return []record.Event{record.Abandoned{Error: *denied, Reason: record.ReasonNotAllowed}}
		})
		return nil, err
	}
	return e.take(ctx, id, record.System, func(*record.Call, time.Time) []record.Event { return nil }, nil)
}

// take claims a call, after the events that go with the claim in one commit.
// A nil run without an error means that it is not to be had.
func (e *Engine) take(ctx context.Context, id string, by record.Actor, with Events, retry *record.Retry) (*Run, error) {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	lease := e.lease(now)
	c, err := e.Change(ctx, id, by, record.NoEpoch, func(c *record.Call, now time.Time) []record.Event {
		return append(with(c, now), record.Taken{Lease: lease, Retry: retry})
	})
	if err != nil {
		return nil, err
	}
	if c.State != record.Running {
		return nil, nil // it ran too often, and has ended
	}
	r := e.newRun(c, true)
	e.hold(r)
	r.catchUp(ctx, c)
	return r, nil
}
