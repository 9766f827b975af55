package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// live answers what a 2025-era server asks while a request is under way. Such
// a question lives as long as the request: what it asks and the answer are on
// disk like others, and a crash leaves the call unknown, not asked twice.
type live struct {
	l *link

	mu        sync.Mutex // guards what follows
	calls     map[*drive]bool
	open      map[any]*liveQuestion // by the server's request id
	refusing  int                   // refusals that are being sent
	abandoned bool                  // a request was given up: the server may still work on it, and ask
}

// A liveQuestion is under way as long as one of the requests that it may be of.
type liveQuestion struct {
	of     map[*drive]bool
	cancel context.CancelFunc
}

// errRefused is what a server is told that cannot be declined in another way.
var errRefused = &jsonrpc.Error{Code: -1, Message: "refused by the client's policy"}

// began: a request of the call is about to be sent.
func (s *live) began(d *drive) {
	d.forgetLive()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls, s.open = map[*drive]bool{}, map[any]*liveQuestion{}
	}
	s.calls[d] = true
}

// ended: the request is over, with this error. It takes its questions along.
func (s *live) ended(d *drive, err error) {
	var broke *linkError
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, d)
	if errors.As(err, &broke) && broke.kind == lost {
		s.abandoned = true
	}
	for _, q := range s.open {
		if delete(q.of, d); len(q.of) == 0 {
			q.cancel()
		}
	}
}

// take takes a request of the server's that is a question. It does not block.
func (s *live) take(m *jsonrpc.Request) bool {
	switch m.Method {
	case "elicitation/create", "sampling/createMessage", "roots/list":
	default:
		return false
	}
	id := m.ID.Raw()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open[id] != nil: // a response would be taken for the first one's
		s.l.c.log.Debug("a question has the id of one that is open, and is ignored", "id", id)
		return true
	case len(s.calls) == 0:
		s.refuse(m, "no request is under way that this could be a question of")
		return true
	case len(s.open) >= s.l.c.opts.Limits.Questions:
		s.refuse(m, "too many questions at once")
		return true
	}
	ctx, cancel := context.WithCancel(s.l.ctx)
	s.open[id] = &liveQuestion{of: maps.Clone(s.calls), cancel: cancel}
	calls, alone := slices.Collect(maps.Keys(s.calls)), s.abandoned || len(s.calls) > 1
	started := s.l.start(func() {
		defer cancel()
		response, err := s.answer(ctx, m, calls, alone)
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.respond(m, response, err)
		}
	})
	if !started {
		cancel()
		delete(s.open, id)
	}
	return true
}

// refuse turns a question away, unless many refusals wait for a server that
// does not read. The mutex is held.
func (s *live) refuse(m *jsonrpc.Request, why string) {
	if s.refusing >= s.l.c.opts.Limits.Questions {
		return
	}
	s.refusing++
	s.l.start(func() {
		s.respond(m, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why})
		s.mu.Lock()
		s.refusing--
		s.mu.Unlock()
	})
}

// cancelled takes a question back that the server no longer waits for.
func (s *live) cancelled(id any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.open[id]
	if q != nil {
		q.cancel()
	}
	return q != nil
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
// under way. Alone it cannot be said to which, and it stands for itself.
func (s *live) answer(ctx context.Context, m *jsonrpc.Request, calls []*drive, alone bool) (json.RawMessage, error) {
	params := m.Params
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	raw, err := marshal(map[string]any{"method": m.Method, "params": params})
	if err != nil {
		return nil, err
	}
	q, err := readRequest(fmt.Sprintf("live-%v", m.ID.Raw()), raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	for _, d := range calls {
		if !d.mayAsk(1) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "too many questions within one call"}
		}
	}
	for _, d := range calls {
		defer d.people()()
	}
	q.Live, q.Shown = true, true
	if !alone {
		return calls[0].answerLive(ctx, q)
	}
	e := &entry{ID: newID(), Server: s.l.c.opts.Server, Method: methodTool, Stage: stageSent}
	e.Questions = e.numbered([]question{q})
	return s.l.c.answerAlone(ctx, e.asked(&e.Questions[0]), func(f func(*entry) error) error { return f(e) })
}

// mayAsk counts questions other than a round's: a server that asks on and on
// within one request, or in one task, is stopped. It reports whether so many
// more may be asked in this attachment.
func (d *drive) mayAsk(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if limits := &d.c.opts.Limits; d.asks+n > limits.Rounds*limits.Questions {
		return false
	}
	d.asks += n
	return true
}

// people stops the clock of the call's request while somebody is at a live
// question; it returns what lets it go on.
func (d *drive) people() (goOn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock == nil {
		return func() {}
	}
	d.clock.asked()
	return d.clock.answered
}

// forgetLive drops what a request that is over has asked.
func (d *drive) forgetLive() {
	if !slices.ContainsFunc(d.entry().Questions, func(q question) bool { return q.Live }) {
		return
	}
	if err := d.update(d.ctx, d.dropLive); err != nil {
		d.c.log.Debug("questions of an earlier request are still on record", "call", d.id, "err", err)
	}
}

// dropLive drops the live questions that nobody is at: they are answered, or
// their request is over. The mutex is held.
func (d *drive) dropLive(e *entry) error {
	e.Questions = slices.DeleteFunc(e.Questions, func(q question) bool { return q.Live && d.asking[e.questionID(&q)] == nil })
	return nil
}

// answerLive puts the question on the call's record, and the answer too before
// it is sent, whoever gives it.
func (d *drive) answerLive(ctx context.Context, q question) (json.RawMessage, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	var shown Question
	err := d.update(ctx, func(e *entry) error {
		delete(d.asking, shown.ID) // of a version that somebody else was quicker to change
		if err := d.dropLive(e); err != nil {
			return err
		}
		e.Questions = append(e.Questions, e.numbered([]question{q})...)
		shown = e.asked(&e.Questions[len(e.Questions)-1])
		d.asking[shown.ID] = cancel
		return nil
	})
	defer d.leave(shown.ID)
	if err != nil {
		return nil, err
	}
	keep := func(f func(*entry) error) error { return d.update(context.WithoutCancel(ctx), f) }
	response, err := d.c.answerAlone(asking, shown, keep)
	if err == nil {
		return response, nil
	}
	if kept := d.entry().questionByID(shown.ID); kept != nil && kept.Response != nil {
		return kept.Response, nil // somebody else's
	}
	_ = keep(func(e *entry) error { // err counts; it is dropped with the next
		e.Questions = slices.DeleteFunc(e.Questions, func(q question) bool { return e.questionID(&q) == shown.ID })
		return nil
	})
	return nil, err
}

// answerAlone asks for one answer and keeps it.
func (c *Client) answerAlone(ctx context.Context, q Question, keep func(func(*entry) error) error) (json.RawMessage, error) {
	ruling, n := c.opts.Policy.rule(&q)
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
		if a, err = c.askAnswerer(ctx, q); err != nil {
			return nil, err
		}
	}
	record := func(e *entry) error { return e.answer(q.ID, a, by) }
	err = keep(record)
	if bad := new(unfit); errors.As(err, &bad) && by == "person" {
		q.Problem = bad.Error()
		if a, err = c.askAnswerer(ctx, q); err == nil {
			err = keep(record)
		}
	}
	if err != nil {
		return nil, err
	}
	if by != "person" && c.opts.Ruled != nil {
		c.opts.Ruled(q, a, n)
	}
	return a.response(q.Kind)
}
