package tallystick_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

var finance = tallystick.Who{Roles: []string{"finance"}}

// An update asks about each answer by its question, as a retry does. One that
// is refused takes the others with it.
func TestAnUpdateIsAuthorisedByQuestion(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	d := newDesk(t, setup{opts: tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
		mu.Lock()
		defer mu.Unlock()
		if a.Verb == tallystick.Reply {
			asked = append(asked, a.Question)
		}
		if a.Question == "transfer" {
			return errors.New("not this one")
		}
		return nil
	}}, tools: func(d *desk) {
		d.tool("task", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", errors.Join(confirm(call, "first", tallystick.Who{}), confirm(call, "transfer", tallystick.Who{}))
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("task", nil).result["taskId"].(string)
	ann.await(id, status("input_required"))
	absent := ann.send("tasks/get", "nope", nil)
	update := func(answers map[string]any, refused bool, want ...string) {
		t.Helper()
		mu.Lock()
		asked = nil
		mu.Unlock()
		r := ann.send("tasks/update", id, map[string]any{"inputResponses": answers})
		mu.Lock()
		defer mu.Unlock()
		if (r.err != nil) != refused || refused && r.err.Message != absent.err.Message || !slices.Equal(asked, want) {
			t.Errorf("%v: %s, and asked about %q", answers, r.raw, asked)
		}
	}
	update(map[string]any{"first": yes, "transfer": yes}, true, "first", "transfer")
	if d.audited(id, "answered", "") || !d.audited(id, "refused", record.ReasonNotAllowed) {
		t.Errorf("after a refusal: %+v", d.trail(id))
	}
	update(map[string]any{"none": yes}, false, "")
	update(map[string]any{"first": yes}, false, "first")
	if !d.audited(id, "answered", "") {
		t.Errorf("after an answer: %+v", d.trail(id))
	}
}

// goesOn is a tool whose handler runs again within the request: a finance answer
// comes while a 2025-era client is asked.
type goesOn struct {
	*desk
	mu      sync.Mutex
	asked   []tallystick.Access
	deny    atomic.Bool
	effects atomic.Int64
}

func newGoesOn(t *testing.T) *goesOn {
	g := &goesOn{}
	g.desk = newDesk(t, setup{opts: tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked = append(g.asked, a)
		if a.Verb == tallystick.Resume && g.deny.Load() {
			return errors.New("withdrawn")
		}
		return nil
	}}, tools: func(d *desk) {
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "q", finance); err != nil {
				return "", err
			}
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"}, func(context.Context, string) (int64, error) { return g.effects.Add(1), nil })
			return "paid", err
		})
	}})
	return g
}

// call has ann, who holds the role, asked live; eve decides after meanwhile.
func (g *goesOn) call(t *testing.T, token string, meanwhile func()) (res *mcp.CallToolResult, call string) {
	t.Helper()
	asked, told := make(chan struct{}), make(chan struct{})
	defer close(told)
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: g.url, HTTPClient: httpClient(token)}, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		close(asked)
		<-told // a token that has expired carries no answer either
		return nil, errors.New("nobody")
	}})
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		<-asked
		w, err := g.srv.Waiting(t.Context(), person("eve", "finance"))
		if err != nil || len(w) != 1 {
			t.Errorf("waiting: %v, %v", w, err)
			return
		}
		call = w[0].CallID
		meanwhile()
		if err := g.srv.Decide(t.Context(), person("eve", "finance"), tallystick.Decision{CallID: call, Key: "q", Accept: true}); err != nil {
			t.Error(err)
		}
	}()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	<-decided
	return res, call
}

// A live request is authorised anew before its handler runs again. Refused, it
// is told so, and its call waits.
func TestALiveRequestIsAuthorisedToGoOn(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		g := newGoesOn(t)
		res, call := g.call(t, "ann/acme/finance", func() { g.deny.Store(withdrawn) })
		g.mu.Lock()
		if !slices.ContainsFunc(g.asked, func(a tallystick.Access) bool {
			return a.Verb == tallystick.Resume && !a.Stored && a.CallID == call && a.By.Subject == "ann"
		}) {
			t.Errorf("asked %+v", g.asked)
		}
		g.mu.Unlock()
		g.ends(t, call, res, withdrawn)
	}
}

// Nobody is their token for longer than it is valid.
func TestALiveRequestDoesNotOutliveItsToken(t *testing.T) {
	g := newGoesOn(t)
	expires := time.Now().Add(2 * time.Second)
	res, call := g.call(t, "ann/acme/finance//"+expires.Format(time.RFC3339Nano), func() { time.Sleep(time.Until(expires)) })
	g.ends(t, call, res, true)
}

func (g *goesOn) ends(t *testing.T, call string, res *mcp.CallToolResult, refused bool) {
	t.Helper()
	c, err := g.store.Load(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	outcome, state, effects := any("not_allowed"), record.Waiting, int64(0)
	if !refused {
		outcome, state, effects = nil, record.Ended, 1
	}
	if res.Meta["tallystick/outcome"] != outcome || res.IsError != refused || c.State != state || g.effects.Load() != effects {
		t.Errorf("refused %v: %+v, the call is %s, %d effects", refused, res, c.State, g.effects.Load())
	}
	if g.audited(call, "refused", record.ReasonNotAllowed) != refused {
		t.Errorf("refused %v: %+v", refused, g.trail(call))
	}
}

// What was asked is answered while the handler returns, so that it runs again
// within a request of the present era: also that is authorised.
func TestARunWithNothingLeftToAskIsAuthorisedToGoOn(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		var deny atomic.Bool
		var runs atomic.Int64
		d := newDesk(t, setup{opts: tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
			if deny.Load() && a.Verb == tallystick.Resume && !a.Stored {
				return errors.New("withdrawn")
			}
			return nil
		}}, tools: func(d *desk) {
			d.tool("export", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
				n := runs.Add(1)
				err := errors.Join(confirm(call, "a", tallystick.Who{}), confirm(call, "b", finance))
				if n == 2 {
					w, _ := d.srv.Waiting(t.Context(), person("eve", "finance"))
					for _, w := range w {
						if err := d.srv.Decide(t.Context(), person("eve", "finance"), tallystick.Decision{CallID: w.CallID, Key: w.Key, Accept: true}); err != nil {
							t.Error(err)
						}
					}
					deny.Store(withdrawn)
				}
				return "exported", err
			})
		}})
		ann := d.as("ann/acme", capsForm)
		first := ann.call("export", nil).state()
		r := ann.retry("export", nil, first, map[string]any{"a": yes})
		if !withdrawn {
			if r.text() != "exported" || runs.Load() != 3 {
				t.Errorf("allowed: %s after %d runs", r.raw, runs.Load())
			}
			continue
		}
		if r.outcome() != "not_allowed" || runs.Load() != 2 {
			t.Errorf("withdrawn: %s after %d runs", r.raw, runs.Load())
		}
		deny.Store(false) // and the same request goes on with it
		if r := ann.retry("export", nil, first, map[string]any{"a": yes}); r.text() != "exported" {
			t.Errorf("allowed again: %s", r.raw)
		}
	}
}

// A request whose round is closed and answered elsewhere before it is told goes on
// with the next round. It is asked about once, before the round is claimed.
func TestAClaimWithinARequestIsAuthorisedOnce(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		var d *desk
		var deny atomic.Bool
		var resumes, runs atomic.Int64
		var id string
		st := slowStore{memory.New(memory.Options{}), func(call string) {
			if id = call; deny.Load() {
				return
			}
			if err := d.srv.Decide(t.Context(), person("ann"), tallystick.Decision{CallID: call, Key: "q", Accept: true}); err != nil {
				t.Error(err)
			}
			deny.Store(withdrawn)
		}}
		d = newDesk(t, setup{opts: tallystick.Options{Store: st, Authorize: func(_ context.Context, a tallystick.Access) error {
			if a.Verb == tallystick.Resume {
				if resumes.Add(1); deny.Load() {
					return errors.New("withdrawn")
				}
			}
			return nil
		}}, tools: func(d *desk) {
			d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
				runs.Add(1)
				return "done", confirm(call, "q", tallystick.Who{})
			})
		}})
		r := d.as("ann/acme", capsForm).call("ask", nil)
		c, err := st.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if resumes.Load() != 1 {
			t.Errorf("withdrawn %v: asked %d times", withdrawn, resumes.Load())
		}
		if !withdrawn {
			if r.text() != "done" || runs.Load() != 2 || c.Epoch != 2 {
				t.Errorf("allowed: %s after %d runs, epoch %d", r.raw, runs.Load(), c.Epoch)
			}
			continue
		}
		if r.outcome() != "not_allowed" || runs.Load() != 1 || c.State != record.Waiting || c.Epoch != 1 || c.Runs != 1 || len(c.Rounds) != 1 || !c.Rounds[0].Closed {
			t.Errorf("withdrawn: %s after %d runs, the call %+v", r.raw, runs.Load(), c)
		}
	}
}

// A panic of Authorize refuses, also where it is the application that calls.
func TestAPanicOfAuthorizeIsARefusal(t *testing.T) {
	var bad atomic.Bool
	d := newDesk(t, setup{opts: tallystick.Options{Authorize: func(context.Context, tallystick.Access) error {
		if bad.Load() {
			panic("boom")
		}
		return nil
	}}, tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", finance)
		})
	}})
	ann, eve := d.as("ann/acme", capsForm), person("eve", "finance")
	ann.call("ask", nil)
	w, err := d.srv.Waiting(t.Context(), eve)
	if err != nil || len(w) != 1 {
		t.Fatalf("%v, %v", w, err)
	}
	bad.Store(true)
	if w, err := d.srv.Waiting(t.Context(), eve); err != nil || len(w) != 0 {
		t.Errorf("waiting: %v, %v", w, err)
	}
	if err := d.srv.Decide(t.Context(), eve, tallystick.Decision{CallID: w[0].CallID, Key: "q", Accept: true}); !errors.Is(err, tallystick.ErrNoQuestion) {
		t.Errorf("decide: %v", err)
	}
	if r := ann.call("ask", nil); r.outcome() != "not_allowed" {
		t.Errorf("begin: %s", r.raw)
	}
}
