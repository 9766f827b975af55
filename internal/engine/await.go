package engine

import (
	"context"
	"slices"
	"time"

	"github.com/tallystick/tallystick/record"
)

// notify tells those who watch the call that it has changed, the runs of it
// that they should look, and the loop if something is due sooner than it knew.
// It never blocks: a watcher's channel holds one signal, and a signal means
// only "look again", so none can be stale.
func (e *Engine) notify(c *record.Call) {
	e.mu.Lock()
	watchers := slices.Clone(e.watchers[c.ID])
	due := c.Due()
	sooner := c.State == record.Ready || !due.IsZero() && (e.next.IsZero() || due.Before(e.next))
	var runs []*Run
	for r := range e.runs {
		if r.id == c.ID {
			runs = append(runs, r)
		}
	}
	e.mu.Unlock()
	for _, r := range runs {
		r.see(c) // before the watchers, who may look at the run
	}
	for _, w := range watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	if sooner {
		e.nudge()
	}
}

// Watch returns a channel that receives after every change of the call in this
// process, and a function that ends it. Subscribe, then load.
func (e *Engine) Watch(id string) (<-chan struct{}, func()) {
	w := make(chan struct{}, 1)
	e.mu.Lock()
	e.watchers[id] = append(e.watchers[id], w)
	e.mu.Unlock()
	return w, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		left := slices.DeleteFunc(e.watchers[id], func(o chan struct{}) bool { return o == w })
		if len(left) == 0 {
			delete(e.watchers, id)
		} else {
			e.watchers[id] = left
		}
	}
}

// Await returns the call once done says so, or as it is when the wait is over,
// ctx ends, or the process begins to shut down.
func (e *Engine) Await(ctx context.Context, id string, wait time.Duration, done func(*record.Call) bool) (*record.Call, error) {
	changed, stop := e.Watch(id)
	defer stop()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		other := e.Store.Wake()
		c, err := e.Load(ctx, id)
		if err != nil || done(c) {
			return c, err
		}
		select {
		case <-changed:
		case <-other:
		case <-timer.C:
			return c, nil
		case <-ctx.Done():
			return c, nil
		case <-e.stopping:
			return c, nil
		}
	}
}
