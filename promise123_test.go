package tallystick_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

var order1 = map[string]any{"orderId": "1"}

func refusedState(t *testing.T, what string, r reply) {
	t.Helper()
	if r.err == nil || r.err.Code != -32602 || r.err.Data["reason"] != "invalid_request_state" || r.status != 400 {
		t.Errorf("%s: %d %s", what, r.status, r.raw)
	}
}

// case S01, S04
func TestPromise1StateBindsPrincipalActionAndAudience(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	shared := memory.New(memory.Options{Shared: true})
	opts := tallystick.Options{Keys: keys.AEAD(), Store: shared, Node: "a"}
	d, sh := refundDesk(t, tallystick.Who{}, opts)
	opts.Deployment, opts.Node = "staging", "b"
	staging, _ := refundDesk(t, tallystick.Who{}, opts)

	ann := d.as("ann/acme//cli", capsForm)
	state := ann.call("refund", order1).state()
	answers := map[string]any{"approve": yes}
	texts := map[string]bool{}
	for what, r := range map[string]reply{
		"another subject":   d.as("bob/acme//cli", capsForm).retry("refund", order1, state, answers),
		"another tenant":    d.as("ann/evil//cli", capsForm).retry("refund", order1, state, answers),
		"another client":    d.as("ann/acme//other", capsForm).retry("refund", order1, state, answers),
		"other arguments":   ann.retry("refund", map[string]any{"orderId": "2"}, state, answers),
		"another audience":  staging.as("ann/acme//cli", capsForm).retry("refund", order1, state, answers),
		"a tampered state":  ann.retry("refund", order1, state+"-TAMPERED", answers),
		"a truncated state": ann.retry("refund", order1, state[:len(state)-2], answers),
		"an empty state":    ann.retry("refund", order1, "", answers),
	} {
		refusedState(t, what, r)
		texts[r.err.Message] = true
	}
	if len(texts) != 1 {
		t.Errorf("refusals differ on the wire: %v", texts)
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Fatalf("%d refunds", n)
	}
	// The genuine one still works after all of that.
	if r := ann.retry("refund", order1, state, answers); r.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("the genuine state: %s", r.raw)
	}
}

// What a client carries is bound as tightly as what is kept.
func TestPromise1ACarriedStateIsBoundToo(t *testing.T) {
	type args struct {
		Of string `json:"of"`
	}
	ran := 0
	d := newDesk(t, setup{tools: func(d *desk) {
		for _, name := range []string{"look", "see"} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
				func(_ context.Context, call *tallystick.Call, in args) (*mcp.CallToolResult, any, error) {
					if err := call.Confirm(tallystick.Question{Key: "ok", Message: "Look at " + in.Of + "?"}); err != nil {
						return nil, nil, err
					}
					ran++
					return nil, nil, nil
				})
		}
	}})
	ann, a := d.as("ann/acme", capsForm), map[string]any{"of": "a"}
	ok := map[string]any{"ok": yes}
	state := ann.call("look", a).state()
	refusedState(t, "another principal", d.as("bob/acme", capsForm).retry("look", a, state, ok))
	refusedState(t, "other arguments", ann.retry("look", map[string]any{"of": "b"}, state, ok))
	refusedState(t, "another tool", ann.retry("see", a, state, ok))
	refusedState(t, "a tampered state", ann.retry("look", a, state+"A", ok))
	if ran != 0 {
		t.Fatalf("it ran %d times", ran)
	}
	if r := ann.retry("look", a, state, ok); r.isError() || ran != 1 {
		t.Fatalf("the genuine state: %s", r.raw)
	}
}

// case S01: why a stolen state was refused is on the call's own record.
func TestPromise1AStolenStateIsOnRecord(t *testing.T) {
	d, _ := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	state := ann.call("refund", order1).state()
	refusedState(t, "stolen", d.as("eve/acme", capsForm).retry("refund", order1, state, map[string]any{"approve": yes}))
	id := ann.retry("refund", order1, state, map[string]any{"approve": yes})
	if id.isError() {
		t.Fatal(id.raw)
	}
	found := false
	for _, e := range allAudit(t, d) {
		found = found || e.Event == "refused" && e.Reason == "state_of_another_principal" && e.By.Subject == "eve"
	}
	if !found {
		t.Error("the refusal is not on record")
	}
}

func TestPromise1UnaskedStrippedAndWrongKindAnswersNeverCount(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	cold := ann.send("tools/call", "refund", map[string]any{"arguments": order1, "inputResponses": map[string]any{"approve": yes}})
	if cold.typ() != "input_required" {
		t.Fatalf("answers without a question: %s", cold.raw)
	}
	// case S05
	for what, wrong := range map[string]any{
		"a sampling result": map[string]any{"role": "user", "model": "m", "content": map[string]any{"type": "text", "text": "yes"}},
		"roots":             map[string]any{"roots": []any{}},
		"no form":           accept(nil),
		"a string for yes":  accept(map[string]any{"confirm": "true"}),
		"a nested value":    accept(map[string]any{"confirm": true, "x": map[string]any{"y": 1}}),
	} {
		r := ann.retry("refund", order1, cold.state(), map[string]any{"approve": wrong})
		if r.err == nil || r.err.Code != -32602 || r.err.Data["reason"] != "invalid_answer" {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	other := ann.retry("refund", order1, cold.state(), map[string]any{"Approve": yes, "approve~2": yes})
	if other.typ() != "input_required" || !slices.Equal(other.keys(), []string{"approve"}) {
		t.Errorf("answers to other keys: %s", other.raw)
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Fatalf("%d refunds", n)
	}
	// None of it consumed the round.
	if r := ann.retry("refund", order1, cold.state(), map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("afterwards: %s", r.raw)
	}
}

// A genuine state whose question has expired is told apart: the handler learns
// that it expired.
func TestPromise1GenuineExpiredStateGetsErrExpired(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{Limits: tallystick.Limits{Question: time.Minute}})
	ann := d.as("ann/acme", capsForm)
	state := ann.call("refund", order1).state()
	d.clock.Advance(2 * time.Minute)
	r := ann.retry("refund", order1, state, map[string]any{"approve": yes})
	if r.outcome() != "expired" || !r.isError() || sh.refunds.Load() != 0 {
		t.Fatalf("%s, %d refunds", r.raw, sh.refunds.Load())
	}
}

// case S85, S87
func TestPromise1TaskIDIsItsOwners(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "job", tallystick.TaskOptional) }})
	ann := d.as("ann/acme//cli", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	absent := ann.send("tasks/get", "AAAAAAAAAAAAAAAAAAAAAAAAAA", nil)
	for _, token := range []string{"bob/acme//cli", "ann/evil//cli", "ann/acme//other", ""} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			r := d.as(token, capsTasks).send(method, id, map[string]any{"inputResponses": map[string]any{}})
			if r.err == nil || r.err.Code != -32602 || r.err.Message != absent.err.Message || r.status != absent.status || len(r.err.Data) != len(absent.err.Data) {
				t.Errorf("%q %s: %d %s, absent %s", token, method, r.status, r.raw, absent.raw)
			}
		}
	}
}

// addEcho adds a tool that says done.
func addEcho(d *desk, name string, use tallystick.TaskUse) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, &tallystick.ToolOptions{Task: use},
		func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
}

func TestPromise2AnswerToOtherFactsIsVoidAndAskedAgain(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	first := ann.call("refund", order1)
	sh.mu.Lock()
	sh.version, sh.total = 2, "99 EUR"
	sh.mu.Unlock()
	second := ann.retry("refund", order1, first.state(), map[string]any{"approve": yes})
	if second.typ() != "input_required" || !slices.Equal(second.keys(), []string{"approve~2"}) || !strings.Contains(second.raw, "99 EUR") {
		t.Fatalf("after the change: %s", second.raw)
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Fatalf("%d refunds on a void approval", n)
	}
	// The retired key means nothing any more.
	old := ann.retry("refund", order1, second.state(), map[string]any{"approve": yes})
	if old.typ() != "input_required" || sh.refunds.Load() != 0 {
		t.Fatalf("the old key: %s", old.raw)
	}
	done := ann.retry("refund", order1, second.state(), map[string]any{"approve~2": yes})
	if done.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("the new key: %s", done.raw)
	}
}

// case S29: an approval is for these arguments and no others.
func TestPromise2ApprovalIsForTheseArguments(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	first := ann.call("refund", order1)
	if r := ann.retry("refund", order1, first.state(), map[string]any{"approve": yes}); r.isError() {
		t.Fatal(r.raw)
	}
	if r := ann.call("refund", map[string]any{"orderId": "2"}); r.typ() != "input_required" || sh.refunds.Load() != 1 {
		t.Fatalf("the next order: %s", r.raw)
	}
}

func TestPromise2AQuestionThatChangesEachTimeFailsAndIsNamed(t *testing.T) {
	n := 0
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "vague"}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				n++
				return nil, nil, call.Confirm(tallystick.Question{Key: "now", Message: time.Now().String()})
			})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("vague", nil)
	for range 2 {
		r = ann.retry("vague", nil, r.state(), map[string]any{r.keys()[0]: yes})
		if r.typ() != "input_required" {
			t.Fatalf("too early: %s", r.raw)
		}
	}
	r = ann.retry("vague", nil, r.state(), map[string]any{r.keys()[0]: yes})
	if r.err == nil || !strings.Contains(r.err.Message, `"now"`) {
		t.Fatalf("after three: %s", r.raw)
	}
}

// case S02
func TestPromise3ARoundIsConsumedOnce(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	state := ann.call("refund", order1).state()
	var wg sync.WaitGroup
	replies := make([]reply, 16)
	for i := range replies {
		wg.Go(func() { replies[i] = ann.retry("refund", order1, state, map[string]any{"approve": yes}) })
	}
	wg.Wait()
	for _, r := range replies {
		if r.text() != replies[0].text() || r.isError() || r.err != nil {
			t.Errorf("a duplicate got %s, another %s", r.raw, replies[0].raw)
		}
	}
	if n := sh.refunds.Load(); n != 1 {
		t.Fatalf("%d refunds", n)
	}
	refusedState(t, "other answers", ann.retry("refund", order1, state, map[string]any{"approve": map[string]any{"action": "decline"}}))
}

// Yes and no at the same moment: one of them counts, for good.
func TestPromise3YesAndNoAtOnce(t *testing.T) {
	for i := range 20 {
		d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
		ann := d.as("ann/acme", capsForm)
		state := ann.call("refund", order1).state()
		var wg sync.WaitGroup
		var a, b reply
		wg.Go(func() { a = ann.retry("refund", order1, state, map[string]any{"approve": yes}) })
		wg.Go(func() {
			b = ann.retry("refund", order1, state, map[string]any{"approve": map[string]any{"action": "decline"}})
		})
		wg.Wait()
		refunded := sh.refunds.Load() == 1
		if refunded == (a.err != nil) || refunded == (b.err == nil) || !refunded && b.outcome() != "declined" {
			t.Fatalf("round %d: %d refunds, yes got %s, no got %s", i, sh.refunds.Load(), a.raw, b.raw)
		}
		d.stop()
	}
}

func TestPromise3RecordedResponseNeedsTheCapability(t *testing.T) {
	d := newDesk(t, setup{tools: addTwoQuestions})
	ann := d.as("ann/acme", capsForm)
	first := ann.call("two", nil)
	second := ann.retry("two", nil, first.state(), map[string]any{"a": yes})
	if !slices.Equal(second.keys(), []string{"b"}) {
		t.Fatalf("round 1: %s", second.raw)
	}
	mute := d.as("ann/acme", capsNone).retry("two", nil, first.state(), map[string]any{"a": yes})
	if mute.err == nil || mute.err.Code != -32021 {
		t.Fatalf("replay to a client that cannot: %s", mute.raw)
	}
	again := ann.retry("two", nil, first.state(), map[string]any{"a": yes})
	if !slices.Equal(again.keys(), []string{"b"}) {
		t.Fatalf("replay: %s", again.raw)
	}
	done := ann.retry("two", nil, again.state(), map[string]any{"b": yes})
	if done.typ() != "complete" {
		t.Fatalf("with the replayed state: %s", done.raw)
	}
}

// addTwoQuestions adds a tool that asks a, then b.
func addTwoQuestions(d *desk) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "two"}, nil,
		func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			for _, key := range []string{"a", "b"} {
				if err := call.Confirm(tallystick.Question{Key: key, Message: key + "?"}); err != nil {
					return nil, nil, err
				}
			}
			return nil, nil, nil
		})
}

// case S23
func TestPromise3IdempotencyKey(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	keyed := func(c caller, key string, args map[string]any) reply {
		return c.send("tools/call", "refund", map[string]any{"arguments": args, "_meta": map[string]any{"tallystick/idempotencyKey": key}})
	}
	first := keyed(ann, "k1", order1)
	again := keyed(ann, "k1", order1)
	if again.typ() != "input_required" || !slices.Equal(first.keys(), again.keys()) || first.state() == again.state() {
		t.Fatalf("the same key while it waits: %s, then %s", first.raw, again.raw)
	}
	if r := keyed(ann, "k1", map[string]any{"orderId": "2"}); r.err == nil || r.err.Data["reason"] != "idempotency_conflict" {
		t.Fatalf("other arguments: %s", r.raw)
	}
	if r := keyed(d.as("bob/acme", capsForm), "k1", map[string]any{"orderId": "2"}); r.typ() != "input_required" {
		t.Fatalf("somebody else's key: %s", r.raw)
	}
	done := ann.retry("refund", order1, again.state(), map[string]any{"approve": yes})
	if r := keyed(ann, "k1", order1); r.text() != done.text() || sh.refunds.Load() != 1 {
		t.Fatalf("after the end: %s, %d refunds", r.raw, sh.refunds.Load())
	}
}

func TestPromise3IdempotencyKeyAtOnce(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "job", tallystick.TaskOptional) }})
	ann := d.as("ann/acme", capsTasks)
	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			r := ann.send("tools/call", "job", map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}})
			ids[i], _ = r.result["taskId"].(string)
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("ids %v", ids)
		}
	}
}

func allAudit(t *testing.T, d *desk) []record.Entry {
	t.Helper()
	return d.trail("")
}
