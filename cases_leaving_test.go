package tallystick_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// case S72
func TestLeavingStopsReadsAndNoEffect(t *testing.T) {
	entered := make(chan struct{}, 1)
	ended := make(chan error, 1)
	goOn := make(chan struct{})
	noticed := make(chan struct{}, 1) // that the client of an effect has left
	d := newDesk(t, setup{tools: func(d *desk) {
		d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler {
			return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
				res, err := next(ctx, r)
				if r.Name == "act" {
					noticed <- struct{}{}
				}
				return res, err
			}
		})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "read", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
			func(ctx context.Context, _ *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				entered <- struct{}{}
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, nil, ctx.Err()
			})
		d.tool("act", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "act"}, func(effect context.Context, _ string) (string, error) {
				entered <- struct{}{}
				<-goOn
				select { // a little more work
				case <-effect.Done():
				case <-time.After(20 * time.Millisecond):
				}
				ended <- context.Cause(effect)
				return "done", nil
			})
		})
	}})
	cs := overHTTP(t, d, nil)
	for era, call := range map[string]func(context.Context, string) error{
		"2026": func(ctx context.Context, tool string) error {
			_, err := d.as("ann/acme", capsForm).try(ctx, "tools/call", tool, nil)
			return err
		},
		"2025": func(ctx context.Context, tool string) error {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool})
			return err
		},
	} {
		leave := func(tool string) {
			ctx, cancel := context.WithCancel(context.Background())
			left := make(chan error, 1)
			go func() { left <- call(ctx, tool) }()
			<-entered
			cancel()
			if err := <-left; err == nil {
				t.Errorf("%s: %s was answered", era, tool)
			}
		}
		leave("read")
		select {
		case cause := <-ended:
			if cause == nil {
				t.Errorf("%s: a read that nobody waits for goes on", era)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the handler of a read was not told", era)
		}
		before := ends(d)
		leave("act")
		<-noticed
		goOn <- struct{}{}
		if cause := <-ended; cause != nil {
			t.Errorf("%s: an effect was cancelled by its client's leaving: %v", era, cause)
		}
		waitFor(t, func() bool { return ends(d) == before+1 })
	}
}

// ends counts the calls that came to their end.
func ends(d *desk) int {
	n := 0
	for _, e := range d.trail("") {
		if e.Event == "ended" && e.Outcome == record.Completed {
			n++
		}
	}
	return n
}

// A watched store counts who reads which call.
type watched struct {
	store.Store
	id    atomic.Value
	loads atomic.Int64
}

func (s *watched) Load(ctx context.Context, id string) (*record.Call, error) {
	if id == s.id.Load() {
		s.loads.Add(1)
	}
	return s.Store.Load(ctx, id)
}

// case S79
func TestNothingIsPolledForAClientThatLeft(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Store: memory.New(memory.Options{Shared: true})} // every change of any call wakes who waits
	w.id.Store("")
	var polls atomic.Int64
	polling := make(chan struct{}, 1)
	opts := tallystick.Options{Store: w, Keys: keys.AEAD(), Node: "a", Limits: tallystick.Limits{InlineWait: time.Minute}}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		d.tool("kick", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{})
		})
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{Roles: []string{"finance"}})
		})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "poll", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
			func(ctx context.Context, _ *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return nil, nil, ctx.Err()
					case <-tick.C:
						polls.Add(1)
						select {
						case polling <- struct{}{}:
						default:
						}
					}
				}
			})
	}})
	ann := d.as("ann/acme", capsForm)
	leaving := func(tool string, when func()) {
		ctx, leave := context.WithCancel(context.Background())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			ann.try(ctx, "tools/call", tool, nil)
		}()
		when()
		leave()
		<-gone
	}
	still := func(count func() int64) func() bool {
		return func() bool {
			before := count()
			for range 10 {
				ann.call("kick", nil)
			}
			return count() == before
		}
	}
	leaving("poll", func() { <-polling })
	waitFor(t, still(polls.Load))

	leaving("ask", func() {
		waitFor(t, func() bool {
			found, _ := d.srv.Waiting(context.Background(), person("eve", "finance"))
			return len(found) == 1
		})
		w.id.Store(waitingCall(t, d, "ask"))
		waitFor(t, func() bool { ann.call("kick", nil); return w.loads.Load() > 0 }) // somebody waits for it
	})
	waitFor(t, still(w.loads.Load))
}

// case S75, S97: progress reports keep nothing alive.
func TestProgressKeepsNothingAlive(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		report := func(ctx context.Context, call *tallystick.Call, steps int) (string, error) {
			for i := range steps {
				call.Report("on it", float64(i+1), 0)
				select {
				case <-ctx.Done():
					return "", context.Cause(ctx)
				case <-time.After(time.Millisecond):
				}
			}
			return "done", nil
		}
		d.tool("long", nil, func(ctx context.Context, call *tallystick.Call) (string, error) { return report(ctx, call, 80) })
		d.tool("endless", &tallystick.ToolOptions{Timeout: 80 * time.Millisecond}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return report(ctx, call, 3000)
		})
	}})
	ann := d.as("ann/acme", capsForm)
	token := map[string]any{"_meta": map[string]any{"progressToken": "t"}}
	const sent = "notifications/progress"
	if r := ann.call("long", nil); r.text() != "done" || strings.Contains(r.raw, sent) {
		t.Errorf("without a token: %s", r.raw)
	}
	if r := ann.send("tools/call", "long", token); r.text() != "done" || !strings.Contains(r.raw, sent) {
		t.Errorf("with a token: %s", r.raw)
	}
	if r := ann.send("tools/call", "endless", token); r.outcome() != "timeout" || !r.isError() {
		t.Errorf("reporting for ever: %.300s", r.raw)
	}
}
