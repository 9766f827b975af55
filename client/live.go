package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// live answers what a 2025-era server asks while a request is under way. Such
// a question lives as long as the request: what it asks and the answer are on
// disk like others, and a crash leaves the call unknown, not asked twice.
type live struct {
	l *link

	mu    sync.Mutex // guards what follows
	calls map[*drive]bool
	open  map[any]context.CancelFunc // by the server's request id
}

// errRefused is what a server is told that cannot be declined in another way.
var errRefused = &jsonrpc.Error{Code: -1, Message: "refused by the client's policy"}

func (s *live) began(d *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls, s.open = map[*drive]bool{}, map[any]context.CancelFunc{}
	}
	s.calls[d] = true
}

func (s *live) ended(d *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, d)
}

// take takes a request of the server's that is a question. It does not block.
func (s *live) take(m *jsonrpc.Request) bool {
	switch m.Method {
	case "elicitation/create", "sampling/createMessage", "roots/list":
	default:
		return false
	}
	id := m.ID.Raw()
	ctx, cancel := context.WithCancel(s.l.ctx)
	s.mu.Lock()
	if s.open == nil {
		s.calls, s.open = map[*drive]bool{}, map[any]context.CancelFunc{}
	}
	if len(s.open) >= s.l.c.opts.Limits.Questions {
		s.mu.Unlock()
		cancel()
		s.l.wg.Go(func() {
			s.respond(m, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "too many questions at once"})
		})
		return true
	}
	s.open[id] = cancel
	var calls []*drive
	for d := range s.calls {
		calls = append(calls, d)
	}
	s.mu.Unlock()
	s.l.wg.Go(func() {
		defer cancel()
		response, err := s.answer(ctx, m, calls)
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.respond(m, response, err)
		}
	})
	return true
}

// cancelled takes a question back that the server no longer waits for.
func (s *live) cancelled(id any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel := s.open[id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

func (s *live) respond(m *jsonrpc.Request, result json.RawMessage, err error) {
	r := &jsonrpc.Response{ID: m.ID, Result: result}
	if err != nil {
		var said *jsonrpc.Error
		if !errors.As(err, &said) {
			said = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: errNobody.Error()}
		}
		r = &jsonrpc.Response{ID: m.ID, Error: said}
	}
	if err := s.l.tap.Connection.Write(s.l.ctx, r); err != nil {
		s.l.c.log.Warn("an answer could not be sent", "err", err)
	}
}

// answer finds the answer to a live question: it belongs to the call that is
// under way. With several it cannot be said to which, and stands for itself.
func (s *live) answer(ctx context.Context, m *jsonrpc.Request, calls []*drive) (json.RawMessage, error) {
	params := m.Params
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	raw, err := marshal(map[string]any{"method": m.Method, "params": params})
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	for _, d := range calls {
		d.people(+1)
		defer d.people(-1)
	}
	q := question{Key: fmt.Sprintf("live-%v", m.ID.Raw()), Kind: kind, Request: raw, Live: true, Shown: true}
	if len(calls) == 1 {
		return calls[0].answerLive(ctx, q)
	}
	e := &entry{ID: newID(), Server: s.l.c.opts.Server, Method: methodTool, Stage: stageSent, Questions: []question{q}}
	return s.l.c.answerAlone(ctx, e, q, func(f func(*entry) error) error { return f(e) })
}

// people stops the call's clock while somebody is at a live question.
func (d *drive) people(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.clock == nil:
	case n > 0:
		d.clock.asked()
	default:
		d.clock.answered()
	}
}

// answerLive puts the question on the call's record, and the answer too before
// it is sent.
func (d *drive) answerLive(ctx context.Context, q question) (json.RawMessage, error) {
	if err := d.update(ctx, func(e *entry) error {
		e.Questions = append(e.Questions, q)
		return nil
	}); err != nil {
		return nil, err
	}
	return d.c.answerAlone(ctx, d.entry(), q, func(f func(*entry) error) error { return d.update(context.WithoutCancel(ctx), f) })
}

// answerAlone asks for one answer and keeps it.
func (c *Client) answerAlone(ctx context.Context, e *entry, q question, keep func(func(*entry) error) error) (json.RawMessage, error) {
	shown := e.asked(&q)
	ruling, n := c.opts.Policy.rule(&shown)
	a, by := Decline(), "the policy"
	if n >= 0 {
		by = fmt.Sprintf("rule %d", n)
	}
	var err error
	switch {
	case ruling == Reply:
		a = *c.opts.Policy[n].Answer
	case ruling == Refuse && (q.Kind == Sampling || q.Kind == Roots):
		return nil, errRefused
	case ruling == Refuse:
	case !c.answers(q.Kind):
		return nil, errNobody
	default:
		by = "person"
		if a, err = c.askAnswerer(ctx, shown); err != nil {
			return nil, err
		}
	}
	err = keep(func(e *entry) error { return e.answer(q.Key, a, by) })
	if bad := new(unfit); errors.As(err, &bad) && by == "person" {
		shown.Problem = bad.Error()
		if a, err = c.askAnswerer(ctx, shown); err == nil {
			err = keep(func(e *entry) error { return e.answer(q.Key, a, by) })
		}
	}
	if err != nil {
		return nil, err
	}
	if by != "person" && c.opts.Ruled != nil {
		c.opts.Ruled(shown, a, n)
	}
	return a.response(q.Kind)
}
