package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	methodListen = "subscriptions/listen"
	mostListened = 500                    // tasks in one listen
	gathering    = 100 * time.Millisecond // how long new tasks are waited for before a listen is opened
)

// A watcher hears from the server about tasks, as far as it tells: by
// subscriptions/listen, a few hundred tasks in each. What is not told of is for
// its drive to poll.
type watcher struct {
	l *link

	mu    sync.Mutex // guards what follows
	tasks map[string]*subject
	fresh map[string]*subject // not in any listen yet
	last  *listen             // the one that new tasks are added to, by opening it anew
	off   bool                // the server does not listen
	timer bool                // opening is due
	fails int                 // listens that ended soon, in a row
}

// A subject is one task of a [watcher]. Its fields are guarded by the watcher's
// mutex.
type subject struct {
	id      string
	watches []*watch        // one, unless the server has named one task to several calls
	last    json.RawMessage // the latest state that was told
	told    bool            // the server has acknowledged it
	no      bool            // it did not: it is not asked to again
	in      *listen
}

func (s *subject) tell() {
	for _, one := range s.watches {
		one.tell()
	}
}

// A watch is one drive's look at a task.
type watch struct {
	w      *watcher
	of     *subject
	signal chan struct{}   // capacity 1: something is to be taken, or listening has ended
	state  json.RawMessage // what is to be taken; guarded by the watcher's mutex
}

// A listen is one subscriptions/listen.
type listen struct {
	w      *watcher
	ids    map[string]*subject
	cancel context.CancelFunc
	after  *listen // the one that it takes the place of, once it is acknowledged
	acked  bool
}

func newWatcher(l *link) *watcher {
	return &watcher{l: l, tasks: map[string]*subject{}, fresh: map[string]*subject{}, off: !l.tasks}
}

// add begins to watch a task.
func (w *watcher) add(id string) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.tasks[id]
	if of == nil {
		of = &subject{id: id}
		w.tasks[id], w.fresh[id] = of, of
		w.due()
	}
	one := &watch{w: w, of: of, signal: make(chan struct{}, 1), state: of.last}
	of.watches = append(of.watches, one)
	return one
}

func (w *watcher) remove(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := one.of
	of.watches = slices.DeleteFunc(of.watches, func(other *watch) bool { return other == one })
	if len(of.watches) > 0 {
		return
	}
	delete(w.tasks, of.id)
	delete(w.fresh, of.id)
	if g := of.in; g != nil {
		delete(g.ids, of.id)
		if len(g.ids) == 0 && g.cancel != nil {
			g.cancel()
		}
	}
}

// take returns the latest state that was told, once.
func (o *watch) take() json.RawMessage {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	raw := o.state
	o.state = nil
	return raw
}

// waits reports whether a state waits to be taken.
func (o *watch) waits() bool {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	return o.state != nil
}

func (o *watch) listened() bool {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	return o.of.told
}

func (o *watch) tell() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// due has the fresh tasks listened to a little later. The mutex is held.
func (w *watcher) due() {
	if w.off || w.timer || len(w.fresh) == 0 {
		return
	}
	w.timer = true
	wait := gathering + time.Duration(len(w.tasks))*time.Millisecond/2
	if w.fails > 0 {
		wait = max(wait, pauseAfter(w.fails, 0))
	}
	wait = min(wait, lastPause)
	w.l.start(func() {
		select {
		case <-time.After(wait):
		case <-w.l.ctx.Done():
			return
		}
		w.open()
	})
}

// open opens listens for the fresh tasks, together with those of the last one
// if that has room.
func (w *watcher) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = false
	for len(w.fresh) > 0 && !w.off {
		g := &listen{w: w, ids: map[string]*subject{}}
		if w.last != nil && len(w.last.ids) < mostListened {
			g.after = w.last
			for id, one := range g.after.ids {
				g.ids[id] = one
			}
		}
		for id, one := range w.fresh {
			if len(g.ids) == mostListened {
				break
			}
			g.ids[id] = one
			delete(w.fresh, id)
		}
		var ctx context.Context
		ctx, g.cancel = context.WithCancel(w.l.ctx)
		w.last = g
		ids := make([]string, 0, len(g.ids))
		for id, one := range g.ids {
			one.in = g
			ids = append(ids, id)
		}
		w.l.start(func() { w.hear(ctx, g, ids) })
	}
}

// hear has one listen open until it ends.
func (w *watcher) hear(ctx context.Context, g *listen, ids []string) {
	defer g.cancel()
	began := time.Now()
	params, err := marshal(map[string]any{"notifications": map[string]any{"taskIds": ids}})
	if err == nil {
		can := w.l.c.capabilities("") // a server tells of questions only to whom they can be put
		can.tasks = true
		_, err = w.l.request(ctx, new(exchange), outgoing{method: methodListen, params: params, capabilities: can, listen: g}, nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var said *serverError
	switch {
	case errors.As(err, &said) && !g.acked: // whatever it is, polling does it too
		w.off = true
	case time.Since(began) < lease:
		w.fails++
	default:
		w.fails = 0
	}
	if w.last == g {
		w.last = nil
	}
	for id, one := range g.ids {
		if one.in != g {
			continue
		}
		one.in, one.last = nil, nil
		if one.told {
			one.told = false
			one.tell() // it is to be polled
		}
		if w.tasks[id] == one && ctx.Err() == nil && !one.no {
			w.fresh[id] = one
		}
	}
	w.due()
}

// notified takes a notification of this listen. It does not block.
func (g *listen) notified(method string, params json.RawMessage) {
	if method == "notifications/tasks" {
		g.told(params)
		return
	}
	var ack struct {
		Notifications struct {
			TaskIDs []string `json:"taskIds"`
		} `json:"notifications"`
	}
	if unmarshal(params, &ack) != nil {
		return
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.acked = true
	for _, one := range g.ids {
		one.no = one.in == g
	}
	for _, id := range ack.Notifications.TaskIDs {
		if one := g.ids[id]; one != nil && one.in == g {
			one.told, one.no = true, false
			one.tell() // it need not be polled
		}
	}
	if g.after != nil {
		g.after.cancel()
		g.after = nil
	}
}

// told takes a state of one task.
func (g *listen) told(params json.RawMessage) {
	var m struct {
		ID string `json:"taskId"`
	}
	if !isObject(params) || unmarshal(params, &m) != nil {
		return
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if one := g.ids[m.ID]; one != nil {
		one.last = params
		for _, each := range one.watches {
			each.state = params
		}
		one.tell()
	}
}
