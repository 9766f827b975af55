package tallystick_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

func TestPromise8CapabilityGateComesBeforeLookUp(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "job", tallystick.TaskOptional) }})
	id := d.as("ann/acme", capsTasks).call("job", nil).result["taskId"].(string)
	for _, task := range []string{id, "nope"} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			for _, caps := range []string{capsForm, `{"tasks":{}}`} {
				r := d.as("ann/acme", caps).send(method, task, nil)
				if r.err == nil || r.err.Code != -32021 || r.status != 400 {
					t.Errorf("%s with %s: %d %s", method, caps, r.status, r.raw)
				}
			}
		}
	}
}

func TestPromise8PurgedForeignAndAbsentAreOneError(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Retention: time.Minute}}, tools: func(d *desk) {
		addEcho(d, "job", tallystick.TaskOptional)
		addEcho(d, "kick", tallystick.TaskOptional)
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, status("completed"))
	foreign := d.as("bob/acme", capsTasks).send("tasks/get", id, nil)
	d.clock.Advance(2 * time.Minute)
	ann.call("kick", nil) // the clock of the test moves without waking anybody
	purged := ann.await(id, func(r reply) bool { return r.err != nil })
	absent := ann.send("tasks/get", "nope", nil)
	if *purged.err.err() != *absent.err.err() || *foreign.err.err() != *absent.err.err() || purged.status != absent.status || foreign.status != absent.status {
		t.Fatalf("purged %s, foreign %s, absent %s", purged.raw, foreign.raw, absent.raw)
	}
}

// err is what the peer sees of it, comparable.
func (e *rpcError) err() *struct {
	code          int
	message, data string
} {
	return &struct {
		code          int
		message, data string
	}{e.Code, e.Message, fmt.Sprint(e.Data)}
}

func TestPromise8OneTenantCannotStarveAnother(t *testing.T) {
	release := make(chan struct{})
	var running, most atomic.Int64
	opts := tallystick.Options{Workers: 4, WorkersPerTenant: 2, Limits: tallystick.Limits{LiveCalls: 8}}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		addEcho(d, "quick", tallystick.TaskOptional)
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "slow"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				most.Store(max(most.Load(), running.Add(1)))
				<-release
				running.Add(-1)
				return nil, nil, nil
			})
	}})
	greedy := d.as("eve/greedy", capsTasks)
	for range 8 {
		if r := greedy.call("slow", nil); r.typ() != "task" {
			t.Fatalf("within the quota: %s", r.raw)
		}
	}
	over := greedy.call("slow", nil)
	if over.err == nil || !strings.Contains(over.err.Message, "LiveCalls") || over.status != 429 {
		t.Errorf("over the quota: %d %s", over.status, over.raw)
	}
	modest := d.as("ann/modest", capsTasks)
	id := modest.call("quick", nil).result["taskId"].(string)
	modest.await(id, status("completed"))
	if n := most.Load(); n != 2 {
		t.Errorf("%d of a tenant's runs at once, the limit is 2", n)
	}
	close(release)
}

// case S54, S67
func TestPromise9WaitingHoldsNothing(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addTwoQuestions(d)
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "ask"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, call.Confirm(tallystick.Question{Key: "go", Message: "Go?"})
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	warm := ann.call("ask", nil).result["taskId"].(string)
	ann.await(warm, status("input_required"))
	before := settledGoroutines()
	var ids []string
	for range 300 {
		ids = append(ids, ann.call("ask", nil).result["taskId"].(string))
		d.as("ann/acme", capsForm).call("two", nil)
	}
	for _, id := range ids {
		ann.await(id, status("input_required"))
	}
	if after := settledGoroutines(); after > before+5 {
		t.Errorf("600 waiting calls hold %d goroutines", after-before)
	}
	calls := 0
	for _, e := range allAuditOf(t, d, "stopped") {
		_ = e
		calls++
	}
	if calls != 0 {
		t.Errorf("%d runs died while waiting", calls)
	}
}

func settledGoroutines() int {
	least := runtime.NumGoroutine()
	for range 50 {
		time.Sleep(4 * time.Millisecond)
		least = min(least, runtime.NumGoroutine())
	}
	return least
}

func allAuditOf(t *testing.T, d *desk, event string) []record.Entry {
	t.Helper()
	return slices.DeleteFunc(d.trail(""), func(e record.Entry) bool { return e.Event != event })
}

// case S34: four ends of a question, four facts.
func TestPromise9FourOutcomesAreTold(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{Limits: tallystick.Limits{Question: time.Minute}})
	ann := d.as("ann/acme", capsForm)
	for _, c := range []struct {
		want   string
		answer map[string]any
		after  time.Duration
	}{
		{"declined", map[string]any{"action": "decline"}, 0},
		{"declined", accept(map[string]any{"confirm": false}), 0}, // case S35
		{"dismissed", map[string]any{"action": "cancel"}, 0},
		{"expired", yes, 2 * time.Minute},
	} {
		state := ann.call("refund", order1).state()
		d.clock.Advance(c.after)
		r := ann.retry("refund", order1, state, map[string]any{"approve": c.answer})
		if r.outcome() != c.want || !r.isError() {
			t.Errorf("want %s: %s", c.want, r.raw)
		}
	}
	// case S37: that nobody can be asked is a fifth, and never a yes.
	if r := d.as("ann/acme", capsNone).call("refund", order1); r.err == nil || r.err.Code != -32021 {
		t.Errorf("nobody to ask: %s", r.raw)
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Errorf("%d refunds", n)
	}
}

// case S33: after an expiry, calling again asks again.
func TestPromise9AfterAnExpiryItCanBeAskedAgain(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{Limits: tallystick.Limits{Question: time.Minute}})
	ann := d.as("ann/acme", capsForm)
	state := ann.call("refund", order1).state()
	d.clock.Advance(2 * time.Minute)
	ann.retry("refund", order1, state, map[string]any{"approve": yes})
	again := ann.call("refund", order1)
	if r := ann.retry("refund", order1, again.state(), map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("asked again: %s", r.raw)
	}
}

func TestPromise10EveryChangeIsOnRecordInItsOwnTransaction(t *testing.T) {
	c := &clock{}
	tap := &tapped{Store: memory.New(memory.Options{Now: c.Now})}
	var mu sync.Mutex
	var bare []string
	tap.commit = func(ch record.Change) error {
		mu.Lock()
		defer mu.Unlock()
		if (ch.After != nil || ch.Remove) && len(ch.Audit) == 0 {
			bare = append(bare, ch.ID)
		}
		return nil
	}
	sh := &shop{total: "1"}
	d := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap}, tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	ann := d.as("ann/acme", capsForm)
	first := ann.call("refund", order1)
	sh.mu.Lock()
	sh.version++
	sh.mu.Unlock()
	second := ann.retry("refund", order1, first.state(), map[string]any{"approve": yes})
	ann.retry("refund", order1, second.state(), map[string]any{"approve~2": yes})
	var events []string
	for _, e := range d.trail("") {
		events = append(events, e.Event)
	}
	want := []string{"opened", "asked", "round closed", "answered", "taken", "voided", "asked", "round closed", "answered", "taken", "effect started", "effect ended", "ended"}
	if !slices.Equal(events, want) {
		t.Errorf("the trail:\n%v\nwant:\n%v", events, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bare) > 0 {
		t.Errorf("changes without an audit entry: %v", bare)
	}
}

// Refusals of what does not open are counted and written in batches, outside.
func TestPromise10RefusalsOfForeignBytesAreBatched(t *testing.T) {
	d, _ := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	for range 50 {
		refusedState(t, "garbage", ann.retry("refund", order1, "garbage", nil))
	}
	d.stop() // the last batch is written when the server stops
	n, entries := 0, 0
	for _, e := range d.trail("") {
		if e.Reason == "state_does_not_open" {
			n += e.Count
			entries++
		}
	}
	if n != 50 || entries != 1 {
		t.Errorf("%d refusals in %d entries", n, entries)
	}
}

// However often the same is refused: each refusal about a kept call is on record.
func TestPromise10EachRefusalAboutACallIsAnEntry(t *testing.T) {
	const times = 100
	d, _ := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	first := ann.call("refund", order1)
	if r := ann.retry("refund", order1, first.state(), map[string]any{"approve": yes}); r.isError() {
		t.Fatal(r.raw)
	}
	for range times {
		refusedState(t, "a used round", ann.retry("refund", order1, first.state(), nil))
	}
	refusedState(t, "a thief", d.as("eve/acme", capsForm).retry("refund", order1, first.state(), nil))
	d.stop()
	var id string
	by := map[string]int{}
	for _, e := range d.trail("") {
		switch {
		case e.Event != "refused":
			id = e.Call
		case e.Count == 0 && e.Call == id:
			by[e.By.Subject]++
		}
	}
	if by["ann"] != times || by["eve"] != 1 {
		t.Errorf("%v are on record one by one", by)
	}
}

func TestPromise10NoSecretIsInLogOrTrail(t *testing.T) {
	d, _ := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	args := map[string]any{"orderId": "SECRET-ARGUMENT"}
	first := ann.call("refund", args)
	ann.retry("refund", args, first.state()+"x", nil)
	ann.retry("refund", args, first.state(), map[string]any{"approve": accept(map[string]any{"confirm": "SECRET-ANSWER"})})
	ann.retry("refund", args, first.state(), map[string]any{"approve": yes})
	d.stop()
	trail := fmt.Sprintf("%+v", d.trail("")) + d.log.String()
	for _, secret := range []string{"SECRET-ANSWER", first.state(), "Bearer"} {
		if strings.Contains(trail, secret) {
			t.Errorf("%q is in the log or trail", secret)
		}
	}
	// The subject of an effect is what it was done to; it is named on purpose.
	if strings.Contains(strings.ReplaceAll(trail, "refund [SECRET-ARGUMENT]", ""), "SECRET-ARGUMENT") {
		t.Error("an argument is in the log or trail")
	}
}

func TestPromise11APanicFailsItsCallOnly(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addEcho(d, "fine", tallystick.TaskOptional)
		for _, use := range []tallystick.TaskUse{tallystick.TaskForbidden, tallystick.TaskRequired} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: fmt.Sprintf("panics%d", use)}, &tallystick.ToolOptions{Task: use},
				func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
					panic("boom SECRET")
				})
		}
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "effect"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "e", Subject: "1"}, func(context.Context, string) (int, error) { panic("boom") })
				return nil, nil, err
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	if r := ann.call("panics0", nil); r.err == nil || r.err.Code != -32603 || strings.Contains(r.raw, "SECRET") {
		t.Errorf("inline: %s", r.raw)
	}
	id := ann.call("panics2", nil).result["taskId"].(string)
	if r := ann.await(id, status("failed")); strings.Contains(r.raw, "SECRET") {
		t.Errorf("task: %s", r.raw)
	}
	// A panic within an effect: nobody knows whether it happened.
	held := ann.call("effect", nil).result["taskId"].(string)
	waitFor(t, func() bool { return d.audited(held, "effect held", "") })
	id = ann.call("fine", nil).result["taskId"].(string)
	ann.await(id, status("completed"))
}

// case S45: a peer's answer is never more than an error.
func TestPromise11AcceptWithoutContentAndDefaults(t *testing.T) {
	type form struct {
		Name string `json:"name,omitempty" form:"default=nobody"`
		Age  int    `json:"age,omitempty" form:"minimum=0"`
	}
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "who", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				f, err := tallystick.Ask[form](call, tallystick.Question{Key: "who", Message: "Who?"})
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: f.Name}}}, nil, err
			})
	}})
	ann := d.as("", capsForm)
	for _, answer := range []map[string]any{{"action": "accept"}, {"action": "accept", "content": map[string]any{}}} {
		state := ann.call("who", nil).state()
		if r := ann.retry("who", nil, state, map[string]any{"who": answer}); r.text() != "nobody" {
			t.Errorf("%v: %s", answer, r.raw)
		}
	}
	// case S46, S49, S50
	for what, c := range map[string]struct {
		answer  map[string]any
		outcome string
	}{
		"content of a cancel is not validated": {map[string]any{"action": "cancel", "content": map[string]any{"age": -5}}, "dismissed"},
		"a wrong type":                         {accept(map[string]any{"name": 42}), ""},
		"out of bounds":                        {accept(map[string]any{"age": -5}), ""},
		"nested":                               {accept(map[string]any{"a": map[string]any{"b": 1}}), ""},
		"numbers in a list":                    {accept(map[string]any{"a": []any{1, 2}}), ""},
	} {
		state := ann.call("who", nil).state()
		r := ann.retry("who", nil, state, map[string]any{"who": c.answer})
		if c.outcome != "" && r.outcome() != c.outcome || c.outcome == "" && (r.err == nil || r.err.Code != -32602) {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
}
