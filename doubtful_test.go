package tallystick_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/memory"
)

// doubtful is a store that applies the first such write of each call and says
// that it failed. happened tells whether there was one.
func doubtful(which func(record.Change) bool) (s store.Store, happened func() bool) {
	var mu sync.Mutex
	done := map[string]bool{}
	s = faulty.New(memory.New(memory.Options{}), func(_ int, c record.Change) faulty.Fault {
		mu.Lock()
		defer mu.Unlock()
		if done[c.ID] || !which(c) {
			return faulty.Fault{}
		}
		done[c.ID] = true
		return faulty.Fault{Err: errors.New("i/o error"), After: true}
	})
	return s, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) > 0
	}
}

// Nobody would hear of it otherwise: the process that wrote it believes that
// nothing has changed.
func TestADoubtfulEndIsTold(t *testing.T) {
	st, happened := doubtful(func(c record.Change) bool { return c.After != nil && c.After.State == record.Ended })
	w := newOverseen(t, setup{tools: jobs("job"), opts: tallystick.Options{Store: st, Limits: tallystick.Limits{Lease: 300 * time.Millisecond}}})
	ann := w.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, status("input_required"))
	e := ann.listen(taskIDs(id))
	e.next()
	e.until("input_required")
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
	told := e.until("completed")
	if got := ann.send("tasks/get", id, nil); !same(told.Params, got.result) {
		t.Errorf("told %v\ngot %v", told.Params, got.result)
	}
	const counted = "gen_ai.tool.name=job,mcp.method.name=tools/call,tallystick.outcome=completed"
	if got := w.collect("tallystick.calls"); got[counted] != 1 || len(got) != 1 {
		t.Errorf("counted: %v", got)
	}
	w.stop()
	if n := strings.Count(w.logged(), "msg=ended"); n != 1 {
		t.Errorf("%d lines say that it has ended", n)
	}
	if got := w.collect("tallystick.calls"); got[counted] != 1 || len(got) != 1 {
		t.Errorf("counted at last: %v", got)
	}
	if !happened() {
		t.Error("no write was in doubt")
	}
}

// The client is told of an error, and need not say it again.
func TestADoubtfulAnswerWakesItsCall(t *testing.T) {
	st, happened := doubtful(func(c record.Change) bool {
		return c.After != nil && c.After.State == record.Ready && len(c.After.Questions) > 0
	})
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{Store: st}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, status("input_required"))
	if r := ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}}); r.err == nil || !happened() {
		t.Fatalf("the write was not in doubt: %s", r.raw)
	}
	ann.await(id, status("completed"))
}

// The run that it was about goes on, with its lease, and no worker is given the
// same call beside it.
func TestADoubtfulPromotionRunsNothingTwice(t *testing.T) {
	const lease = 400 * time.Millisecond
	st, happened := doubtful(announces)
	var mu sync.Mutex
	runs, charges := map[string]int{}, map[string]int{}
	d := newDesk(t, setup{opts: tallystick.Options{Store: st, Limits: tallystick.Limits{Lease: lease}}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "slow"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 20 * time.Millisecond},
			func(ctx context.Context, call *tallystick.Call, in struct{ When string }) (*mcp.CallToolResult, any, error) {
				count := func(of map[string]int) {
					mu.Lock()
					defer mu.Unlock()
					of[in.When]++
				}
				charge := func() error {
					_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int, error) {
						count(charges)
						return 1, nil
					})
					return err
				}
				count(runs)
				if in.When == "before" { // so that the call is kept already
					if err := charge(); err != nil {
						return nil, nil, err
					}
				}
				select {
				case <-time.After(5 * lease / 2):
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
				return said("ok"), nil, charge()
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	got := map[string]chan reply{}
	for _, when := range []string{"before", "after"} {
		got[when] = ann.inBackground("slow", map[string]any{"When": when})
	}
	for when, replies := range got {
		r := <-replies
		if id, ok := r.result["taskId"].(string); ok {
			r = ann.await(id, status("completed"))
			ended := 0
			for _, e := range d.trail(id) {
				if e.Event == "ended" {
					ended++
				}
			}
			if ended != 1 {
				t.Errorf("%s: it ended %d times", when, ended)
			}
		}
		if r.err != nil || !strings.Contains(r.raw, `"ok"`) {
			t.Errorf("%s: %s", when, r.raw)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(runs, charges); got != "map[after:1 before:1] map[after:1 before:1]" {
		t.Errorf("runs and charges: %s", got)
	}
	if !happened() {
		t.Error("no write was in doubt")
	}
}

// The client is told of an error, and its key leads to the call all the same.
func TestADoubtfulOpeningIsFoundByItsKey(t *testing.T) {
	st, happened := doubtful(func(c record.Change) bool { return c.Version == 0 && len(c.Marks) > 0 })
	var charges atomic.Int32
	d := newDesk(t, setup{opts: tallystick.Options{Store: st, Limits: tallystick.Limits{Lease: 300 * time.Millisecond, InlineWait: 10 * time.Second}}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "charge"}, nil,
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int, error) { return int(charges.Add(1)), nil })
				return said("charged"), nil, err
			})
	}})
	ann := d.as("ann/acme", capsForm)
	key := map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}
	if r := ann.send("tools/call", "charge", key); r.err == nil || !happened() {
		t.Fatalf("the write was not in doubt: %s", r.raw)
	}
	if r := ann.send("tools/call", "charge", key); r.text() != "charged" || charges.Load() != 1 {
		t.Errorf("%d charges: %s", charges.Load(), r.raw)
	}
}
