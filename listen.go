package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// A listener is one subscriptions/listen: what it watches, and how far its
// client has been told.
type listener struct {
	s *Server
	r *wire.Request
	// told is the version of each watched task that the client knows. It is the
	// request's own: one goroutine sends everything.
	told    map[string]int64
	changed []engine.Seen // not yet told
	notices []wire.Notice // of the SDK, not yet told
	by      record.Principal
	expires time.Time // of the token; zero: never
}

// Reasons for which a listen ends that its client did not end.
const (
	byeShutdown  = "the server is shutting down; listen again"
	byeToken     = "the token has expired; listen again with another"
	byeForbidden = "what it tells of may no longer be watched; listen again for the rest"
	byeNothing   = "there is nothing to listen for"
	byeSDK       = "the server has ended the subscription; listen again"
	byeFailed    = "the server could not go on; listen again"
)

// listen serves subscriptions/listen.
//
// Order: subscribe, read, acknowledge, send the current state, then changes: so
// that a change between subscribing and reading is not missed.
func (s *Server) listen(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	id, err := s.identify(ctx, r)
	if err != nil {
		return nil, err
	}
	if n := len(r.Filter.TaskIDs); n > s.limits.ListenTasks {
		return nil, wire.Errorf(wire.CodeInvalidParams, "%v", limitError("ListenTasks", n, s.limits.ListenTasks))
	}
	leave, err := s.mayListen(id.Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	l := &listener{s: s, r: r, told: map[string]int64{}, by: id.principal()}
	other := s.store.Wake()
	watch := s.engine.Watch(r.Filter.TaskIDs...)
	defer watch.Stop()
	tasks, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	honoured, relay := map[string]json.RawMessage{}, &wire.Relay{}
	if len(r.Filter.Others) > 0 {
		if relay, err = wire.Subscribe(ctx, s.mcp, r); err != nil {
			return nil, err
		}
		defer relay.Close() // of this one
		if honoured = relay.Honoured; len(honoured) == 0 {
			relay = &wire.Relay{} // it is over at once, and the tasks are not
		}
	}
	if err := l.acknowledge(ctx, honoured, tasks); err != nil {
		return nil, err
	}
	if len(honoured) == 0 && len(tasks) == 0 {
		return l.bye(ctx, byeNothing)
	}
	return l.follow(ctx, tasks, watch, other, relay)
}

// mayListen counts a tenant's open listens.
func (s *Server) mayListen(tenant string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listens[tenant] >= s.limits.Listens {
		return nil, &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("too many listens of this tenant are open (limit: Listens %d); poll, or try again later", s.limits.Listens), Status: 429}
	}
	s.listens[tenant]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listens[tenant]--; s.listens[tenant] == 0 {
			delete(s.listens, tenant)
		}
	}, nil
}

// read loads those of the tasks asked for that the client may watch. The others
// are left out of the acknowledgement, whatever the reason.
func (l *listener) read(ctx context.Context) ([]*record.Call, error) {
	var tasks []*record.Call
	if l.s.opts.Store == nil {
		return nil, nil
	}
	for _, id := range l.r.Filter.TaskIDs {
		c, _, err := l.s.owned(ctx, l.r, id, Watch)
		if errors.Is(err, errNoTask) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, c)
	}
	return tasks, nil
}

func (l *listener) acknowledge(ctx context.Context, honoured map[string]json.RawMessage, tasks []*record.Call) error {
	agreed := map[string]any{}
	for name, v := range honoured {
		agreed[name] = v
	}
	if len(tasks) > 0 {
		ids := make([]string, len(tasks))
		for i, c := range tasks {
			ids[i] = c.ID
		}
		agreed["taskIds"] = ids
	}
	return l.notify(ctx, wire.NotifyAcknowledged, map[string]any{"notifications": agreed})
}

// follow sends the current state and then the changes, until the listen ends.
func (l *listener) follow(ctx context.Context, tasks []*record.Call, watch *engine.Watch, other <-chan struct{}, relay *wire.Relay) (json.RawMessage, error) {
	for _, c := range tasks {
		l.told[c.ID] = c.Version - 1
		l.changed = append(l.changed, engine.Seen{ID: c.ID, Call: c})
	}
	var expired <-chan time.Time
	if t := l.r.Token(); t != nil && !t.Expiration.IsZero() {
		l.expires = t.Expiration
		timer := time.NewTimer(time.Until(t.Expiration))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		// One at a time, and no more is taken before: where it waits it does not
		// grow.
		for len(l.changed)+len(l.notices) > 0 && !l.ending(ctx) {
			if why, err := l.tellNext(ctx); why != "" || err != nil {
				return l.over(ctx, why, err)
			}
		}
		if len(l.told) == 0 && relay.C == nil {
			return l.bye(ctx, byeNothing)
		}
		select {
		case <-watch.C:
			l.changed = append(l.changed, watch.Take()...)
		case <-other: // another process may have changed them
			other = l.s.store.Wake()
			if err := l.readAgain(ctx); err != nil {
				return l.over(ctx, byeFailed, err)
			}
		case <-relay.C:
			l.notices = append(l.notices, relay.Take()...)
		case <-relay.Done:
			return l.over(ctx, byeSDK, nil)
		case <-expired:
			return l.bye(ctx, byeToken)
		case <-l.s.stopped:
			return l.bye(ctx, byeShutdown)
		case <-ctx.Done():
			return l.over(ctx, "", context.Cause(ctx))
		}
	}
}

// ending reports whether the listen must end before anything more is told.
func (l *listener) ending(ctx context.Context) bool {
	select {
	case <-l.s.stopped:
		return true
	default:
		return ctx.Err() != nil || !l.expires.IsZero() && !time.Now().Before(l.expires)
	}
}

// readAgain looks at all tasks, in a store that others write too.
func (l *listener) readAgain(ctx context.Context) error {
	for id := range l.told {
		c, err := l.s.engine.Load(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			l.changed = append(l.changed, engine.Seen{ID: id})
		} else if err != nil {
			return err
		} else if c.Version > l.told[id] {
			l.changed = append(l.changed, engine.Seen{ID: id, Call: c})
		}
	}
	return nil
}

// tellNext tells the client one thing that it does not know, if its sender may
// still be told.
func (l *listener) tellNext(ctx context.Context) (bye string, err error) {
	if len(l.changed) == 0 {
		n := l.notices[0]
		l.notices = l.notices[1:]
		if id, err := l.s.identify(ctx, l.r); err != nil || id.principal() != l.by {
			return byeForbidden, nil
		}
		params := map[string]any{}
		for name, v := range n.Params {
			params[name] = v
		}
		return "", l.notify(ctx, n.Method, params)
	}
	seen := l.changed[0]
	l.changed = l.changed[1:]
	told, watched := l.told[seen.ID]
	switch c := seen.Call; {
	case c == nil: // purged: it was told as ended
		delete(l.told, seen.ID)
		return "", nil
	case !watched || c.Version <= told:
		return "", nil
	}
	return l.tell(ctx, seen.Call)
}

// tell sends one task, as tasks/get would show it now.
func (l *listener) tell(ctx context.Context, c *record.Call) (bye string, err error) {
	by, err := l.s.mayUse(ctx, l.r, c, Watch)
	if err != nil {
		if !errors.Is(err, errNoTask) {
			l.s.log.Warn("a listen ends, since nobody can say who its sender is", "err", err)
		}
		return byeForbidden, nil
	}
	now, err := l.s.store.Now(ctx)
	if err != nil {
		return byeFailed, err
	}
	if l.told[c.ID] = c.Version; c.State == record.Ended {
		l.told[c.ID] = math.MaxInt64 // what becomes known of its effects changes nothing that a client sees
	}
	t := l.s.detailed(c, now, by, kindsOf(l.r.Capabilities))
	return "", l.notify(ctx, wire.NotifyTasks, &taskNotice{task: t})
}

// A taskNotice is the params of notifications/tasks.
type taskNotice struct {
	Meta map[string]json.RawMessage `json:"_meta"`
	task
}

// notify sends one notification of this listen.
func (l *listener) notify(ctx context.Context, method string, params any) error {
	switch p := params.(type) {
	case *taskNotice:
		p.Meta = l.meta(ctx, nil)
	case map[string]any:
		own, _ := p["_meta"].(json.RawMessage)
		p["_meta"] = l.meta(ctx, own)
	}
	return l.r.Notify(ctx, method, params)
}

// meta names the listen, in what may have a _meta already.
func (l *listener) meta(ctx context.Context, own json.RawMessage) map[string]json.RawMessage {
	meta := l.s.observer.Give(ctx)
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	if len(own) > 0 {
		_ = json.Unmarshal(own, &meta) // an object that the SDK made
	}
	meta[mcp.MetaKeySubscriptionID] = l.r.ID
	return meta
}

// over ends the listen: with a farewell, unless the client is gone.
func (l *listener) over(ctx context.Context, why string, err error) (json.RawMessage, error) {
	select {
	case <-l.s.stopped: // whatever else has ended because of that
		return l.bye(ctx, byeShutdown)
	default:
	}
	if errors.Is(context.Cause(ctx), wire.ErrShutdown) {
		return l.bye(ctx, byeShutdown)
	}
	if ctx.Err() != nil || why == "" {
		return nil, err
	}
	if err != nil {
		l.s.log.Error("a listen ended", "err", err)
	}
	return l.bye(ctx, why)
}

// bye ends the listen gracefully: notifications/cancelled, then the result.
func (l *listener) bye(ctx context.Context, why string) (json.RawMessage, error) {
	ctx = context.WithoutCancel(ctx)
	err := l.notify(ctx, wire.NotifyCancelled, map[string]any{"requestId": l.r.ID, "reason": why})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"resultType": "complete", "_meta": l.meta(ctx, nil)})
}
