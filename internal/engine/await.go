package engine

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tallystick/tallystick/record"
)

// notify tells the runs of the call that they should look, those who watch it
// that it has changed, and the loop if something is due sooner than it knew. It
// never blocks.
//
// Order: the runs, then who watches, as they are by then. Who begins to watch
// meanwhile and looks at a run that has not heard yet is still told.
func (e *Engine) notify(c *record.Call) {
	e.mu.Lock()
	runs := slices.Clone(e.runs[c.ID])
	e.mu.Unlock()
	for _, r := range runs {
		r.see(c)
	}
	e.mu.Lock()
	watches := slices.Clone(e.watches[c.ID])
	due := c.Due()
	sooner := c.State == record.Ready || !due.IsZero() && (e.next.IsZero() || due.Before(e.next))
	e.mu.Unlock()
	for _, w := range watches {
		w.add(Seen{c.ID, c})
	}
	if sooner {
		e.nudge()
	}
}

// gone tells those who watch a call that it is no more.
func (e *Engine) gone(id string) {
	e.mu.Lock()
	watches := slices.Clone(e.watches[id])
	e.mu.Unlock()
	for _, w := range watches {
		w.add(Seen{ID: id})
	}
}

// Seen is a call as it has become.
type Seen struct {
	ID   string
	Call *record.Call // nil: it is no more
}

// backlog is how many changes a watch keeps apart. A watcher that is further
// behind than that gets of each call the last one, and so never an old last
// state, however slow it is.
const backlog = 64

// A Watch tells of the changes that this process makes to some calls. Watch
// first and load then, or what happens in between is missed.
type Watch struct {
	// C receives when there is something to [Watch.Take].
	C <-chan struct{}

	e   *Engine
	ids []string
	c   chan struct{} // capacity 1

	mu      sync.Mutex
	changed []Seen
}

// Watch watches calls, whether they exist or not, until [Watch.Stop].
func (e *Engine) Watch(ids ...string) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, e: e, ids: ids, c: c}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.watches[id] = append(e.watches[id], w)
	}
	return w
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	for _, id := range w.ids {
		left := slices.DeleteFunc(w.e.watches[id], func(o *Watch) bool { return o == w })
		if len(left) == 0 {
			delete(w.e.watches, id)
		} else {
			w.e.watches[id] = left
		}
	}
}

// Take returns the calls as they became since the last Take, oldest first. Of
// two changes that were made at once the later may come first: the versions
// tell.
func (w *Watch) Take() []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = nil
	return changed
}

func (w *Watch) add(c Seen) {
	w.mu.Lock()
	w.changed = append(w.changed, c)
	if len(w.changed) > max(backlog, 2*len(w.ids)) {
		w.changed = latest(w.changed)
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// latest keeps of each call the newest.
func latest(changed []Seen) []Seen {
	newest := map[string]int64{}
	for _, s := range changed {
		newest[s.ID] = max(newest[s.ID], s.version())
	}
	return slices.DeleteFunc(changed, func(s Seen) bool { return s.version() < newest[s.ID] })
}

// version of a call that is no more is higher than any it had.
func (s Seen) version() int64 {
	if s.Call == nil {
		return math.MaxInt64
	}
	return s.Call.Version
}

// Await returns the call once done says so, or as it is when the wait is over,
// ctx ends, or the process begins to shut down.
func (e *Engine) Await(ctx context.Context, id string, wait time.Duration, done func(*record.Call) bool) (*record.Call, error) {
	watch := e.Watch(id)
	defer watch.Stop()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		other := e.Store.Wake()
		select {
		case <-watch.C: // what it tells of is looked at now
		default:
		}
		c, err := e.Load(ctx, id)
		if err != nil || done(c) {
			return c, err
		}
		select {
		case <-watch.C:
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
