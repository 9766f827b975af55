package tallystick_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
)

// What the official conformance suite does not look at: docs/conformance.md has
// the list. All of it is over HTTP, with the status.

var taskMethods = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// post sends any message with the usual headers but for those given; an empty
// one is left out.
func (c caller) post(headers map[string]string, message map[string]any) reply {
	c.d.t.Helper()
	body, err := json.Marshal(message)
	if err != nil {
		c.d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.d.url, bytes.NewReader(body))
	if err != nil {
		c.d.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Authorization": "Bearer " + c.token,
	} {
		req.Header.Set(name, value)
	}
	for name, value := range headers {
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.d.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.d.t.Fatal(err)
	}
	if len(raw) == 0 {
		return reply{status: resp.StatusCode}
	}
	r, err := bazaar.ReadReply(resp.StatusCode, resp.Header.Get("Content-Type"), raw)
	if err != nil {
		c.d.t.Fatal(err)
	}
	return replyOf(r)
}

// message is a request of revision 2026-07-28.
func (c caller) message(method string, params map[string]any) map[string]any {
	params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": json.RawMessage(c.caps)}
	return map[string]any{"jsonrpc": "2.0", "id": c.d.ids.Add(1), "method": method, "params": params}
}

func refusedWith(t *testing.T, what string, r reply, code, status int) {
	t.Helper()
	if r.err == nil || r.err.Code != code || r.status != status || strings.TrimSpace(r.err.Message) == "" || r.result != nil {
		t.Errorf("%s: want %d with status %d, got %d %s", what, code, status, r.status, r.raw)
	}
}

func TestAnUnknownTaskIsAnErrorForEachMethod(t *testing.T) {
	ann, goOn := endsDesk(t)
	close(goOn)
	real := ann.newTask("completes")
	texts := map[string]bool{}
	for _, id := range []string{"nope", "AAAAAAAAAAAAAAAAAAAAAAAAAA", strings.ToLower(real), real + "A", real[:len(real)-1], "../" + real, "%" + real} {
		for _, method := range taskMethods {
			r := ann.send(method, id, map[string]any{"inputResponses": map[string]any{"a": isCode("1")}})
			refusedWith(t, method+" of "+id, r, -32602, http.StatusBadRequest)
			if r.err != nil {
				texts[r.err.Message] = true
			}
		}
	}
	if len(texts) != 1 {
		t.Errorf("they are told apart: %v", texts)
	}
	for _, method := range taskMethods {
		r := ann.post(map[string]string{"Mcp-Method": method}, ann.message(method, map[string]any{"inputResponses": map[string]any{}}))
		if r.err == nil || r.status != http.StatusBadRequest || r.err.Code != -32602 && r.err.Code != -32020 {
			t.Errorf("%s of no task: %d %s", method, r.status, r.raw)
		}
	}
}

// A header that names another task than the body does is refused before
// anything is looked up or changed; so is its absence.
func TestMcpNameMustBeTheTaskForEachMethod(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEnds(d, nil) }})
	ann := d.as("ann/acme", capsTasks)
	id, other := ann.newTask("asks"), ann.newTask("asks")
	ann.await(id, status("input_required"))
	before := ann.await(other, status("input_required"))
	answers := map[string]any{"a": isCode("1"), "b": isCode("2")}
	for _, method := range taskMethods {
		for what, name := range map[string]string{
			"another task of mine": other, "no such task": "nope", "none": "", "another case": strings.ToLower(id),
			"bad base64": "=?base64?" + id + "!?=", "the name of a tool": "asks",
		} {
			for _, task := range []string{id, "unknown"} {
				r := ann.post(map[string]string{"Mcp-Method": method, "Mcp-Name": name}, ann.message(method, map[string]any{"taskId": task, "inputResponses": answers}))
				refusedWith(t, method+" of "+task+" named "+what, r, -32020, http.StatusBadRequest)
			}
		}
	}
	for _, task := range []string{id, other} {
		if r := ann.send("tasks/get", task, nil); r.result["status"] != "input_required" || r.result["lastUpdatedAt"] == nil || len(r.keys()) != 2 {
			t.Errorf("something was changed: %s, before %s", r.raw, before.raw)
		}
	}
	for _, method := range taskMethods { // the same with the right name
		if r := ann.post(map[string]string{"Mcp-Method": method, "Mcp-Name": id}, ann.message(method, map[string]any{"taskId": id, "inputResponses": answers})); r.err != nil || r.status != http.StatusOK {
			t.Errorf("%s: %d %s", method, r.status, r.raw)
		}
	}
}

// The tasks capability of 2025 is not the extension, however it is declared.
func TestTheTasksCapabilityOf2025IsNotTheExtension(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addEcho(d, "optional", tallystick.TaskOptional)
		addEcho(d, "required", tallystick.TaskRequired)
	}})
	id := d.as("ann/acme", capsTasks).newTask("optional")
	for _, caps := range []string{
		`{"tasks":{}}`, `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`, `{"experimental":{"io.modelcontextprotocol/tasks":{}}}`,
		`{"extensions":{"tasks":{}}}`, `{"extensions":{"io.modelcontextprotocol/Tasks":{}}}`, `{"io.modelcontextprotocol/tasks":{}}`,
	} {
		old := d.as("ann/acme", caps)
		for _, task := range []string{id, "nope"} {
			for _, method := range taskMethods {
				refusedWith(t, method+" with "+caps, old.send(method, task, map[string]any{"inputResponses": map[string]any{}}), -32021, http.StatusBadRequest)
			}
		}
		refusedWith(t, "a call with "+caps, old.call("required", nil), -32021, http.StatusBadRequest)
		if r := old.call("optional", nil); r.typ() != "complete" || r.status != http.StatusOK {
			t.Errorf("a call that can do without, with %s: %d %s", caps, r.status, r.raw)
		}
	}
	found := d.as("ann/acme", capsNone).send("server/discover", "x", nil)
	have, _ := found.result["capabilities"].(map[string]any)
	extensions, _ := have["extensions"].(map[string]any)
	if _, old := have["tasks"]; old || extensions["io.modelcontextprotocol/tasks"] == nil {
		t.Errorf("what the server declares: %s", found.raw)
	}
}

// A task that is cancelled ends cancelled, at work and while it waits, and the
// work is told.
func TestACancelledTaskEndsCancelled(t *testing.T) {
	ann, _ := endsDesk(t)
	for tool, at := range map[string]func(reply) bool{
		"asks":  status("input_required"),
		"works": func(r reply) bool { return r.result["statusMessage"] == "half" },
	} {
		id := ann.newTask(tool)
		ann.await(id, at)
		for range 2 {
			r := ann.send("tasks/cancel", id, nil)
			acked(t, "a cancel of "+tool, r)
			if r.status != http.StatusOK {
				t.Errorf("%s: %d", tool, r.status)
			}
		}
		end := ann.await(id, func(r reply) bool {
			return r.result["status"] != "working" && r.result["status"] != "input_required"
		})
		if end.result["status"] != "cancelled" || end.status != http.StatusOK {
			t.Errorf("%s ends as %d %s", tool, end.status, end.raw)
		}
	}
}

// A failed task says why, twice: in words, and as the error that it is.
func TestAFailedTaskSaysWhy(t *testing.T) {
	limits := tallystick.Limits{Question: time.Minute, Deadline: time.Hour}
	d := newDesk(t, setup{opts: tallystick.Options{Limits: limits}, tools: func(d *desk) {
		addEnds(d, nil)
		task := &tallystick.ToolOptions{Task: tallystick.TaskRequired}
		d.tool("panics", task, func(context.Context, *tallystick.Call) (string, error) { panic("boom") })
		d.tool("mute", task, func(context.Context, *tallystick.Call) (string, error) { return "", &jsonrpc.Error{Code: -32042} })
		d.tool("waits", task, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{Roles: []string{"nobody"}})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	waits := ann.newTask("waits")
	ids := map[string]string{"its own": ann.newTask("fails"), "without a message": ann.newTask("mute"), "a panic": ann.newTask("panics")}
	onlyTasks := d.as("ann/acme", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	ids["nobody to ask"] = onlyTasks.newTask("asks")
	check := func(what, id string) {
		t.Helper()
		r := ann.await(id, status("failed"))
		text, _ := r.result["statusMessage"].(string)
		e, _ := r.result["error"].(map[string]any)
		message, _ := e["message"].(string)
		_, hasResult := r.result["result"]
		if r.status != http.StatusOK || text == "" || message == "" || e["code"] == nil || hasResult {
			t.Errorf("%s: %d %s", what, r.status, r.raw)
		}
	}
	for what, id := range ids {
		check(what, id)
	}
	d.clock.Advance(2 * time.Hour)
	ann.newTask("completes") // the clock of the test moves without waking anybody
	check("expired", waits)
}

var stampForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// Timestamps are times, of now and in order, and not merely of that form.
func TestStampsOfATaskAreTimes(t *testing.T) {
	ann, goOn := endsDesk(t)
	close(goOn)
	before := time.Now().Add(-time.Millisecond)
	created := ann.call("works", nil)
	end := ann.await(created.result["taskId"].(string), status("completed"))
	at := func(r reply, member string) time.Time {
		t.Helper()
		text, _ := r.result[member].(string)
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil || !stampForm.MatchString(text) || parsed.Before(before.Truncate(time.Millisecond)) || parsed.After(time.Now()) {
			t.Errorf("%s is %q, %v", member, text, err)
		}
		return parsed
	}
	if a, b := at(created, "createdAt"), at(end, "createdAt"); !a.Equal(b) {
		t.Errorf("created at %s, and then at %s", a, b)
	}
	if at(created, "lastUpdatedAt").After(at(end, "lastUpdatedAt")) || at(end, "lastUpdatedAt").Before(at(end, "createdAt")) {
		t.Errorf("%s, then %s", created.raw, end.raw)
	}
}

// No requestState and no related-task stands in anything that a task ever says.
func TestATaskHasNeitherStateNorRelatedTask(t *testing.T) {
	ann, goOn := endsDesk(t)
	close(goOn)
	var all []reply
	for tool, end := range map[string]string{"completes": "completed", "errs": "completed", "fails": "failed", "works": "completed", "asks": "input_required"} {
		created := ann.call(tool, nil)
		id := created.result["taskId"].(string)
		all = append(all, created, ann.send("tasks/get", id, nil), ann.await(id, status(end)))
		if tool == "asks" {
			all = append(all, ann.update(id, map[string]any{"a": isCode("1")}), ann.send("tasks/get", id, nil), ann.send("tasks/cancel", id, nil), ann.await(id, status("cancelled")))
		}
	}
	for _, r := range all {
		for _, word := range []string{"requestState", "related-task", `"ttl"`, `"pollInterval"`, `"task":`, "null"} {
			if strings.Contains(r.raw, word) {
				t.Errorf("%s in %s", word, r.raw)
			}
		}
	}
}

// Which HTTP status goes with each error. That this holds for every error of
// every test is the schemas' harness.
func TestEachErrorHasItsStatus(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{ArgumentsBytes: 1000}}, tools: func(d *desk) {
		addKinds(d)
		addEnds(d, nil)
		d.tool("panics", nil, func(context.Context, *tallystick.Call) (string, error) { panic("boom") })
		addEcho(d, "required", tallystick.TaskRequired)
	}})
	ann := d.as("ann/acme", capsForm)
	call := func(name string) map[string]any { return ann.message("tools/call", map[string]any{"name": name}) }
	named := func(name string) map[string]string {
		return map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": name}
	}
	later := call("form")
	later["params"].(map[string]any)["_meta"].(map[string]any)["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
	state := ann.call("form", nil).state()
	for what, c := range map[string]struct {
		r            reply
		code, status int
	}{
		"no params":           {ann.post(map[string]string{"Mcp-Method": "tools/call"}, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}), -32602, 400},
		"no method":           {ann.post(nil, map[string]any{"jsonrpc": "2.0", "id": 1}), -32600, 400},
		"an unknown method":   {ann.send("tools/run", "form", nil), -32601, 404},
		"a removed method":    {ann.send("tasks/result", "t", nil), -32601, 404},
		"an unknown tool":     {ann.call("nope", nil), -32602, 400},
		"a wrong state":       {ann.retry("form", nil, state+"x", nil), -32602, 400},
		"a wrong answer":      {ann.retry("form", nil, state, map[string]any{"q": accept(nil)}), -32602, 400},
		"null answers":        {ann.send("tools/call", "form", map[string]any{"inputResponses": json.RawMessage("null")}), -32602, 400},
		"a missing kind":      {ann.call("sampling", nil), -32021, 400},
		"a missing extension": {ann.call("required", nil), -32021, 400},
		"another method":      {ann.post(map[string]string{"Mcp-Method": "tasks/get", "Mcp-Name": "form"}, call("form")), -32020, 400},
		"another name":        {ann.post(named("url"), call("form")), -32020, 400},
		"a later version":     {ann.post(map[string]string{"MCP-Protocol-Version": "2099-01-01", "Mcp-Method": "tools/call", "Mcp-Name": "form"}, later), -32022, 400},
		"arguments too large": {ann.call("form", map[string]any{"x": strings.Repeat("x", 2000)}), -32602, 413},
		"a foreign origin":    {ann.post(map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "form", "Origin": "https://evil.example"}, call("form")), -32600, 403},
		"a panic":             {ann.call("panics", nil), -32603, 500},
	} {
		refusedWith(t, what, c.r, c.code, c.status)
	}
}
