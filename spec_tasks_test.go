package tallystick_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// These tests stand for statements of the Tasks extension that no other test is
// about: docs/spec.md has them all.

// addEnds adds a task tool for each way to end, and one that works until its
// channel is closed.
func addEnds(d *desk, goOn <-chan struct{}) {
	task := &tallystick.ToolOptions{Task: tallystick.TaskOptional}
	d.tool("completes", task, func(context.Context, *tallystick.Call) (string, error) { return "done", nil })
	d.tool("errs", task, func(context.Context, *tallystick.Call) (string, error) { return "", context.DeadlineExceeded })
	d.tool("fails", task, func(context.Context, *tallystick.Call) (string, error) {
		return "", &jsonrpc.Error{Code: -32042, Message: "the far side is gone", Data: json.RawMessage(`{"since":"noon"}`)}
	})
	d.tool("works", task, func(ctx context.Context, call *tallystick.Call) (string, error) {
		call.Report("half", 1, 2)
		select {
		case <-goOn:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		return "done", nil
	})
	d.tool("asks", task, func(_ context.Context, call *tallystick.Call) (string, error) {
		a, errA := tallystick.Ask[codeOf](call, tallystick.Question{Key: "a", Message: "Code a"})
		b, errB := tallystick.Ask[codeOf](call, tallystick.Question{Key: "b", Message: "Code b"})
		return a.Code + "+" + b.Code, first(errA, errB)
	})
}

func endsDesk(t *testing.T) (caller, chan struct{}) {
	t.Helper()
	goOn := make(chan struct{})
	d := newDesk(t, setup{tools: func(d *desk) { addEnds(d, goOn) }})
	return d.as("ann/acme", capsTasks), goOn
}

func sortedKeys(r reply) []string {
	keys := r.keys()
	slices.Sort(keys)
	return keys
}

// Each status brings what belongs to it, and nothing of the others.
func TestAGetTellsEachStatus(t *testing.T) {
	ann, goOn := endsDesk(t)
	has := func(r reply, want ...string) {
		t.Helper()
		for _, member := range []string{"result", "error", "inputRequests", "requestState", "task"} {
			if _, ok := r.result[member]; ok != slices.Contains(want, member) {
				t.Errorf("%v: %q is there: %t, in %s", r.result["status"], member, ok, r.raw)
			}
		}
		if r.typ() != "complete" || r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.raw)
		}
	}
	works := ann.newTask("works")
	r := ann.send("tasks/get", works, nil)
	if r.result["status"] != "working" || r.result["taskId"] != works {
		t.Errorf("at work: %s", r.raw)
	}
	has(r)
	close(goOn)
	r = ann.await(works, status("completed"))
	has(r, "result")
	if result := r.result["result"].(map[string]any); result["content"].([]any)[0].(map[string]any)["text"] != "done" {
		t.Errorf("completed: %s", r.raw)
	}
	asks := ann.newTask("asks")
	r = ann.await(asks, status("input_required"))
	has(r, "inputRequests")
	if !slices.Equal(sortedKeys(r), []string{"a", "b"}) { // all that is outstanding
		t.Errorf("waiting: %s", r.raw)
	}
	ann.send("tasks/cancel", asks, nil)
	has(ann.await(asks, status("cancelled")))
	r = ann.await(ann.newTask("errs"), status("completed"))
	has(r, "result")
	if r.result["result"].(map[string]any)["isError"] != true {
		t.Errorf("a tool's own error: %s", r.raw)
	}
	r = ann.await(ann.newTask("fails"), status("failed"))
	has(r, "error")
	e := r.result["error"].(map[string]any)
	if e["code"] != -32042.0 || e["message"] != "the far side is gone" || e["data"].(map[string]any)["since"] != "noon" || r.result["statusMessage"] != "the far side is gone" {
		t.Errorf("failed: %s", r.raw)
	}
}

func TestATaskIsThereAsSoonAsItIsAnnounced(t *testing.T) {
	ann, goOn := endsDesk(t)
	close(goOn)
	for _, tool := range []string{"completes", "fails", "works", "asks"} {
		for range 10 {
			r := ann.call(tool, nil)
			id, _ := r.result["taskId"].(string)
			if r.typ() != "task" || id == "" || r.status != http.StatusOK {
				t.Fatalf("%s: %d %s", tool, r.status, r.raw)
			}
			if got := ann.send("tasks/get", id, nil); got.err != nil || got.result["taskId"] != id || got.result["createdAt"] != r.result["createdAt"] {
				t.Fatalf("%s: %d %s after %s", tool, got.status, got.raw, r.raw)
			}
		}
	}
}

// Whether a client can have tasks is what this request of it says.
func TestAnExtensionDeclaredBeforeDoesNotCount(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addEcho(d, "optional", tallystick.TaskOptional)
		addEcho(d, "required", tallystick.TaskRequired)
	}})
	can, cannot := d.as("ann/acme//cli", capsTasks), d.as("ann/acme//cli", capsForm)
	for range 2 {
		id := can.newTask("optional")
		if r := cannot.call("optional", nil); r.typ() != "complete" || r.text() != "done" || r.result["taskId"] != nil {
			t.Errorf("a tool that can do without: %s", r.raw)
		}
		for what, r := range map[string]reply{"a tool that cannot": cannot.call("required", nil), "a get": cannot.send("tasks/get", id, nil), "a cancel": cannot.send("tasks/cancel", id, nil)} {
			need, _ := json.Marshal(r.err)
			if r.err == nil || r.err.Code != -32021 || r.status != http.StatusBadRequest || !strings.Contains(string(need), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`) {
				t.Errorf("%s: %d %s", what, r.status, r.raw)
			}
		}
	}
}

// The server alone decides: the extension is no demand for a task, the legacy
// hint is none either, and what is no tool is never one.
func TestADeclaredExtensionIsNoDemandForATask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addEcho(d, "never", tallystick.TaskForbidden)
		addEcho(d, "optional", tallystick.TaskOptional)
		tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "never"}, func(context.Context, *tallystick.Call, map[string]string) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		tallystick.AddResource(d.srv, &mcp.Resource{Name: "r", URI: "test://r"}, func(context.Context, *tallystick.Call, string) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: "x"}}}, nil
		})
	}})
	hint := map[string]any{"task": map[string]any{"ttl": 60000, "pollInterval": 100}}
	ann := d.as("ann/acme", capsTasks)
	for _, r := range []reply{ann.send("tools/call", "never", hint), ann.send("prompts/get", "never", hint), ann.send("resources/read", "test://r", hint), ann.send("tools/list", "x", hint)} {
		if r.typ() != "complete" || r.result["taskId"] != nil {
			t.Errorf("%d %s", r.status, r.raw)
		}
	}
	if r := d.as("ann/acme", capsForm).send("tools/call", "optional", hint); r.typ() != "complete" {
		t.Errorf("the hint without the extension: %s", r.raw)
	}
}

// A key stands for one question for as long as its task lives: what is asked
// anew in other words has a new one, and an answered one is never outstanding
// again.
func TestAKeyIsNeverUsedTwiceInATask(t *testing.T) {
	version := make(chan int, 1) // holds the one value
	version <- 1
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			v := <-version
			version <- v
			err := call.Confirm(tallystick.Question{Key: "go", Message: "Go?", Facts: v})
			if err != nil {
				return "", err
			}
			return "done", call.Confirm(tallystick.Question{Key: "sure", Message: "Sure?"})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.newTask("job")
	asked := map[string]string{} // by key, what it was
	outstanding := func(want ...string) {
		t.Helper()
		r := ann.await(id, func(r reply) bool { return slices.Equal(sortedKeys(r), want) })
		for key, q := range r.result["inputRequests"].(map[string]any) {
			raw, _ := json.Marshal(q)
			if was, ok := asked[key]; ok && was != string(raw) {
				t.Errorf("%s was %s and is %s", key, was, raw)
			}
			asked[key] = string(raw)
		}
	}
	next := func() { <-version; version <- len(asked) + 1 }
	outstanding("go")
	next()
	acked(t, "an answer to what is out of date", ann.update(id, map[string]any{"go": yes}))
	outstanding("go~2")
	acked(t, "an answer to what was superseded", ann.update(id, map[string]any{"go": yes}))
	outstanding("go~2")
	next()
	acked(t, "another", ann.update(id, map[string]any{"go~2": yes}))
	outstanding("go~3")
	acked(t, "the answer", ann.update(id, map[string]any{"go~3": yes}))
	outstanding("sure")
	acked(t, "answers to all that was", ann.update(id, map[string]any{"go": yes, "go~2": yes, "go~3": map[string]any{"action": "decline"}}))
	outstanding("sure")
	acked(t, "the last", ann.update(id, map[string]any{"sure": yes}))
	ann.await(id, status("completed"))
	if len(asked) != 4 {
		t.Errorf("asked: %v", asked)
	}
}

// notifications/cancelled is about requests, and a task is none: neither the id
// of the request that made it nor its own ends it.
func TestACancelledNotificationCancelsNoTask(t *testing.T) {
	ann, goOn := endsDesk(t)
	created := ann.call("works", nil)
	id := created.result["taskId"].(string)
	var made struct {
		ID any `json:"id"`
	}
	if err := json.Unmarshal([]byte(created.raw), &made); err != nil {
		t.Fatal(err)
	}
	for _, about := range []any{made.ID, id} {
		r := ann.post(map[string]string{"Mcp-Method": "notifications/cancelled"}, map[string]any{
			"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": about, "taskId": id},
		})
		if r.status != http.StatusAccepted {
			t.Errorf("%v: %d %s", about, r.status, r.raw)
		}
	}
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "working" {
		t.Errorf("afterwards: %s", r.raw)
	}
	close(goOn)
	ann.await(id, status("completed"))
}

// Neither progress nor logs of a task are sent to anybody, though its request
// asks for both.
func TestATaskSendsNoProgressAndNoLog(t *testing.T) {
	ann, goOn := endsDesk(t)
	meta := map[string]any{"_meta": map[string]any{"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}}
	created := ann.send("tools/call", "works", meta)
	id, _ := created.result["taskId"].(string)
	got := ann.await(id, func(r reply) bool { return r.result["statusMessage"] == "half" })
	polled := ann.send("tasks/get", id, meta)
	close(goOn)
	end := ann.await(id, status("completed"))
	for _, r := range []reply{created, got, polled, end} {
		if strings.Contains(r.raw, "notifications/") || strings.Contains(r.raw, "event:") {
			t.Errorf("%s", r.raw)
		}
	}
}

// What a task is told to wait changes over its life, and so does how long it is
// kept; both are positive throughout.
func TestTimesOfATaskChangeAndStayPositive(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Deadline: time.Hour, Retention: 2 * time.Hour, Question: time.Hour}}, tools: func(d *desk) {
		d.tool("asks", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "go", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	created := ann.call("asks", nil)
	id := created.result["taskId"].(string)
	number := func(r reply, member string) int64 {
		t.Helper()
		v, _ := r.result[member].(float64)
		if v < 1 || v != float64(int64(v)) {
			t.Errorf("%s: %s", member, r.raw)
		}
		return int64(v)
	}
	ann.await(id, status("input_required"))
	var polls []int64
	for _, age := range []time.Duration{0, 20 * time.Second, 2 * time.Minute, 20 * time.Minute} {
		d.clock.Advance(age)
		r := ann.send("tasks/get", id, nil)
		polls = append(polls, number(r, "pollIntervalMs"))
		if ttl := number(r, "ttlMs"); ttl != time.Hour.Milliseconds() || ttl != number(created, "ttlMs") {
			t.Errorf("while it lives: %s", r.raw)
		}
	}
	if !slices.Equal(polls, []int64{500, 2000, 5000, 15000}) {
		t.Errorf("polls after %v", polls)
	}
	ann.send("tasks/cancel", id, nil)
	end := ann.await(id, status("cancelled"))
	if ttl := number(end, "ttlMs"); ttl < (2*time.Hour + 22*time.Minute).Milliseconds() {
		t.Errorf("once it has ended: %s", end.raw)
	}
}

// A handler's own -32021 must say which capability is missing: what does not is
// another error.
func TestAHandlersMissingCapabilityErrorSaysWhich(t *testing.T) {
	for data, want := range map[string]int{`{"requiredCapabilities":null}`: -32603, `{"requiredCapabilities":{}}`: -32603, `{"requiredCapabilities":{"roots":{}}}`: -32021, `{"why":"it is"}`: -32603} {
		d := newDesk(t, setup{tools: func(d *desk) {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "needy"}, nil, func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, &jsonrpc.Error{Code: -32021, Message: "more is needed", Data: json.RawMessage(data)}
			})
		}})
		if r := d.as("ann/acme", capsNone).call("needy", nil); r.err.Code != want || r.err.Message != "more is needed" {
			t.Errorf("%s: %d %s", data, r.status, r.raw)
		}
	}
}

// A header of earlier revisions changes nothing, also for what the SDK serves.
func TestALastEventIDIsOfNoAccount(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job")})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequest("POST", d.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer ann/acme",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Last-Event-ID": "7",
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(raw), `"job"`) {
		t.Errorf("%d %s %v", resp.StatusCode, raw, err)
	}
}

// What a handler gives as raw JSON is JSON, or its call fails: a task whose
// result could not be sent would be of no use to anybody.
func TestRawOutputThatCannotBeSentFailsItsCall(t *testing.T) {
	for _, raw := range []string{`{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`} {
		d := newDesk(t, setup{tools: func(d *desk) {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "raw"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
				func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
					return nil, json.RawMessage(raw), nil
				})
		}})
		ann := d.as("ann/acme", capsTasks)
		if r := ann.await(ann.call("raw", nil).result["taskId"].(string), status("failed")); !strings.Contains(r.raw, "-32603") {
			t.Errorf("%q: %s", raw, r.raw)
		}
		if r := d.as("ann/acme", capsNone).call("raw", nil); r.err == nil || r.err.Code != -32603 {
			t.Errorf("%q inline: %s", raw, r.raw)
		}
	}
}

// A middleware's own result may have spaces where ours have none.
func TestAMiddlewaresResultIsCompletedAsItIs(t *testing.T) {
	for _, raw := range []string{`{"content":[], "_meta":{ }}`, `{ "content":[] }`, `{"content":[] , "_meta":{"a":1 }}`} {
		d := newDesk(t, setup{tools: func(d *desk) {
			d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler {
				return func(context.Context, *tallystick.Request) (json.RawMessage, error) { return json.RawMessage(raw), nil }
			})
			addJob(d, "job")
		}})
		r := d.as("ann/acme", capsNone).call("job", nil)
		if meta, _ := r.result["_meta"].(map[string]any); r.typ() != "complete" || meta["io.modelcontextprotocol/serverInfo"] == nil {
			t.Errorf("%s became %s", raw, r.raw)
		}
	}
}
