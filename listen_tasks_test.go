package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// addJob adds a task that asks once and then says who said yes.
func addJob(d *desk, name string) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
		func(_ context.Context, call *tallystick.Call, in map[string]any) (*mcp.CallToolResult, any, error) {
			if err := call.Confirm(tallystick.Question{Key: "go", Message: "Go on?"}); err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
}

func jobs(names ...string) func(*desk) {
	return func(d *desk) {
		for _, n := range names {
			addJob(d, n)
		}
	}
}

func taskIDs(ids ...string) map[string]any { return map[string]any{"taskIds": ids} }

// The acknowledgement names the tasks that are the client's own; then comes the
// state of each as tasks/get shows it, and every change.
func TestAListenTellsTheStateAndThenEachChange(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job")})
	ann, bob := d.as("ann/acme", capsTasks), d.as("bob/acme", capsTasks)
	mine := ann.call("job", nil).result["taskId"].(string)
	his := bob.call("job", nil).result["taskId"].(string)
	waits := ann.await(mine, status("input_required"))
	inline := d.as("ann/acme", capsForm).call("job", nil)
	inlineCall := d.onlyInline(inline)

	e := ann.listen(taskIDs(his, mine, "no such task", inlineCall, mine))
	ack := e.next()
	if ack.Method != "notifications/subscriptions/acknowledged" || fmt.Sprint(ack.filter()["taskIds"]) != "["+mine+"]" || ack.id() == nil {
		t.Fatalf("acknowledged: %+v", ack)
	}
	first := e.next()
	if first.Method != "notifications/tasks" || !same(first.Params, waits.result) || first.id() != ack.id() {
		t.Fatalf("the state was %v\ntold: %+v", waits.result, first)
	}
	if _, ok := first.Params["resultType"]; ok {
		t.Error("a notification has a resultType")
	}
	ann.send("tasks/update", mine, map[string]any{"inputResponses": map[string]any{"go": yes}})
	if m := e.next(); m.status() != "working" {
		t.Errorf("after the answer: %+v", m)
	}
	end := e.until("completed")
	if got := ann.send("tasks/get", mine, nil); !same(end.Params, got.result) {
		t.Errorf("told %v\ngot %v", end.Params, got.result)
	}
	if !d.audited(his, "refused", "task_of_another_principal") {
		t.Error("that a foreign task was to be watched is not on record")
	}
	// Nothing of the foreign task came before this one did.
	bob.send("tasks/update", his, map[string]any{"inputResponses": map[string]any{"go": yes}})
	bob.await(his, status("completed"))
	d.stop()
	e.goodbye("shutting down")
	e.closed()
}

// onlyInline is the id of the inline call that a response belongs to.
func (d *desk) onlyInline(r reply) string {
	d.t.Helper()
	all, err := d.store.List(context.Background(), store.Filter{Tenant: "acme"})
	if err != nil || r.state() == "" {
		d.t.Fatal(err, r.raw)
	}
	for _, c := range all {
		if !c.Task {
			return c.ID
		}
	}
	d.t.Fatal("no inline call")
	return ""
}

// The same over one connection for all: two listens at once, each by its id.
func TestListensOverOneConnectionAreToldApart(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
	l := d.line()
	e := l.hear()
	create := func(id string) string {
		l.send(id, "tools/call", map[string]any{"name": "job", "_meta": listenParams(capsTasks, nil)["_meta"]})
		m := e.next()
		return m.Result["taskId"].(string)
	}
	one, two := create("c1"), create("c2")
	l.send("first", "subscriptions/listen", listenParams(capsTasks, taskIDs(one)))
	if m := e.next(); m.id() != "first" || m.filter() == nil {
		t.Fatalf("acknowledged: %+v", m)
	}
	for e.next().status() != "input_required" {
	}
	l.send(7, "subscriptions/listen", listenParams(capsTasks, taskIDs(one, two)))
	if m := e.next(); m.id() != 7.0 || m.filter() == nil {
		t.Fatalf("acknowledged: %+v", m)
	}
	for seen := map[any]bool{}; len(seen) < 2; {
		if m := e.next(); m.status() == "input_required" {
			seen[m.Params["taskId"]] = true
		}
	}
	// The first is cancelled by its client: no answer, and nothing more of it.
	l.send(nil, "notifications/cancelled", map[string]any{"requestId": "first"})
	l.send("u", "tasks/update", map[string]any{"taskId": one, "inputResponses": map[string]any{"go": yes}, "_meta": listenParams(capsTasks, nil)["_meta"]})
	for {
		m := e.next()
		if m.id() == "first" && m.status() == "completed" {
			t.Fatalf("told after it was cancelled: %+v", m)
		}
		if m.status() == "completed" {
			if m.id() != 7.0 || m.Params["taskId"] != one {
				t.Errorf("told: %+v", m)
			}
			break
		}
	}
	d.stop()
	e.goodbye("shutting down")
}

// case S96: what the SDK tells of is still told, in the same listen, on every
// transport, though its own filter has no place for tasks.
func TestOtherFiltersAreServedBesideTasks(t *testing.T) {
	for _, way := range []string{"http", "memory"} {
		t.Run(way, func(t *testing.T) {
			sdk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ServerOptions{
				SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
				UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
			})
			sdk.AddResource(&mcp.Resource{URI: "test://r", Name: "r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{}, nil
			})
			d := newDesk(t, setup{sdk: sdk, tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
			filter := map[string]any{"toolsListChanged": true, "resourceSubscriptions": []string{"test://r"}, "promptsListChanged": false, "unheardOf": true}
			var e *ear
			if way == "http" {
				e = d.as("ann/acme", capsTasks).listen(filter)
			} else {
				l := d.line()
				e = l.hear()
				l.send(5, "subscriptions/listen", listenParams(capsTasks, filter))
			}
			ack := e.next()
			if f := ack.filter(); f["toolsListChanged"] != true || f["taskIds"] != nil || fmt.Sprint(f["resourceSubscriptions"]) != "[test://r]" || f["unheardOf"] != nil {
				t.Fatalf("acknowledged: %+v", ack)
			}
			d.sdk.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
			if m := e.next(); m.Method != "notifications/tools/list_changed" || m.id() != ack.id() {
				t.Errorf("then: %+v", m)
			}
			if err := d.sdk.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: "test://r"}); err != nil {
				t.Fatal(err)
			}
			if m := e.next(); m.Method != "notifications/resources/updated" || m.id() != ack.id() || m.Params["uri"] != "test://r" {
				t.Errorf("then: %+v", m)
			}
			d.stop()
			e.goodbye("shutting down")
		})
	}
}

// A listen that asks for what cannot be had is refused, or ends at once.
func TestAListenThatCannotBeServed(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{Limits: tallystick.Limits{ListenTasks: 2, Listens: 1}}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	for name, c := range map[string]struct {
		caps, filter string
		code         int
		text         string
	}{
		"without the extension":   {capsForm, `{"taskIds":["` + id + `"]}`, -32021, "Tasks extension"},
		"without, absent task":    {capsForm, `{"taskIds":["absent"]}`, -32021, "Tasks extension"},
		"no filter":               {capsTasks, `null`, -32602, "notifications"},
		"an array":                {capsTasks, `[]`, -32602, "notifications"},
		"a string for ids":        {capsTasks, `{"taskIds":"` + id + `"}`, -32602, "taskIds"},
		"null for ids":            {capsTasks, `{"taskIds":null}`, -32602, "taskIds"},
		"an empty id":             {capsTasks, `{"taskIds":[""]}`, -32602, "taskIds"},
		"a number among them":     {capsTasks, `{"taskIds":["a",1]}`, -32602, "taskIds"},
		"a member in other case":  {capsTasks, `{"taskids":["a"]}`, -32602, "taskids"},
		"a member twice":          {capsTasks, `{"taskIds":["a"],"taskIds":["b"]}`, -32602, "duplicate"},
		"too many":                {capsTasks, `{"taskIds":["a","b","c"]}`, -32602, "ListenTasks"},
		"the SDK's in wrong type": {capsTasks, `{"toolsListChanged":"yes"}`, -32602, ""},
	} {
		params := listenParams(c.caps, nil)
		params["notifications"] = json.RawMessage(c.filter)
		resp, _ := d.as("ann/acme", c.caps).open(1, params)
		var m heard
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m.Error == nil {
			t.Fatalf("%s: %d %v", name, resp.StatusCode, err)
		}
		if resp.StatusCode != 400 || m.Error.Code != c.code || !strings.Contains(m.Error.Message, c.text) {
			t.Errorf("%s: %d %+v", name, resp.StatusCode, m.Error)
		}
		if c.code == -32021 && m.Error.Data["requiredCapabilities"] == nil {
			t.Errorf("%s: %+v does not say what is missing", name, m.Error)
		}
	}
	// Nothing that is the caller's: acknowledged without any, and over.
	for _, filter := range []map[string]any{{}, {"taskIds": []string{}}, taskIDs("absent"), {"toolsListChanged": false}} {
		e := ann.listen(filter)
		if m := e.next(); len(m.filter()) != 0 {
			t.Errorf("%v: acknowledged %v", filter, m.filter())
		}
		e.goodbye("nothing to listen for")
		e.closed()
	}
	// One more than a tenant may have. It is of no account for another tenant.
	e := ann.listen(taskIDs(id))
	e.next()
	resp, _ := ann.open(1, listenParams(capsTasks, taskIDs(id)))
	if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 429 || !strings.Contains(string(raw), "Listens") {
		t.Errorf("one too many: %d %s %v", resp.StatusCode, raw, err)
	}
	eve := d.as("eve/other", capsTasks)
	eve.listen(taskIDs(eve.call("job", nil).result["taskId"].(string))).next()
	e.hang()
	<-e.done
	for deadline := time.Now().Add(10 * time.Second); ; { // its place is free again
		resp, _ := ann.open(1, listenParams(capsTasks, taskIDs(id)))
		if resp.StatusCode == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a listen that has ended is not free")
		}
	}
}

// A listen ends when the permission is withdrawn, with the token, and for
// whoever is somebody else by then.
func TestAListenIsAuthorisedAnewForEachNotification(t *testing.T) {
	var denied, gone atomic.Bool
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{
		Authorize: func(_ context.Context, a tallystick.Access) error {
			if denied.Load() && a.Verb == tallystick.Watch {
				return errors.New("not any more")
			}
			return nil
		},
		Identify: func(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
			if gone.Load() && extra.Header.Get("Mcp-Method") == "subscriptions/listen" {
				return tallystick.Identity{Tenant: "acme", Subject: "nobody"}, nil
			}
			return tallystick.Identity{Tenant: "acme", Subject: extra.TokenInfo.UserID}, nil
		},
	}})
	ann := d.as("ann/acme", capsTasks)
	for name, withdraw := range map[string]*atomic.Bool{"denied": &denied, "another": &gone} {
		id := ann.call("job", nil).result["taskId"].(string)
		ann.await(id, status("input_required"))
		e := ann.listen(taskIDs(id))
		e.next()
		e.until("input_required")
		withdraw.Store(true)
		ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
		e.goodbye("may no longer be watched")
		e.closed()
		withdraw.Store(false)
		if r := ann.await(id, status("completed")); r.err != nil {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
}

// A token that expires ends the listens that it opened.
func TestAListenEndsWithItsToken(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job")})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, status("input_required"))
	until := time.Now().Add(300 * time.Millisecond)
	short := d.as("ann/acme///"+until.Format(time.RFC3339Nano), capsTasks)
	e := short.listen(taskIDs(id))
	e.next()
	e.until("input_required")
	e.goodbye("token has expired")
	e.closed()
	if time.Now().Before(until) {
		t.Error("it ended too early")
	}
}

// A client that does not read holds nobody up, and what it reads last is how
// things are.
func TestASlowListenerHoldsNothingUpAndEndsUpToDate(t *testing.T) {
	steps := make(chan int)
	d := newDesk(t, setup{opts: tallystick.Options{AnonymousEffects: true}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "steps"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(ctx context.Context, call *tallystick.Call, in map[string]any) (*mcp.CallToolResult, any, error) {
				for n := range steps { // each is a write, and so a change
					_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: fmt.Sprint("step ", n)}, func(context.Context, string) (int, error) { return n, nil })
					if err != nil {
						return nil, nil, err
					}
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "all steps"}}}, nil, nil
			})
	}})
	// In memory a write blocks until it is read: nothing is slower than that.
	l := d.line()
	meta := listenParams(capsTasks, nil)["_meta"]
	l.send(1, "tools/call", map[string]any{"name": "steps", "_meta": meta})
	msg, err := l.conn.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var created struct {
		Result struct{ TaskID string }
	}
	raw, _ := jsonrpc.EncodeMessage(msg)
	if err := json.Unmarshal(raw, &created); err != nil {
		t.Fatal(err)
	}
	id := created.Result.TaskID
	l.send(2, "subscriptions/listen", listenParams(capsTasks, taskIDs(id)))
	if _, err := l.conn.Read(context.Background()); err != nil { // the acknowledgement
		t.Fatal(err)
	}
	const many = 500
	for n := range many {
		steps <- n
	}
	close(steps)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := d.store.Load(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		if c.State == record.Ended {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the job does not end while its listener does not read")
		}
	}
	e, told := l.hear(), 0
	for last := ""; last != "completed"; told++ {
		m := e.next()
		last = m.status()
	}
	if told > 200 {
		t.Errorf("%d notifications were kept for a listener that did not read", told)
	}
	d.stop()
	e.goodbye("shutting down")
}

// In a store that several processes share, changes of the others are told too.
func TestAListenHearsOfOtherProcesses(t *testing.T) {
	mem := memory.New(memory.Options{Shared: true})
	ks, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	keys := ks.AEAD()
	desk := func(node string, workers int) *desk {
		return newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{Store: mem, Keys: keys, Node: node, Workers: workers}})
	}
	a, b := desk("a", 1), desk("b", 1)
	onA, onB := a.as("ann/acme", capsTasks), b.as("ann/acme", capsTasks)
	id := onA.call("job", nil).result["taskId"].(string)
	onA.await(id, status("input_required"))
	e := onB.listen(taskIDs(id))
	e.next()
	e.until("input_required")
	onA.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
	e.until("completed")
}

// Ten thousand listens in one process, over one connection: each is told the
// end, and they leave nothing behind.
func TestTenThousandListens(t *testing.T) {
	const listens, tasks = 10_000, 50
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true, Limits: tallystick.Limits{InFlight: listens + tasks}}})
	l := d.line()
	l.unjudged = true
	e := l.hear()
	meta := listenParams(capsTasks, nil)["_meta"]
	ids := make([]string, tasks)
	for i := range ids {
		l.send(fmt.Sprint("c", i), "tools/call", map[string]any{"name": "job", "_meta": meta})
		ids[i] = e.next().Result["taskId"].(string)
	}
	waiting := map[any]bool{}
	for i := range listens {
		l.send(i, "subscriptions/listen", listenParams(capsTasks, taskIDs(ids[i%tasks])))
		for len(waiting) <= i {
			if m := e.next(); m.status() == "input_required" {
				waiting[m.id()] = true
			}
		}
	}
	for i, id := range ids {
		l.send(fmt.Sprint("u", i), "tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"go": yes}, "_meta": meta})
	}
	for ended := map[any]bool{}; len(ended) < listens; {
		if m := e.next(); m.status() == "completed" {
			if ended[m.id()] {
				t.Fatalf("told twice: %+v", m)
			}
			ended[m.id()] = true
		}
	}
	l.conn.Close()
	<-e.done
}
