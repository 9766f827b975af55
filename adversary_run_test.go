package tallystick_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// Timeout bounds the running time of tasks too.
// case S75
func TestTimeoutEndsATask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("slow", &tallystick.ToolOptions{Task: tallystick.TaskRequired, Timeout: 50 * time.Millisecond}, func(ctx context.Context, _ *tallystick.Call) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("slow", nil).result["taskId"].(string)
	end := ann.await(id, func(r reply) bool { return r.result["status"] != "working" })
	if !strings.Contains(end.raw, `"tallystick/outcome":"timeout"`) {
		t.Fatalf("%s", end.raw)
	}
}

// The time that a client of the 2025 era takes to answer is no running time.
func TestTimeoutLeavesOutLiveWaiting(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("pay", &tallystick.ToolOptions{Timeout: 300 * time.Millisecond}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "a", tallystick.Who{}); err != nil {
				return "", err
			}
			if err := confirm(call, "theirs", tallystick.Who{Roles: []string{"finance"}}); err != nil {
				return "", err
			}
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
				return "paid", nil
			}
		})
	}})
	cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		time.Sleep(400 * time.Millisecond) // somebody thinks
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
	}})
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "pay"})
	if err != nil || res.Meta["tallystick/outcome"] != "pending" {
		t.Fatalf("%+v, %v", res, err)
	}
	id := res.Meta["tallystick/call"].(string)
	if err := d.srv.Decide(context.Background(), person("eve", "finance"), tallystick.Decision{CallID: id, Key: "theirs", Accept: true}); err != nil {
		t.Fatal(err)
	}
	ann := d.as("ann/acme", capsForm)
	var last reply
	waitFor(t, func() bool {
		last = ann.call("call_status", map[string]any{"callId": id})
		return last.outcome() != "pending"
	})
	if last.text() != "paid" {
		t.Fatalf("%s", last.raw)
	}
}

// A client of the 2025 era is being asked when the requester answers out of
// band: that answer counts, at once, and the client's own is no error.
func TestOutOfBandAnswerEndsLiveAsking(t *testing.T) {
	opts := tallystick.Options{AnswerAt: func(string, tallystick.Waiting) string { return "https://desk.example" }}
	for name, late := range map[string]bool{"the client says nothing": false, "the client says so too": true} {
		t.Run(name, func(t *testing.T) {
			d, sh := refundDesk(t, tallystick.Who{}, opts)
			asked, decided, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				close(asked)
				if !late {
					<-over
					return nil, errors.New("nobody is there")
				}
				<-decided
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
			}})
			go func() {
				defer close(decided)
				<-asked
				w, err := d.srv.Waiting(context.Background(), person("ann"))
				if err != nil || len(w) != 1 {
					t.Errorf("waiting: %v, %v", w, err)
					return
				}
				if err := d.srv.Decide(context.Background(), person("ann"), tallystick.Decision{CallID: w[0].CallID, Key: w[0].Key, Accept: true}); err != nil {
					t.Error(err)
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "refund", Arguments: order1})
			close(over)
			if err != nil || res.IsError || sh.refunds.Load() != 1 {
				t.Fatalf("%+v, %v, %d refunds", res, err, sh.refunds.Load())
			}
		})
	}
}

// An effect that asks for itself would wait for itself.
func TestOnceWithinItselfIsAnError(t *testing.T) {
	e := tallystick.Effect{Name: "pay", Subject: "1"}
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("nested", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, e, func(ctx context.Context, _ string) (string, error) {
				inner, err := tallystick.Once(ctx, call, e, func(context.Context, string) (string, error) { return "inner", nil })
				if err == nil {
					return inner, nil
				}
				return "outer: " + err.Error(), nil
			})
		})
		d.tool("other", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "a", Subject: "1"}, func(ctx context.Context, _ string) (string, error) {
				return tallystick.Once(ctx, call, tallystick.Effect{Name: "b", Subject: "1"}, func(context.Context, string) (string, error) { return "b in a", nil })
			})
		})
	}})
	ann := d.as("ann/acme", capsForm)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := ann.try(ctx, "tools/call", "nested", nil)
	if err != nil || !strings.HasPrefix(r.text(), "outer: ") {
		t.Fatalf("%s, %v", r.raw, err)
	}
	if r := ann.call("other", nil); r.text() != "b in a" {
		t.Fatalf("another effect: %s", r.raw)
	}
}

// A result that cannot be kept is no reason to do the effect again.
func TestUnkeepableResultIsNotTriedAgain(t *testing.T) {
	var done atomic.Int64
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{ResultBytes: 1000}}, tools: func(d *desk) {
		d.tool("nan", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "nan", Subject: "1", Repeatable: true}, func(context.Context, string) (float64, error) {
				done.Add(1)
				return math.NaN(), nil
			})
			return "", err
		})
		d.tool("big", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "big", Subject: "1", Repeatable: true}, func(context.Context, string) (string, error) {
				done.Add(1)
				return strings.Repeat("x", 2000), nil
			})
			return "", err
		})
		d.tool("chan", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "chan", Subject: "1", Repeatable: true}, func(context.Context, string) (chan int, error) {
				done.Add(1)
				return make(chan int), nil
			})
			return "", err
		})
	}})
	ann := d.as("ann/acme", capsForm)
	for _, tool := range []string{"nan", "big"} {
		done.Store(0)
		if r := ann.call(tool, nil); r.outcome() != "held" || done.Load() != 1 {
			t.Errorf("%s: %s, done %d times", tool, r.raw, done.Load())
		}
	}
	done.Store(0)
	if r := ann.call("chan", nil); !r.isError() || r.outcome() == "held" || done.Load() != 0 {
		t.Errorf("what no JSON can hold: %s, done %d times", r.raw, done.Load())
	}
}

// A handler that exits its goroutine fails its call, as one that panics.
func TestGoexitFailsItsCall(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("exit", nil, func(context.Context, *tallystick.Call) (string, error) {
			runtime.Goexit()
			return "", nil
		})
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := d.as("ann/acme", capsForm).try(ctx, "tools/call", "exit", nil)
	if err != nil || r.err == nil || r.err.Code != -32603 {
		t.Fatalf("%s, %v", r.raw, err)
	}
}

// A handler says pending, and has asked nothing: nobody will ever answer.
// case S11
func TestPendingWithoutAQuestionIsAnError(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("odd", nil, func(context.Context, *tallystick.Call) (string, error) { return "", tallystick.ErrPending })
	}})
	r := d.as("ann/acme", capsForm).call("odd", nil)
	if r.outcome() == "pending" || !r.isError() {
		t.Fatalf("%s", r.raw)
	}
}

// Panics of what the application plugs in cost one request, not the process.
func TestPanicsOfCallbacksAreContained(t *testing.T) {
	var bad atomic.Bool
	opts := tallystick.Options{
		AnswerAt: func(string, tallystick.Waiting) string { panic("boom") },
		Authorize: func(_ context.Context, a tallystick.Access) error {
			if bad.Load() && a.Stored && a.Verb == tallystick.Resume {
				panic("boom")
			}
			return nil
		},
	}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{Roles: []string{"finance"}})
		})
		addEcho(d, "job", tallystick.TaskRequired)
	}})
	ann := d.as("ann/acme", capsTasks)
	if r := ann.call("ask", nil); r.err == nil || r.err.Code != -32603 {
		t.Errorf("AnswerAt: %s", r.raw)
	}
	bad.Store(true)
	id := ann.call("job", nil).result["taskId"].(string)
	time.Sleep(50 * time.Millisecond)
	bad.Store(false)
	ann.await(id, status("completed"))
}

// A store that fails is asked again and again, but not without a pause.
func TestFailingStoreIsNotHammered(t *testing.T) {
	c := &clock{}
	tap := &tapped{Store: memory.New(memory.Options{Now: c.Now})}
	var broken atomic.Bool
	var tries atomic.Int64
	tap.commit = func(record.Change) error {
		if broken.Load() {
			tries.Add(1)
			return store.ErrFull
		}
		return nil
	}
	d := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap}, tools: func(d *desk) {
		addEcho(d, "job", tallystick.TaskRequired)
		d.tool("ask", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", call.Confirm(tallystick.Question{Key: "q", Message: "?", Within: 100 * time.Millisecond})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	ids := []string{ann.call("ask", nil).result["taskId"].(string)}
	ann.await(ids[0], status("input_required"))
	broken.Store(true) // now it expires, and that cannot be stored
	time.Sleep(400 * time.Millisecond)
	if n := tries.Load(); n == 0 || n > 5 {
		t.Errorf("expiring: %d tries in 0.3 s", n)
	}
	broken.Store(false)
	ann.await(ids[0], status("completed"))
}

// What reports say never goes backwards, in notifications neither.
func TestProgressNotificationsRise(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("steps", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			call.Report("one", 1, 3)
			call.Report("nonsense", math.NaN(), math.Inf(1))
			call.Report("two", 2, 3)
			err := confirm(call, "q", tallystick.Who{})
			return "done", err
		})
	}})
	var mu sync.Mutex
	var seen []float64
	cs := overHTTP(t, d, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, n.Params.Progress)
		},
	})
	p := &mcp.CallToolParams{Name: "steps"}
	p.SetProgressToken("t")
	if res, err := cs.CallTool(context.Background(), p); err != nil || res.IsError {
		t.Fatalf("%+v, %v", res, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen[0] != 1 || seen[1] != 2 {
		t.Errorf("progress %v", seen)
	}
}

// A drain lets a repeatable effect that fails be tried again by the next
// process, and tells handlers that the store does not know of.
// case S71
func TestDrainHandsBack(t *testing.T) {
	mem := memory.New(memory.Options{})
	var tries atomic.Int64
	var healthy atomic.Bool
	began := make(chan struct{}, 8)
	tools := func(d *desk) {
		d.tool("pay", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1", Repeatable: true}, func(context.Context, string) (string, error) {
				tries.Add(1)
				if healthy.Load() {
					return "paid", nil
				}
				began <- struct{}{}
				return "", errors.New("the far side is down")
			})
		})
		d.tool("deaf", nil, func(ctx context.Context, _ *tallystick.Call) (string, error) {
			began <- struct{}{}
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
	}
	lim := tallystick.Limits{Drain: time.Second}
	first := newDesk(t, setup{opts: tallystick.Options{Store: mem, Limits: lim}, tools: tools})
	ann := first.as("ann/acme", capsTasks)
	got := make(chan reply, 1)
	go func() {
		r, _ := ann.try(context.Background(), "tools/call", "deaf", nil)
		got <- r
	}()
	<-began
	id := ann.call("pay", nil).result["taskId"].(string)
	<-began
	start := time.Now()
	first.stop()
	if took := time.Since(start); took > 900*time.Millisecond {
		t.Errorf("the drain took %v: a handler was not told of it", took)
	}
	if r := <-got; r.err == nil || r.status != 503 {
		t.Errorf("the handler that was told: %d %s", r.status, r.raw)
	}
	healthy.Store(true)
	second := newDesk(t, setup{opts: tallystick.Options{Store: mem}, tools: tools})
	second.as("ann/acme", capsTasks).await(id, status("completed"))
}

// Waiting for others does not hold up a shutdown.
// case S71
func TestDrainEndsInlineWaits(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: time.Minute, Drain: 5 * time.Second}}, tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{Roles: []string{"finance"}})
		})
	}})
	got := make(chan reply, 1)
	go func() {
		r, _ := d.as("ann/acme", capsForm).try(context.Background(), "tools/call", "ask", nil)
		got <- r
	}()
	waitFor(t, func() bool { return d.audited("", "round closed", "") })
	start := time.Now()
	d.stop()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the drain took %v", took)
	}
	if r := <-got; r.outcome() != "pending" {
		t.Errorf("the wait ended with: %s", r.raw)
	}
}
