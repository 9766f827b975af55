package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store/sqlite"
)

// A stock client is the SDK's own, of the 2026 era, and what it was sent.
type stock struct {
	*mcp.ClientSession
	requests atomic.Int64
	seen     recorder
}

func (s *stock) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	return s.seen.RoundTrip(r)
}

func newStock(t *testing.T, d *desk, token string, opts *mcp.ClientOptions) *stock {
	t.Helper()
	s := &stock{seen: recorder{next: withToken(token)}}
	c := mcp.NewClient(&mcp.Implementation{Name: "stock", Version: "1"}, opts)
	cs, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: &http.Client{Transport: s}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	s.ClientSession = cs
	return s
}

func textOf(res *mcp.CallToolResult) string {
	if res == nil || len(res.Content) == 0 {
		return ""
	}
	block, _ := res.Content[0].(*mcp.TextContent)
	if block == nil {
		return ""
	}
	return block.Text
}

// sayYes answers every form that is one box.
func sayYes(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
}

// case S09: the SDK's client decodes a task into a result that is empty, and no
// error. It is never sent one: it gets the whole result, or an error that names
// what it lacks. Who declares the extension gets the task, marked as what it is
// and with nothing that a result has.
func TestAStockClientIsNeverSentATask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addEcho(d, "job", tallystick.TaskOptional)
		addEcho(d, "need", tallystick.TaskRequired)
		d.tool("asks", &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: time.Millisecond}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", confirm(call, "go", tallystick.Who{})
		})
	}})
	ctx := context.Background()
	c := newStock(t, d, "ann/acme", &mcp.ClientOptions{ElicitationHandler: sayYes})
	for _, tool := range []string{"job", "asks"} {
		if res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool}); err != nil || res.IsError || textOf(res) != "done" {
			t.Errorf("%s: %+v, %v", tool, res, err)
		}
	}
	if res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "need"}); err == nil || !strings.Contains(err.Error(), "Tasks extension") {
		t.Errorf("need: %+v, %v", res, err)
	}
	if all := c.seen.all.String(); strings.Contains(all, `"resultType":"task"`) || strings.Contains(all, `"taskId"`) {
		t.Errorf("it was sent a task: %s", all)
	}

	declares := &mcp.ClientCapabilities{}
	declares.AddExtension("io.modelcontextprotocol/tasks", map[string]any{})
	c = newStock(t, d, "ann/acme", &mcp.ClientOptions{Capabilities: declares})
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "job"}); err != nil {
		t.Errorf("declared: %v", err)
	}
	all := c.seen.all.String()
	if !strings.Contains(all, `"resultType":"task"`) || !strings.Contains(all, `"taskId"`) || strings.Contains(all, `"content"`) || strings.Contains(all, `"isError"`) {
		t.Errorf("declared: %s", all)
	}
}

// case S10: whatever a middleware sees of a result, its client gets: a round
// with its questions and its state, a task with its id, by their own members.
func TestAMiddlewarePassesRoundsAndTasksOnUntouched(t *testing.T) {
	var mu sync.Mutex
	var logged json.RawMessage
	d := newDesk(t, setup{tools: func(d *desk) {
		d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler { // a logger
			return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
				res, err := next(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				logged = slices.Clone(res)
				return res, err
			}
		})
		d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler { // a formatter
			return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
				res, err := next(ctx, r)
				var members map[string]json.RawMessage
				if err != nil || json.Unmarshal(res, &members) != nil {
					return res, err
				}
				return json.Marshal(members)
			}
		})
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskOptional}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", confirm(call, "go", tallystick.Who{})
		})
	}})
	check := func(what string, r reply, members ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		var saw map[string]any
		if err := json.Unmarshal(logged, &saw); err != nil || r.err != nil {
			t.Fatalf("%s: %s, %v", what, r.raw, err)
		}
		delete(saw, "_meta")
		sent := maps.Clone(r.result)
		delete(sent, "_meta")
		if !reflect.DeepEqual(saw, sent) {
			t.Errorf("%s: the middleware saw %v\nthe client got %v", what, saw, sent)
		}
		for _, m := range append(members, "resultType") {
			if sent[m] == nil {
				t.Errorf("%s has no %s: %s", what, m, r.raw)
			}
		}
	}
	rounds, tasks := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks)
	asked := rounds.call("job", nil)
	check("a round", asked, "inputRequests", "requestState")
	check("the last round", rounds.retry("job", nil, asked.state(), map[string]any{"go": yes}), "content")
	created := tasks.call("job", nil)
	check("a task", created, "taskId", "status")
	id := created.result["taskId"].(string)
	check("a task that asks", tasks.await(id, status("input_required")), "inputRequests", "taskId")
	tasks.update(id, map[string]any{"go": yes})
	check("a task's end", tasks.await(id, status("completed")), "result")
}

// case S13: while a person thinks for minutes, the driver of a stock client has
// nothing to retry: one bounded request, an honest answer, and a way to ask
// again whose answers are as honest.
func TestAStockClientIsNotWornOutByAPersonWhoThinks(t *testing.T) {
	const hold = 50 * time.Millisecond
	d, sh := refundDesk(t, tallystick.Who{Roles: []string{"finance"}}, tallystick.Options{Limits: tallystick.Limits{InlineWait: hold}})
	ctx := context.Background()
	c := newStock(t, d, "ann/acme", &mcp.ClientOptions{ElicitationHandler: sayYes})
	before, start := c.requests.Load(), time.Now()
	res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "refund", Arguments: order1})
	if err != nil || res.NeedsInput() || res.Meta["tallystick/outcome"] != "pending" || !strings.Contains(textOf(res), "call_status") {
		t.Fatalf("while somebody thinks: %+v, %v", res, err)
	}
	if took := time.Since(start); took < hold {
		t.Errorf("it was not held for somebody quick: %v", took)
	}
	if n := c.requests.Load() - before; n != 1 {
		t.Errorf("%d requests", n)
	}
	id, _ := res.Meta["tallystick/call"].(string)
	look := func() *mcp.CallToolResult {
		res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "call_status", Arguments: map[string]any{"callId": id}})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	d.clock.Advance(5 * time.Minute)
	for range 20 { // more often than any driver would retry
		if res := look(); res.IsError || res.Meta["tallystick/outcome"] != "pending" || sh.refunds.Load() != 0 {
			t.Fatalf("five minutes later: %+v", res)
		}
	}
	if err := d.srv.Decide(ctx, person("eve", "finance"), tallystick.Decision{CallID: id, Key: "approve", Accept: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return look().Meta["tallystick/outcome"] == "completed" })
	if n := sh.refunds.Load(); n != 1 {
		t.Errorf("%d refunds", n)
	}
}

// case S18: one handler, a client of each era: the same result, byte by byte,
// and permission was asked as often.
func TestBothErasGetTheSameResult(t *testing.T) {
	type order struct {
		Items []string `json:"items"`
		Total float64  `json:"total"`
	}
	var mu sync.Mutex
	asked := map[string]map[tallystick.Verb]int{}
	opts := tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
		mu.Lock()
		defer mu.Unlock()
		if asked[a.By.Client] == nil {
			asked[a.By.Client] = map[tallystick.Verb]int{}
		}
		asked[a.By.Client][a.Verb]++
		return nil
	}}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "order"}, nil, func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, order, error) {
			var o order
			for i := range 3 {
				c, err := tallystick.Ask[codeOf](call, tallystick.Question{Key: fmt.Sprint("item", i), Message: fmt.Sprint("Item ", i)})
				if err != nil {
					return nil, o, err
				}
				o.Items = append(o.Items, c.Code)
			}
			n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "order"}, func(context.Context, string) (float64, error) { return 3, nil })
			o.Total = n
			return nil, o, err
		})
	}})
	code := func(key string) map[string]any { return map[string]any{"code": "<of " + key + ">"} }

	modern := d.as("ann/acme//modern", capsForm)
	r := modern.call("order", nil)
	for r.typ() == "input_required" {
		answers := map[string]any{}
		for _, key := range r.keys() {
			answers[key] = accept(code(strings.TrimPrefix(key, "item")))
		}
		r = modern.retry("order", nil, r.state(), answers)
	}
	seen := &recorder{next: withToken("ann/acme//legacy")}
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: &http.Client{Transport: seen}}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: code(strings.TrimPrefix(r.Params.Message, "Item "))}, nil
		},
	})
	if _, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "order"}); err != nil {
		t.Fatal(err)
	}
	// members are what a result has to say, as it was sent.
	members := func(raw string) (found []string) {
		for line := range strings.Lines(raw) {
			var m struct {
				Result map[string]json.RawMessage `json:"result"`
			}
			if json.Unmarshal([]byte(strings.TrimPrefix(line, "data:")), &m) == nil && m.Result["structuredContent"] != nil {
				for _, name := range []string{"content", "structuredContent", "isError"} {
					found = append(found, name+": "+string(m.Result[name]))
				}
			}
		}
		return found
	}
	old, now := members(seen.all.String()), members(r.raw)
	if !slices.Equal(old, now) || len(now) != 3 || !strings.Contains(now[1], `"total":3`) || !strings.Contains(now[1], "of 2") {
		t.Errorf("2025: %q\n2026: %q", old, now)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, verb := range []tallystick.Verb{tallystick.Begin, tallystick.Reply, tallystick.Act} {
		want := map[tallystick.Verb]int{tallystick.Begin: 1, tallystick.Reply: 3, tallystick.Act: 1}[verb]
		if asked["legacy"][verb] != want || asked["modern"][verb] != want {
			t.Errorf("Authorize was asked %q %d times of 2025, %d times of 2026, want %d", verb, asked["legacy"][verb], asked["modern"][verb], want)
		}
	}
}

// case S77: how often to poll is told with the task, before its first poll. Who
// does not keep to it is served all the same, and finds the same; so an update
// is never late by an interval.
func TestWhoPollsTooOftenIsServed(t *testing.T) {
	d, ann := updatesDesk(t)
	created := ann.call("job", nil)
	if poll, _ := created.result["pollIntervalMs"].(float64); poll < 100 || poll > 5000 {
		t.Errorf("told with the task: %s", created.raw)
	}
	id := created.result["taskId"].(string)
	first := ann.await(id, status("input_required"))
	if first.result["pollIntervalMs"] != created.result["pollIntervalMs"] {
		t.Errorf("told at first %v, then %v", created.result["pollIntervalMs"], first.result["pollIntervalMs"])
	}
	entries := len(d.trail(id))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if r, err := ann.try(context.Background(), "tasks/get", id, nil); err != nil || r.status != http.StatusOK || len(r.keys()) != 2 {
					t.Errorf("%d %s, %v", r.status, r.raw, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := len(d.trail(id)) - entries; n != 0 {
		t.Errorf("polling wrote %d entries", n)
	}
	acked(t, "an update at once", ann.update(id, map[string]any{"a": isCode("1")}))
	if r := ann.send("tasks/get", id, nil); !slices.Equal(r.keys(), []string{"b"}) {
		t.Errorf("after an update: %s", r.raw)
	}
	d.clock.Advance(20 * time.Minute) // who waits for long is told to take it slowly
	late := ann.newTask("job")
	ann.await(late, status("input_required"))
	d.clock.Advance(12 * time.Minute)
	if poll, _ := ann.send("tasks/get", late, nil).result["pollIntervalMs"].(float64); poll < 10_000 {
		t.Errorf("after 12 minutes: %v ms", poll)
	}
}

// case S102
func TestClientsThatLeftHoldNothing(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "echo", tallystick.TaskForbidden) }})
	visit := func() {
		for range 10 {
			modern := newStock(t, d, "ann/acme", nil)
			legacy := overHTTP(t, d, nil)
			for _, cs := range []*mcp.ClientSession{modern.ClientSession, legacy} {
				if res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo"}); err != nil || textOf(res) != "done" {
					t.Errorf("%+v, %v", res, err)
				}
				if err := cs.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
	visit()
	before := settledGoroutines()
	visit()
	if after := settledGoroutines(); after > before+3 {
		t.Errorf("20 clients that left hold %d goroutines", after-before)
	}
}

// case S110: fifty people decide and fifty workers claim at once, in one file.
// Nobody is turned away because somebody else is writing.
func TestNobodyIsTurnedAwayByABusyStore(t *testing.T) {
	const crowd = 50
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(t.TempDir(), "tallystick.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var moved atomic.Int64
	opts := tallystick.Options{Store: db, Workers: crowd, WorkersPerTenant: crowd}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		d.tool("move", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "go", tallystick.Who{Roles: []string{"finance"}}); err != nil {
				return "", err
			}
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "move"}, func(context.Context, string) (string, error) {
				return fmt.Sprint(moved.Add(1)), nil
			})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	ids := make([]string, crowd)
	for i := range ids {
		ids[i] = ann.newTask("move")
	}
	waitFor(t, func() bool {
		w, err := d.srv.Waiting(context.Background(), person("eve", "finance"))
		return err == nil && len(w) == crowd
	})
	var wg sync.WaitGroup
	var settled atomic.Int64
	for i, id := range ids {
		wg.Go(func() {
			for n := range 2 { // two people for each
				by := person(fmt.Sprint("eve", n, i), "finance")
				switch err := d.srv.Decide(context.Background(), by, tallystick.Decision{CallID: id, Key: "go", Accept: true}); {
				case err == nil:
					settled.Add(1)
				case !errors.Is(err, tallystick.ErrSettled):
					t.Errorf("decide: %v", err)
				}
			}
		})
		wg.Go(func() {
			if r, err := ann.try(context.Background(), "tools/call", "move", nil); err != nil || r.typ() != "task" {
				t.Errorf("%s, %v", r.raw, err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		ann.await(id, status("completed"))
	}
	if moved.Load() != crowd || settled.Load() != crowd {
		t.Errorf("%d effects of %d decisions", moved.Load(), settled.Load())
	}
	d.stop()
	if log := strings.ToLower(d.log.String()); strings.Contains(log, "busy") || strings.Contains(log, "locked") || strings.Contains(log, "level=error") {
		t.Errorf("the log:\n%.2000s", log)
	}
}
