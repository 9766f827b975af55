package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// case S02: what is signed and sent again is not run again: not even a handler
// that does its work outside of Once.
func TestAConfirmedRetryRunsItsHandlerOnce(t *testing.T) {
	var works atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("apex", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "go", tallystick.Who{}); err != nil {
				return "", err
			}
			return fmt.Sprint("run ", works.Add(1)), nil
		})
	}})
	ann, answers := d.as("ann/acme", capsForm), map[string]any{"go": yes}
	state := ann.call("apex", nil).state()
	for n := range 3 {
		d.clock.Advance(3 * time.Minute) // its seal is good for longer
		if r := ann.retry("apex", nil, state, answers); r.text() != "run 1" || works.Load() != 1 {
			t.Errorf("time %d: %s, %d runs", n+1, r.raw, works.Load())
		}
	}
	refusedState(t, "with another answer", ann.retry("apex", nil, state, map[string]any{"go": map[string]any{"action": "decline"}}))
}

// case S07: a client that answers for its user, by whatever way it has, is not
// the person out of band; and who decided, and how, is on record.
func TestOutOfBandIsNotWhatAClientSays(t *testing.T) {
	opts := tallystick.Options{AnswerAt: func(id string, _ tallystick.Waiting) string { return "https://desk.example/" + id }}
	var done atomic.Int64
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		for name, use := range map[string]tallystick.TaskUse{"inline": tallystick.TaskForbidden, "task": tallystick.TaskRequired} {
			d.tool(name, &tallystick.ToolOptions{Task: use}, func(_ context.Context, call *tallystick.Call) (string, error) {
				if err := confirm(call, "go", tallystick.Who{OutOfBand: true}); err != nil {
					return "", err
				}
				return fmt.Sprint("done ", done.Add(1)), nil
			})
		}
	}})
	ann, tasks, answers := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks), map[string]any{"go": yes}
	for what, r := range map[string]reply{
		"asked":            ann.call("inline", nil),
		"answered unasked": ann.send("tools/call", "inline", map[string]any{"inputResponses": answers}),
	} {
		if r.outcome() != "pending" || r.state() != "" || !strings.Contains(r.text(), "https://desk.example/") {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	live := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		t.Error("a client was asked")
		return sayYes(ctx, r)
	}})
	if res, err := live.CallTool(context.Background(), &mcp.CallToolParams{Name: "inline"}); err != nil || res.Meta["tallystick/outcome"] != "pending" {
		t.Errorf("2025 era: %+v, %v", res, err)
	}
	id := tasks.newTask("task")
	tasks.await(id, func(r reply) bool { return strings.Contains(r.raw, "waiting for an answer") })
	acked(t, "an update", tasks.update(id, answers))
	if r := tasks.send("tasks/get", id, nil); r.result["status"] != "working" || len(r.keys()) != 0 || done.Load() != 0 {
		t.Errorf("the task: %s", r.raw)
	}
	if err := d.srv.Decide(context.Background(), person("ann"), tallystick.Decision{CallID: id, Key: "go", Accept: true}); err != nil {
		t.Fatal(err)
	}
	tasks.await(id, status("completed"))
	for _, e := range d.trail(id) {
		if e.Event == "answered" && e.By.Channel != record.ChannelDecide {
			t.Errorf("answered by %+v", e.By)
		}
	}
	if done.Load() != 1 {
		t.Errorf("done %d times", done.Load())
	}
}

// case S30: what was approved is not what would run now.
func TestAnApprovalOfAnotherSchemaRunsNothing(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	opts := tallystick.Options{Store: memory.New(memory.Options{}), Keys: keys.AEAD()}
	var effects atomic.Int64
	serve := func(schema string) *desk {
		return newDesk(t, setup{opts: opts, tools: func(d *desk) {
			for name, use := range map[string]tallystick.TaskUse{"inline": tallystick.TaskForbidden, "task": tallystick.TaskRequired} {
				tallystick.AddTool(d.srv, &mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}, &tallystick.ToolOptions{Task: use},
					func(ctx context.Context, call *tallystick.Call, _ map[string]any) (*mcp.CallToolResult, any, error) {
						if err := confirm(call, "go", tallystick.Who{}); err != nil {
							return nil, nil, err
						}
						_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "act"}, func(context.Context, string) (int64, error) { return effects.Add(1), nil })
						return nil, nil, err
					})
			}
		}})
	}
	answers := map[string]any{"go": yes}
	first := serve(`{"type":"object","properties":{"amount":{"type":"number","description":"in EUR"}}}`)
	args := map[string]any{"amount": 5}
	state := first.as("ann/acme", capsForm).call("inline", args).state()
	id, _ := first.as("ann/acme", capsTasks).call("task", args).result["taskId"].(string)
	first.as("ann/acme", capsTasks).await(id, status("input_required"))
	first.stop()
	second := serve(`{"type":"object","properties":{"amount":{"type":"number","description":"in cent"}}}`)
	refusedState(t, "a round of the other schema", second.as("ann/acme", capsForm).retry("inline", args, state, answers))
	tasks := second.as("ann/acme", capsTasks)
	acked(t, "the task", tasks.update(id, answers))
	end := tasks.await(id, status("failed"))
	if !strings.Contains(end.raw, `"outcome":"changed"`) || !strings.Contains(end.raw, "changed since") {
		t.Errorf("the task: %s", end.raw)
	}
	if n := effects.Load(); n != 0 {
		t.Errorf("%d effects", n)
	}
	if n := len(slices.DeleteFunc(second.trail(""), func(e record.Entry) bool { return e.Reason != "state_of_another_action" })); n != 1 {
		t.Errorf("%d entries say why the round was refused", n)
	}
}

// case S35: a handler that throws the error away has the zero value, whatever a
// client sent with its no; and no effect starts while anything is unanswered.
func TestWhatIsNoYesIsTheZeroValue(t *testing.T) {
	type form struct {
		Delete bool `json:"delete"`
	}
	var deleted atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("naive", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			f, _ := tallystick.Ask[form](call, tallystick.Question{Key: "sure", Message: "Delete it?"})
			if f.Delete {
				deleted.Add(1)
			}
			return "over", nil
		})
		d.tool("archive", nil, func(ctx context.Context, call *tallystick.Call) (string, error) { // a no leads to something
			if err := confirm(call, "sure", tallystick.Who{}); err != nil && !errors.Is(err, tallystick.ErrDeclined) {
				return "", err
			}
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "archive", AfterNo: true}, func(context.Context, string) (string, error) {
				return "archived", nil
			})
		})
		d.tool("careless", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			confirm(call, "sure", tallystick.Who{})
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "delete"}, func(context.Context, string) (string, error) {
				return fmt.Sprint(deleted.Add(1)), nil
			})
		})
	}})
	ann, want := d.as("ann/acme", capsForm), map[string]any{"delete": true}
	for what, answer := range map[string]map[string]any{
		"declined":          {"action": "decline", "content": want},
		"dismissed":         {"action": "cancel", "content": want},
		"accepted, with no": accept(map[string]any{"delete": false}),
	} {
		asked := ann.call("naive", nil)
		if asked.typ() != "input_required" {
			t.Fatalf("%s: %s", what, asked.raw)
		}
		if r := ann.retry("naive", nil, asked.state(), map[string]any{"sure": answer}); r.text() != "over" || deleted.Load() != 0 {
			t.Errorf("%s: %s, deleted %d times", what, r.raw, deleted.Load())
		}
	}
	for outcome, answer := range map[string]map[string]any{"declined": {"action": "decline"}, "dismissed": {"action": "cancel"}, "declined ": accept(map[string]any{"confirm": false})} {
		state := ann.call("careless", nil).state()
		if r := ann.retry("careless", nil, state, map[string]any{"sure": answer}); r.outcome() != strings.TrimSpace(outcome) || !r.isError() || deleted.Load() != 0 {
			t.Errorf("%s and forgotten: %s, deleted %d times", outcome, r.raw, deleted.Load())
		}
	}
	state := ann.call("careless", nil).state()
	d.clock.Advance(time.Hour)
	if r := ann.retry("careless", nil, state, map[string]any{"sure": yes}); r.outcome() != "expired" || deleted.Load() != 0 {
		t.Errorf("expired and forgotten: %s, deleted %d times", r.raw, deleted.Load())
	}
	state = ann.call("archive", nil).state()
	if r := ann.retry("archive", nil, state, map[string]any{"sure": map[string]any{"action": "decline"}}); r.text() != "archived" {
		t.Errorf("what a no is to lead to: %s", r.raw)
	}
	if r := ann.call("careless", nil); r.typ() != "input_required" || deleted.Load() != 0 {
		t.Errorf("unanswered: %s, deleted %d times", r.raw, deleted.Load())
	}
	asked := ann.call("naive", nil)
	if ann.retry("naive", nil, asked.state(), map[string]any{"sure": accept(want)}); deleted.Load() != 1 {
		t.Errorf("a yes: deleted %d times", deleted.Load())
	}
}

// case S05, S45, S46, S49, S50: what an answer has to be is seen to before a handler
// sees it, and of an acceptance only; what a question may be, before it is sent.
func TestFormsAreFlatAndTheirAnswersFit(t *testing.T) {
	type person struct {
		Name string `json:"name"`
		Age  int    `json:"age,omitempty" form:"minimum=0,default=7"`
	}
	type deep struct {
		Who person `json:"who"`
	}
	var runs atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("who", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			runs.Add(1)
			p, err := tallystick.Ask[person](call, tallystick.Question{Key: "who", Message: "Who?"})
			return fmt.Sprint(p.Name, " ", p.Age), err
		})
		d.tool("deep", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Ask[deep](call, tallystick.Question{Key: "who", Message: "Who?"})
			return "", err
		})
		d.tool("own", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			nested := map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "object", "properties": map[string]any{"b": map[string]any{"type": "string"}}}}}
			_, err := call.Input(tallystick.Question{Key: "q", Message: "What?"}, &mcp.ElicitParams{RequestedSchema: nested})
			return "", err
		})
	}})
	ann := d.as("ann/acme", capsForm)
	for tool, why := range map[string]string{"deep": `property "who"`, "own": `property "a"`} {
		if r := ann.call(tool, nil); r.typ() != "complete" || !r.isError() || !strings.Contains(r.text(), why) {
			t.Errorf("%s was sent: %s", tool, r.raw)
		}
	}
	asked := ann.call("who", nil)
	before := runs.Load()
	for what, answer := range map[string]map[string]any{
		"no content":            {"action": "accept"},
		"null for content":      {"action": "accept", "content": json.RawMessage("null")},
		"nothing of it":         accept(map[string]any{}),
		"a number for the name": accept(map[string]any{"name": 42}),
		"a negative age":        accept(map[string]any{"name": "ann", "age": -5}),
		"an object":             accept(map[string]any{"name": map[string]any{"b": 1}}),
		"a list":                accept(map[string]any{"name": []any{1, 2}}),
		"a list for content":    {"action": "accept", "content": []any{"ann"}},
		"a sampling result":     {"role": "user", "model": "m", "content": map[string]any{"type": "text", "text": "ann"}},
	} {
		r := ann.retry("who", nil, asked.state(), map[string]any{"who": answer})
		if r.err == nil || r.err.Code != -32602 || runs.Load() != before {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	trail := allAuditOf(t, d, "refused")
	if len(trail) != 9 || trail[0].Reason != "answer_does_not_fit" {
		t.Errorf("%d of 9 refusals are on record: %+v", len(trail), trail)
	}
	for _, action := range []string{"cancel", "decline"} { // nobody filled it in
		for _, content := range []any{map[string]any{}, map[string]any{"age": -5}, nil} {
			a := ann.call("who", nil)
			want := map[string]string{"cancel": "dismissed", "decline": "declined"}[action]
			if r := ann.retry("who", nil, a.state(), map[string]any{"who": map[string]any{"action": action, "content": content}}); r.outcome() != want {
				t.Errorf("%s with %v: %s", action, content, r.raw)
			}
		}
	}
	if r := ann.retry("who", nil, asked.state(), map[string]any{"who": accept(map[string]any{"name": "ann"})}); r.text() != "ann 7" {
		t.Errorf("what fits: %s", r.raw)
	}
}

// case S54: a person may think for longer than the tool may run. What comes too
// late is told so, once and for all.
func TestThinkingIsNotRunning(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("ask", &tallystick.ToolOptions{Timeout: time.Minute, Task: tallystick.TaskOptional}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", call.Confirm(tallystick.Question{Key: "go", Message: "Go?", Within: 55 * time.Minute})
		})
	}})
	rounds, tasks, answers := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks), map[string]any{"go": yes}
	for thinks, want := range map[time.Duration]string{61 * time.Second: "", 54 * time.Minute: "", 56 * time.Minute: "expired"} {
		state, id := rounds.call("ask", nil).state(), tasks.newTask("ask")
		tasks.await(id, status("input_required"))
		d.clock.Advance(thinks)
		first := rounds.retry("ask", nil, state, answers)
		if first.outcome() != want || first.isError() != (want != "") || want == "" && first.text() != "done" {
			t.Errorf("after %v: %s", thinks, first.raw)
		}
		if again := rounds.retry("ask", nil, state, answers); again.text() != first.text() || again.outcome() != first.outcome() {
			t.Errorf("after %v, again: %s", thinks, again.raw)
		}
		acked(t, "an update", tasks.update(id, answers))
		tasks.newTask("ask") // the clock of the test moves without waking anybody
		end := tasks.await(id, status("completed"))
		if r := (reply{result: end.result["result"].(map[string]any)}); r.outcome() != want || want == "" && r.text() != "done" {
			t.Errorf("the task after %v: %s", thinks, end.raw)
		}
	}
}

// case S57: an empty elicitation capability means forms, and no links. Such a
// client is not sent one: it is told what it lacks, or where else to answer.
func TestALinkIsNotSentToWhoShowsForms(t *testing.T) {
	d := newDesk(t, setup{tools: addKinds})
	r := d.as("ann/acme", `{"elicitation":{}}`).call("url", nil)
	need, _ := json.Marshal(r.err.Data["requiredCapabilities"])
	if r.err.Code != -32021 || string(need) != `{"elicitation":{"url":{}}}` || strings.Contains(r.raw, "bank.example") {
		t.Errorf("no other way: %s", r.raw)
	}
	opts := tallystick.Options{AnswerAt: func(id string, w tallystick.Waiting) string { return "https://desk.example/" + w.Kind + "/" + id }}
	d = newDesk(t, setup{opts: opts, tools: addKinds})
	ann := d.as("ann/acme", `{"elicitation":{}}`)
	r = ann.call("url", nil)
	id := pendingCall(r)
	if r.outcome() != "pending" || !strings.Contains(r.text(), "https://desk.example/url/"+id) {
		t.Fatalf("elsewhere: %s", r.raw)
	}
	if err := d.srv.Decide(context.Background(), person("ann"), tallystick.Decision{CallID: id, Key: "q", Accept: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return ann.call("call_status", map[string]any{"callId": id}).text() == "done" })
}

// case S58, S59: nobody says when a page is done. Its client may come back at
// once and often, long after, or never.
func TestALinkIsAskedForAgainUntilItsPageIsDone(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: 20 * time.Millisecond}}, tools: addKinds})
	ann := d.as("ann/acme", `{"elicitation":{"url":{}}}`)
	consent := map[string]any{"q": map[string]any{"action": "accept"}}
	open := func() (state, call string) {
		t.Helper()
		r := ann.call("url", nil)
		w, err := d.srv.Waiting(context.Background(), person("ann"))
		if err != nil || len(w) != 1 || r.state() == "" {
			t.Fatalf("%s, %+v, %v", r.raw, w, err)
		}
		return r.state(), w[0].CallID
	}
	decide := func(call string) error {
		return d.srv.Decide(context.Background(), person("ann"), tallystick.Decision{CallID: call, Key: "q", Accept: true})
	}

	state, call := open()
	var wg sync.WaitGroup
	for range 10 { // at once
		wg.Go(func() {
			r, err := ann.try(context.Background(), "tools/call", "url", map[string]any{"requestState": state, "inputResponses": consent})
			if err != nil || !slices.Equal(r.keys(), []string{"q"}) || r.state() == "" || !strings.Contains(r.raw, "https://bank.example/pay") {
				t.Errorf("before the page is done: %s, %v", r.raw, err)
			}
		})
	}
	wg.Wait()
	if err := decide(call); err != nil {
		t.Fatal(err)
	}
	d.clock.Advance(3 * time.Hour) // and then long after
	for range 3 {
		if r := ann.retry("url", nil, state, consent); r.text() != "done" {
			t.Errorf("after the page was done: %s", r.raw)
		}
	}

	never, call := open()
	d.clock.Advance(16 * time.Minute)
	if r := ann.retry("url", nil, never, consent); r.outcome() != "expired" || !r.isError() {
		t.Errorf("never done: %s", r.raw)
	}
	if err := decide(call); !errors.Is(err, tallystick.ErrSettled) {
		t.Errorf("done too late: %v", err)
	}
}

// case S60: whoever sees the link finds what it is for: the earliest decision
// there can be comes before the response has left the server.
func TestALinkIsNotSeenBeforeItIsOnRecord(t *testing.T) {
	var early atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler {
			return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
				res, err := next(ctx, r)
				if strings.Contains(string(res), "https://bank.example/pay") {
					w, werr := d.srv.Waiting(ctx, person("ann"))
					if werr != nil || len(w) != 1 {
						t.Errorf("behind the link: %+v, %v", w, werr)
						return res, err
					}
					if derr := d.srv.Decide(ctx, person("ann"), tallystick.Decision{CallID: w[0].CallID, Key: w[0].Key, Digest: w[0].Digest, Accept: true}); derr != nil {
						t.Errorf("a fast click: %v", derr)
					}
					early.Add(1)
				}
				return res, err
			}
		})
		addKinds(d)
	}})
	ann := d.as("ann/acme", `{"elicitation":{"url":{}}}`)
	asked := ann.call("url", nil)
	if r := ann.retry("url", nil, asked.state(), nil); r.text() != "done" || early.Load() != 1 {
		t.Errorf("%s, after %d early decisions", r.raw, early.Load())
	}
}

// case S67: the time of a task that asks is over: whoever listens is told, the
// question is none any more, and nothing of it is kept for ever.
func TestATaskThatAsksEndsWithItsTime(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Retention: 10 * time.Minute, Question: time.Hour}}, tools: func(d *desk) {
		addEcho(d, "kick", tallystick.TaskRequired)
		d.tool("ask", &tallystick.ToolOptions{Task: tallystick.TaskRequired, Deadline: 5 * time.Minute}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "go", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.newTask("ask")
	ann.await(id, status("input_required"))
	e := ann.listen(taskIDs(id))
	e.next()
	if m := e.next(); m.status() != "input_required" {
		t.Fatalf("told: %+v", m)
	}
	d.clock.Advance(6 * time.Minute)
	ann.newTask("kick") // the clock of the test moves without waking anybody
	if m := e.next(); m.status() != "failed" {
		t.Errorf("told: %+v", m)
	}
	r := ann.send("tasks/get", id, nil)
	if !strings.Contains(r.raw, `"outcome":"expired"`) || r.result["inputRequests"] != nil {
		t.Errorf("afterwards: %s", r.raw)
	}
	acked(t, "a late answer", ann.update(id, map[string]any{"go": yes}))
	if w, err := d.srv.Waiting(context.Background(), person("ann")); err != nil || len(w) != 0 {
		t.Errorf("it still waits for her: %+v, %v", w, err)
	}
	d.clock.Advance(11 * time.Minute)
	ann.newTask("kick")
	waitFor(t, func() bool {
		_, err := d.store.Load(context.Background(), id)
		return errors.Is(err, store.ErrNotFound)
	})
}
