//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/record"
)

// live asks the client of a 2025-era session, while its request waits. What is
// settled otherwise meanwhile is asked no longer.
func (x *exchange) live(ctx context.Context, run *engine.Run, mine []record.Question) (way, json.RawMessage, error) {
	c, err := run.Put(ctx, nil)
	if err != nil {
		return responds, nil, err
	}
	if c.State != record.Running {
		res, err := x.status(c)
		return responds, res, err
	}
	open := slices.DeleteFunc(c.Open(), func(q record.Question) bool {
		return !slices.ContainsFunc(mine, func(m record.Question) bool { return m.Key == q.Key })
	})
	got, err := x.askAll(ctx, run, open)
	if err != nil {
		res, err := x.finish(ctx, run, x.failed(err))
		return responds, res, err
	}
	if err := x.s.mayReply(ctx, c, x.access(c, Reply), got.given); err != nil {
		res, err := x.finish(ctx, run, x.failed(err))
		return responds, res, err
	}
	err = run.Respond(ctx, x.by, func(c *record.Call, now time.Time) []record.Event {
		return append([]record.Event{record.TimePassed{}}, got.events(c, x, now)...)
	})
	if err != nil {
		return responds, nil, err
	}
	if c := run.Call(); c.State == record.Ended { // meanwhile, by its deadline
		res, err := x.status(c)
		return responds, res, err
	}
	settled := func(q record.Question) bool { return run.Call().Question(q.WireKey).State != record.Open }
	if got.consent && !slices.ContainsFunc(open, settled) {
		c, err := run.Put(ctx, &record.Paused{Background: true})
		if err != nil {
			return responds, nil, err
		}
		res, err := x.pend(c)
		return responds, res, err
	}
	return runsAgain, nil, nil
}

// askAll asks all questions at once, each until it is answered, settled by
// somebody else, in this process or another, or expired by the store's clock. An
// error is the client's, and ends them all: the call fails with it.
func (x *exchange) askAll(ctx context.Context, run *engine.Run, open []record.Question) (*answers, error) {
	watch := x.s.engine.Watch(run.Call().ID)
	defer watch.Stop()
	now, err := x.s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	all, end := context.WithCancel(x.values)
	defer end()
	defer context.AfterFunc(run.Context(), end)()
	var wg sync.WaitGroup
	given := make([]*given, len(open))
	errs := make([]error, len(open))
	no := make([]context.CancelFunc, len(open))
	for i := range open {
		var one context.Context
		one, no[i] = context.WithTimeout(all, open[i].Expires.Sub(now))
		wg.Go(func() {
			defer no[i]()
			g, err := x.askLive(one, &open[i])
			if err == nil {
				given[i] = g
			} else if one.Err() == nil {
				errs[i] = fmt.Errorf("the client could not be asked %q: %s", open[i].Key, notAsked(err))
				end()
			}
		})
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		wg.Wait()
	}()
	for {
		other := x.s.store.Wake()
		run.Refresh(x.values)
		for i, q := range open {
			if run.Call().Question(q.WireKey).State != record.Open {
				no[i]()
			}
		}
		select {
		case <-watch.C:
		case <-other:
		case <-asked:
			return collect(given), errors.Join(errs...)
		}
	}
}

// notAsked says why, without what the client answered: the SDK's errors quote it.
func notAsked(err error) string {
	var je *jsonrpc.Error
	var bad *badAnswer
	switch {
	case errors.As(err, &je):
		return fmt.Sprintf("it answered with error %d", je.Code)
	case errors.As(err, &bad):
		return bad.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, mcp.ErrConnectionClosed):
		return err.Error()
	}
	return "its answer could not be read"
}

// A badAnswer says what is wrong with an answer, without its values.
type badAnswer struct{ why string }

func (b *badAnswer) Error() string { return b.why }

// collect makes answers of those that were given.
func collect(given []*given) *answers {
	got := &answers{}
	for _, g := range given {
		if g != nil {
			got.given = append(got.given, *g)
			got.consent = got.consent || g.consent
		}
	}
	return got
}

// askLive sends one question to the client of a 2025-era session and waits for
// the answer.
func (x *exchange) askLive(ctx context.Context, q *record.Question) (*given, error) {
	result, err := x.send(ctx, q)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	if n := x.s.limits.AnswerBytes; len(raw) > n {
		return nil, &badAnswer{limitError("AnswerBytes", len(raw), n).Error()}
	}
	g, wrong := readAnswer(q, raw)
	if wrong != nil {
		return nil, &badAnswer{fmt.Sprintf("its answer does not fit: %v", wrong)}
	}
	return &g, nil
}

func (x *exchange) send(ctx context.Context, q *record.Question) (any, error) {
	ss := x.r.Session
	meta := mcp.Meta{}
	for name, value := range x.s.observer.Give(x.values) {
		meta[name] = value
	}
	switch q.Kind {
	case record.KindRoots:
		return ss.ListRoots(ctx, &mcp.ListRootsParams{Meta: meta})
	case record.KindSampling:
		var p mcp.CreateMessageWithToolsParams
		if err := json.Unmarshal(q.Request, &p); err != nil {
			return nil, err
		}
		for name, value := range p.Meta { // the handler's own
			meta[name] = value
		}
		p.Meta = meta
		return ss.CreateMessageWithTools(ctx, &p)
	case record.KindForm, record.KindURL:
		var p struct {
			Mode    string          `json:"mode"`
			Message string          `json:"message"`
			Schema  json.RawMessage `json:"requestedSchema"`
			URL     string          `json:"url"`
			ID      string          `json:"elicitationId"`
		}
		if err := json.Unmarshal(q.Request, &p); err != nil {
			return nil, err
		}
		ep := &mcp.ElicitParams{Meta: meta, Mode: p.Mode, Message: p.Message, URL: p.URL, ElicitationID: p.ID}
		if q.Kind == record.KindForm {
			ep.RequestedSchema = p.Schema
		} else if ep.ElicitationID == "" {
			ep.ElicitationID = q.WireKey // that era requires one
		}
		return ss.Elicit(ctx, ep)
	}
	return nil, errors.New("unknown kind of question")
}
