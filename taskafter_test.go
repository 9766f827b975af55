package tallystick_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/tallysticktest"
)

// A late job charges, waits to be let go on, asks if it is to, and ships.
type late struct {
	after time.Duration
	ask   bool
	went  chan struct{} // receives when a run has charged
	on    chan struct{} // closed to let runs go on

	mu     sync.Mutex
	runs   int
	done   []string
	causes []error
}

func newLate(after time.Duration) *late {
	return &late{after: after, went: make(chan struct{}, 100), on: make(chan struct{})}
}

func (l *late) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, what)
}

func (l *late) did() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.runs, l.done, l.causes)
}

func (l *late) add(s *tallystick.Server) {
	tallystick.AddTool(s, &mcp.Tool{Name: "late"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: l.after},
		func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			l.mu.Lock()
			l.runs++
			l.mu.Unlock()
			effect := func(name string) error {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: name, Repeatable: true}, func(context.Context, string) (bool, error) {
					l.note(name)
					return true, nil
				})
				return err
			}
			if err := effect("charge"); err != nil {
				return nil, nil, err
			}
			call.Report("charged", 1, 2)
			l.went <- struct{}{}
			select {
			case <-l.on:
			case <-ctx.Done():
				l.mu.Lock()
				l.causes = append(l.causes, context.Cause(ctx))
				l.mu.Unlock()
				return nil, nil, ctx.Err()
			}
			call.Report("going on", 2, 2)
			if l.ask {
				if err := call.Confirm(tallystick.Question{Key: "ship", Message: "Ship?"}); err != nil {
					return nil, nil, err
				}
			}
			if err := effect("ship"); err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "shipped"}}}, nil, nil
		})
}

// The running code becomes a task where it is: it goes on, once, and what it has
// done stays done.
func TestACallThatTakesItsTimeBecomesATask(t *testing.T) {
	l := newLate(30 * time.Millisecond)
	d := newDesk(t, setup{tools: func(d *desk) { l.add(d.srv) }})
	ann := d.as("ann/acme", capsTasks)
	r := ann.send("tools/call", "late", map[string]any{"_meta": map[string]any{"progressToken": 1}})
	if r.typ() != "task" || r.result["status"] != "working" || r.result["statusMessage"] != "charged" || r.result["requestState"] != nil {
		t.Fatalf("after its time: %s", r.raw)
	}
	id := r.result["taskId"].(string)
	if got := ann.send("tasks/get", id, nil); got.result["status"] != "working" {
		t.Errorf("then: %s", got.raw)
	}
	close(l.on)
	end := ann.await(id, status("completed"))
	if !strings.Contains(end.raw, `"shipped"`) {
		t.Errorf("at the end: %s", end.raw)
	}
	if got := l.did(); got != "1 [charge ship] []" {
		t.Errorf("done: %s", got)
	}
	if !d.audited(id, "announced", "") {
		t.Error("that it became a task is not on record")
	}
}

// What ends in time is an ordinary call; if it did nothing, nothing is written.
func TestACallThatEndsInTimeStaysInline(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "quick"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: time.Minute},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "at once"}}}, nil, nil
			})
	}})
	if r := d.as("ann/acme", capsTasks).call("quick", nil); r.typ() != "complete" || r.text() != "at once" {
		t.Fatal(r.raw)
	}
	if all, err := d.store.List(context.Background(), store.Filter{Tenant: "acme"}); err != nil || len(all) != 0 {
		t.Errorf("stored: %v %v", all, err)
	}
}

// Without the extension a call stays inline, however long it takes.
func TestWithoutTheExtensionACallStaysInline(t *testing.T) {
	l := newLate(time.Millisecond)
	d := newDesk(t, setup{tools: func(d *desk) { l.add(d.srv) }})
	got := make(chan reply, 1)
	go func() {
		r, _ := d.as("ann/acme", capsForm).try(context.Background(), "tools/call", "late", nil)
		got <- r
	}()
	<-l.went
	select {
	case r := <-got:
		t.Fatalf("after its time: %s", r.raw)
	case <-time.After(50 * time.Millisecond):
	}
	close(l.on)
	if r := <-got; r.typ() != "complete" || r.text() != "shipped" {
		t.Errorf("at the end: %s", r.raw)
	}
}

// A tenant that may have no more calls gets the answer inline.
func TestACallThatMayNotBecomeATaskStaysInline(t *testing.T) {
	release := make(chan struct{})
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{LiveCalls: 1}}, tools: func(d *desk) {
		addJob(d, "job")
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "slow"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: time.Millisecond},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				<-release
				return &mcp.CallToolResult{}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	ann.call("job", nil)
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	if r := ann.call("slow", nil); r.typ() != "complete" || r.err != nil {
		t.Errorf("%s", r.raw)
	}
}

// A question before its time is a round, one after it a task's.
func TestQuestionsGoWhereTheCallIs(t *testing.T) {
	l := newLate(40 * time.Millisecond)
	l.ask = true
	d := newDesk(t, setup{tools: func(d *desk) { l.add(d.srv) }})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("late", nil).result["taskId"].(string)
	close(l.on)
	ann.await(id, status("input_required"))
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"ship": yes}})
	ann.await(id, status("completed"))

	early := newLate(time.Minute)
	early.ask = true
	close(early.on)
	d2 := newDesk(t, setup{tools: func(d *desk) { early.add(d.srv) }})
	ann = d2.as("ann/acme", capsTasks)
	r := ann.call("late", nil)
	if r.typ() != "input_required" || !slices.Equal(r.keys(), []string{"ship"}) {
		t.Fatalf("asked in time: %s", r.raw)
	}
	if r = ann.retry("late", nil, r.state(), map[string]any{"ship": yes}); r.typ() != "complete" || r.text() != "shipped" {
		t.Errorf("then: %s", r.raw)
	}
}

// A retry has its time too, and whoever sends the same meanwhile gets that task.
func TestARetryBecomesATask(t *testing.T) {
	on := make(chan struct{})
	var runs atomic.Int32
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 50 * time.Millisecond},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				if err := call.Confirm(tallystick.Question{Key: "start", Message: "Start?"}); err != nil {
					return nil, nil, err
				}
				runs.Add(1)
				<-on
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	r := ann.call("job", nil)
	got := make([]reply, 4)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			got[i], _ = ann.try(context.Background(), "tools/call", "job", map[string]any{"requestState": r.state(), "inputResponses": map[string]any{"start": yes}})
		})
	}
	all.Wait()
	for _, g := range got {
		if g.typ() != "task" || g.result["taskId"] != got[0].result["taskId"] {
			t.Errorf("%s", g.raw)
		}
	}
	close(on)
	ann.await(got[0].result["taskId"].(string), status("completed"))
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// case S73: once it is a task, only tasks/cancel stops it, and not the client's
// leaving.
func TestAPromotedCallOutlivesItsRequest(t *testing.T) {
	l := newLate(20 * time.Millisecond)
	d := newDesk(t, setup{tools: func(d *desk) { l.add(d.srv) }})
	ann := d.as("ann/acme", capsTasks)
	ctx, leave := context.WithCancel(context.Background())
	r, err := ann.try(ctx, "tools/call", "late", nil)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	id := r.result["taskId"].(string)
	if got := ann.send("tasks/get", id, nil); got.result["status"] != "working" {
		t.Fatalf("without its client: %s", got.raw)
	}
	ann.send("tasks/cancel", id, nil)
	ann.await(id, status("cancelled"))
	if got := l.did(); got != "1 [charge] ["+tallystick.ErrCancelled.Error()+"]" {
		t.Errorf("done: %s", got)
	}
}

// case S98: the same key again, while it runs and afterwards, is the same task.
func TestAKeyFindsThePromotedCall(t *testing.T) {
	l := newLate(50 * time.Millisecond)
	d := newDesk(t, setup{tools: func(d *desk) { l.add(d.srv) }})
	ann := d.as("ann/acme", capsTasks)
	key := map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}
	var both [2]reply
	var all sync.WaitGroup
	for i := range both {
		all.Go(func() { both[i], _ = ann.try(context.Background(), "tools/call", "late", key) })
	}
	all.Wait()
	id, _ := both[0].result["taskId"].(string)
	if id == "" || both[1].result["taskId"] != id {
		t.Fatalf("%s\n%s", both[0].raw, both[1].raw)
	}
	close(l.on)
	ann.await(id, status("completed"))
	if r := ann.send("tools/call", "late", key); r.result["taskId"] != id || r.result["status"] != "completed" {
		t.Errorf("afterwards: %s", r.raw)
	}
}

// Its end and its becoming a task are at each other's throat: one of the two
// happens, and never both or neither.
func TestAnEndAndAPromotionAtOnce(t *testing.T) {
	const after = 2 * time.Millisecond
	var n atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "race"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: after},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				i := n.Add(1)
				if i%3 == 0 {
					if _, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "act"}, func(context.Context, string) (int, error) { return 1, nil }); err != nil {
						return nil, nil, err
					}
				}
				time.Sleep(after + time.Duration(i%13-10)*150*time.Microsecond)
				if i%5 == 0 {
					return nil, nil, call.Confirm(tallystick.Question{Key: "q", Message: "Sure?"})
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	tasks, inline, kept := 0, 0, map[string]bool{}
	for range 300 {
		r := ann.call("race", nil)
		switch r.typ() {
		case "task":
			tasks++
			id := r.result["taskId"].(string)
			if r = ann.await(id, func(r reply) bool { return r.result["status"] != "working" }); r.result["status"] == "input_required" {
				ann.send("tasks/cancel", id, nil)
			} else if !strings.Contains(r.raw, `"ok"`) {
				t.Fatalf("a task: %s", r.raw)
			}
			kept[id] = true
		case "complete":
			inline++
			if r.text() != "ok" {
				t.Fatalf("inline: %s", r.raw)
			}
		case "input_required":
			inline++
		default:
			t.Fatalf("neither: %s", r.raw)
		}
	}
	t.Logf("%d became tasks, %d stayed inline", tasks, inline)
	if tasks == 0 || inline == 0 {
		t.Errorf("%d tasks, %d inline: they never met", tasks, inline)
	}
	all, err := d.store.List(context.Background(), store.Filter{Tenant: "acme", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Task != kept[c.ID] {
			t.Errorf("call %s: a task %v, and its client was told %v", c.ID, c.Task, kept[c.ID])
		}
	}
}

// Killed at every write, before and after, so also at the very one that makes it
// a task: what was done is not done again, and the key leads back to it.
func TestAPromotionSurvivesEveryCrash(t *testing.T) {
	promoted := 0
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		l := newLate(5 * time.Millisecond)
		var again atomic.Bool
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) {
				if again.Swap(true) { // what was running is run by a worker now
					select {
					case <-l.on:
					default:
						close(l.on)
					}
				}
				l.add(s)
			},
			Scenario: func(b *tallysticktest.Bench) {
				ann := b.As(tallystick.Identity{Tenant: "acme", Subject: "ann"}, tallysticktest.Tasks)
				r := ann.CallKeyed("k", "late", nil)
				if r.IsTask() {
					promoted++
				}
				select {
				case <-l.on:
				default:
					close(l.on)
				}
				r.Await("completed")
			},
			Check: func(b *tallysticktest.Bench) {
				l.mu.Lock()
				defer l.mu.Unlock()
				// An effect that was under way is repeated, since it may be, and
				// one that was recorded is not.
				slices.Sort(l.done)
				if got := strings.Join(slices.Compact(l.done), " "); got != "charge ship" || len(l.done) > 3 {
					t.Errorf("done: %v", l.done)
				}
			},
		}
	})
	if promoted < 5 {
		t.Errorf("%d of the trials saw a task", promoted)
	}
}

// Over stdio the connection is still there when the call has become a task: no
// progress of it follows the response.
func TestNoProgressFollowsAPromotion(t *testing.T) {
	l := newLate(20 * time.Millisecond)
	d := newDesk(t, setup{opts: tallystick.Options{AnonymousEffects: true}, tools: func(d *desk) { l.add(d.srv) }})
	line := d.line()
	e := line.hear()
	params := listenParams(capsTasks, nil)
	params["_meta"].(map[string]any)["progressToken"] = 9
	params["name"] = "late"
	delete(params, "notifications")
	line.send(1, "tools/call", params)
	if m := e.next(); m.Method != "notifications/progress" {
		t.Fatalf("first: %+v", m)
	}
	m := e.next()
	id, _ := m.Result["taskId"].(string)
	if id == "" {
		t.Fatalf("then: %+v", m)
	}
	close(l.on)
	for i := 2; ; i++ {
		line.send(i, "tasks/get", map[string]any{"taskId": id, "_meta": listenParams(capsTasks, nil)["_meta"]})
		m := e.next()
		if m.Method != "" {
			t.Fatalf("after the response: %+v", m)
		}
		if m.Result["status"] == "completed" {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTaskAfterIsForOptionalTasks(t *testing.T) {
	for name, o := range map[string]tallystick.ToolOptions{
		"without Task":   {TaskAfter: time.Second},
		"TaskRequired":   {TaskAfter: time.Second, Task: tallystick.TaskRequired},
		"with AskFirst":  {TaskAfter: time.Second, Task: tallystick.TaskOptional, AskFirst: true},
		"a negative one": {TaskAfter: -1, Task: tallystick.TaskOptional},
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "TaskAfter") {
					t.Errorf("%s: %v", name, p)
				}
			}()
			d := newDesk(t, setup{})
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "t"}, &o, func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, nil
			})
		}()
	}
}
