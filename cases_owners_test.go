package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

// case S85, S87: another one of the same tenant can neither see, answer nor stop
// it, whoever else may be asked; that she tried is on the call's own record.
func TestATaskOfSomebodyElseIsNoTask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", confirm(call, "go", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.newTask("job")
	ann.await(id, status("input_required"))
	answers := map[string]any{"inputResponses": map[string]any{"go": yes}}
	for _, token := range []string{"bob/acme", "bob/acme/operator,finance", "ann/other", "ann/acme//stolen"} {
		other := d.as(token, capsTasks)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			r, absent := other.send(method, id, answers), other.send(method, "AAAAAAAAAAAAAAAAAAAAAAAAAA", answers)
			if r.err == nil || *r.err.err() != *absent.err.err() || r.status != absent.status {
				t.Errorf("%s by %s: %s, of a task that is not: %s", method, token, r.raw, absent.raw)
			}
		}
	}
	by := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "bob", Roles: []string{"operator", "finance"}}
	if err := d.srv.Decide(context.Background(), by, tallystick.Decision{CallID: id, Key: "go", Accept: true}); !errors.Is(err, tallystick.ErrNoQuestion) {
		t.Errorf("out of band: %v", err)
	}
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "input_required" {
		t.Errorf("afterwards: %s", r.raw)
	}
	if n := d.refusals(id, "task_of_another_principal"); n != 12 {
		t.Errorf("%d of 12 attempts are on record", n)
	}
	if !d.audited(id, "refused", record.ReasonNotAllowed) {
		t.Error("the attempt out of band is not on record")
	}
}

// case S86, S93: with a clock that stands still.
func TestAnIDTellsNothing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	mem := memory.New(memory.Options{Now: func() time.Time { return now }})
	type in struct {
		N int `json:"n"`
	}
	d := newDesk(t, setup{opts: tallystick.Options{Store: mem, Workers: 8}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(_ context.Context, _ *tallystick.Call, in in) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("of ", in.N)}}}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	ids := make([]string, 150)
	var wg sync.WaitGroup
	for start := range 8 {
		wg.Go(func() {
			for n := start; n < len(ids); n += 8 {
				r, err := ann.try(context.Background(), "tools/call", "job", map[string]any{"arguments": map[string]any{"n": n}})
				if err != nil {
					t.Error(err)
					return
				}
				ids[n], _ = r.result["taskId"].(string)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	columns := make([]map[byte]bool, 26)
	for n, id := range ids {
		if len(id) < 26 || seen[id] { // of 32 letters: 130 bits
			t.Fatalf("call %d is %q", n, id)
		}
		seen[id] = true
		for i := range columns {
			if columns[i] == nil {
				columns[i] = map[byte]bool{}
			}
			columns[i][id[i]] = true
		}
	}
	for i, letters := range columns { // no prefix, time or count in any place
		if len(letters) < 16 {
			t.Errorf("place %d takes %d values in %d ids", i, len(letters), len(ids))
		}
	}
	for n, id := range ids {
		next := id[:len(id)-1] + string(rune(id[len(id)-1]+1))
		if r := ann.send("tasks/get", next, nil); r.err == nil || r.err.Code != -32602 {
			t.Errorf("the id after %s: %s", id, r.raw)
		}
		if end := ann.await(id, status("completed")); !strings.Contains(end.raw, fmt.Sprintf(`"of %d"`, n)) {
			t.Errorf("call %d came to %s", n, end.raw)
		}
	}
}

// case S89
func TestNobodyKnownHasNoEffects(t *testing.T) {
	serve := func(anonymous bool) (*desk, *shop) {
		sh := &shop{total: "1"}
		return newDesk(t, setup{opts: tallystick.Options{AnonymousEffects: anonymous}, tools: func(d *desk) {
			sh.addRefund(d, tallystick.Who{})
			addEcho(d, "job", tallystick.TaskRequired)
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
				func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
					return nil, call.Owner().Issuer + "/" + call.Owner().Subject, nil
				})
			d.tool("who", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
				return call.Owner().Issuer + "/" + call.Owner().Subject, nil
			})
		}}), sh
	}
	d, sh := serve(false)
	nobody := d.as("", capsTasks)
	for _, tool := range []string{"refund", "job"} {
		args := map[string]any{}
		if tool == "refund" {
			args = order1
		}
		if r := nobody.call(tool, args); r.outcome() != "not_allowed" || !r.isError() || r.typ() != "complete" {
			t.Errorf("%s: %s", tool, r.raw)
		}
	}
	if r := nobody.call("look", nil); r.isError() || r.err != nil {
		t.Errorf("read-only: %s", r.raw)
	}
	// A state that somebody leaked is none of nobody's.
	state := d.as("ann/acme", capsForm).call("refund", order1).state()
	if r := nobody.retry("refund", order1, state, map[string]any{"approve": yes}); r.outcome() != "not_allowed" || sh.refunds.Load() != 0 {
		t.Errorf("a leaked state: %s, %d refunds", r.raw, sh.refunds.Load())
	}
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: d.url}, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
	}})
	if res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "refund", Arguments: order1}); err != nil || !res.IsError || sh.refunds.Load() != 0 {
		t.Errorf("2025 era: %+v, %v", res, err)
	}
	cs.Close()
	// Over stdio it is the user of the operating system.
	content, _ := json.Marshal(peerOverStdio(t, d)(t, "tools/call", map[string]any{"name": "who"})["content"])
	if text := string(content); !strings.Contains(text, `"os/`) || strings.Contains(text, `"os/"`) {
		t.Errorf("over stdio: %s", text)
	}
	d.stop()
	n := 0
	for _, e := range d.trail("") {
		if e.Event == "refused" && e.Reason == record.ReasonNotAllowed {
			n += e.Count
		}
	}
	if n != 4 {
		t.Errorf("%d of 4 refusals are on record", n)
	}

	// Asked for, it is served.
	d, sh = serve(true)
	nobody = d.as("", capsForm)
	state = nobody.call("refund", order1).state()
	if r := nobody.retry("refund", order1, state, map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Errorf("AnonymousEffects: %s", r.raw)
	}
}
