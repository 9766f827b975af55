package tallystick_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// stateOnly reports whether a response asks its client to come back, and
// nothing else.
func stateOnly(r reply) bool { return r.typ() == "input_required" && len(r.keys()) == 0 }

// case S12
func TestNoRoundIsAStateAndNothingElse(t *testing.T) {
	both := tallystick.Who{Roles: []string{"finance"}, Count: 2}
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: 10 * time.Millisecond, Deadline: time.Hour}}, tools: func(d *desk) {
		d.tool("theirs", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", confirm(call, "q", tallystick.Who{Roles: []string{"finance"}, NotRequester: true})
		})
		d.tool("both", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "done", confirm(call, "q", both)
		})
		addEcho(d, "kick", tallystick.TaskRequired)
		d.tool("mixed", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			confirm(call, "mine", tallystick.Who{})
			return "done", confirm(call, "q", tallystick.Who{Roles: []string{"finance"}, NotRequester: true})
		})
	}})
	ann := d.as("ann/acme/finance", capsForm)

	theirs := ann.call("theirs", nil)
	if theirs.outcome() != "pending" || theirs.isError() || !strings.Contains(theirs.text(), "call_status") {
		t.Errorf("for somebody else: %s", theirs.raw)
	}
	mixed := ann.call("mixed", nil)
	if !slices.Equal(mixed.keys(), []string{"mine"}) {
		t.Errorf("for both: %s", mixed.raw)
	}
	if r := ann.retry("mixed", nil, mixed.state(), map[string]any{"mine": yes}); r.outcome() != "pending" {
		t.Errorf("hers is answered: %s", r.raw)
	}
	first := ann.call("both", nil)
	if r := ann.retry("both", nil, first.state(), map[string]any{"q": yes}); r.outcome() != "pending" {
		t.Errorf("one of two has answered: %s", r.raw)
	}
	// She has answered on the page, and then her client comes back.
	paged := ann.call("both", nil)
	decision := tallystick.Decision{CallID: waitingCall(t, d, "both"), Key: "q", Accept: true}
	if err := d.srv.Decide(context.Background(), person("ann", "finance"), decision); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := ann.retry("both", nil, paged.state(), nil); stateOnly(r) || r.outcome() != "pending" {
			t.Errorf("one of two has answered elsewhere: %s", r.raw)
		}
	}
	// Told that it is pending, she sends nothing more; the other's answer is enough.
	if err := d.srv.Decide(context.Background(), person("eve", "finance"), decision); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		return ann.call("call_status", map[string]any{"callId": decision.CallID}).text() == "done"
	})
	// Nor is it one for somebody who may not answer any more.
	demoted := ann.call("both", nil)
	if r := d.as("ann/acme", capsForm).retry("both", nil, demoted.state(), nil); stateOnly(r) || r.outcome() != "pending" {
		t.Errorf("without the role: %s", r.raw)
	}

	// No client comes back, and nobody decides: none of them stays for ever, and
	// of each it is on record why.
	var ids []string
	for _, e := range d.trail("") {
		if e.Event == "opened" {
			ids = append(ids, e.Call)
		}
	}
	d.clock.Advance(2 * time.Hour)
	d.as("ann/acme", capsTasks).call("kick", nil) // the clock of the test moves without waking anybody
	for _, id := range ids {
		waitFor(t, func() bool { return id == decision.CallID || d.audited(id, "ended", record.ReasonDeadline) })
	}
}

// waitingCall is the latest call of a tool that somebody of finance may answer.
func waitingCall(t *testing.T, d *desk, tool string) string {
	t.Helper()
	w, err := d.srv.Waiting(context.Background(), person("ann", "finance"))
	if err != nil {
		t.Fatal(err)
	}
	w = slices.DeleteFunc(w, func(w tallystick.Waiting) bool { return w.Tool != tool })
	if len(w) == 0 {
		t.Fatalf("nothing of %q waits", tool)
	}
	return w[len(w)-1].CallID
}

type wish struct {
	Colour string `json:"colour" form:"enum=red|green"`
	Count  int    `json:"count" form:"minimum=1"`
}

// case S14
func TestOneHandlerGetsTheAnswersOfEveryClient(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("order", &tallystick.ToolOptions{Task: tallystick.TaskOptional}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			w, err := tallystick.Ask[wish](call, tallystick.Question{Key: "wish", Message: "What?"})
			if err != nil {
				return "", err
			}
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "order"}, func(context.Context, string) (string, error) {
				return fmt.Sprintf("%d × %s", w.Count, w.Colour), nil
			})
		})
	}})
	answer := map[string]any{"wish": accept(map[string]any{"colour": "green", "count": 7})}
	const want = "7 × green"

	rounds := d.as("ann/acme", capsForm)
	if r := rounds.retry("order", nil, rounds.call("order", nil).state(), answer); r.text() != want {
		t.Errorf("by rounds: %s", r.raw)
	}
	tasks := d.as("ann/acme", capsTasks)
	id := tasks.call("order", nil).result["taskId"].(string)
	tasks.await(id, status("input_required"))
	tasks.send("tasks/update", id, map[string]any{"inputResponses": answer})
	if end := tasks.await(id, status("completed")); (reply{result: end.result["result"].(map[string]any)}).text() != want {
		t.Errorf("as a task: %s", end.raw)
	}
	cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"colour": "green", "count": 7}}, nil
	}})
	if res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "order"}); err != nil || res.Content[0].(*mcp.TextContent).Text != want {
		t.Errorf("live: %+v, %v", res, err)
	}
}

// case S15
func TestTheOrderOfQuestionsDoesNotMatter(t *testing.T) {
	var runs atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			got := map[string]string{}
			keys := []string{"a", "b"}
			if runs.Add(1)%2 == 0 {
				slices.Reverse(keys)
			}
			for _, key := range keys {
				c, err := tallystick.Ask[codeOf](call, tallystick.Question{Key: key, Message: "Code of " + key})
				if err != nil {
					return "", err
				}
				got[key] = c.Code
			}
			return got["a"] + got["b"], nil
		})
		d.tool("swap", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			about := "a"
			if runs.Add(1) > 1 {
				about = "b"
			}
			c, err := tallystick.Ask[codeOf](call, tallystick.Question{Key: "code", Message: "Code of " + about})
			return c.Code + " of " + about, err
		})
	}})
	ann := d.as("ann/acme", capsForm)
	code := func(s string) map[string]any { return accept(map[string]any{"code": s}) }
	r := ann.call("ask", nil)
	for r.typ() == "input_required" && runs.Load() < 9 {
		answers := map[string]any{}
		for _, key := range r.keys() {
			answers[key] = code("code of " + key + ".")
		}
		r = ann.retry("ask", nil, r.state(), answers)
	}
	if r.text() != "code of a.code of b." {
		t.Errorf("asked the other way round each time: %s", r.raw)
	}
	// Something else is asked under the same key: its answer is none to it.
	runs.Store(0)
	r = ann.call("swap", nil)
	r = ann.retry("swap", nil, r.state(), map[string]any{"code": code("1")})
	if !slices.Equal(r.keys(), []string{"code~2"}) || !strings.Contains(r.raw, "Code of b") {
		t.Fatalf("another question under the key: %s", r.raw)
	}
	if r = ann.retry("swap", nil, r.state(), map[string]any{"code~2": code("2")}); r.text() != "2 of b" {
		t.Errorf("its own answer: %s", r.raw)
	}
}

// case S16
func TestAHeadlessClientIsToldThatNobodyCanBeAsked(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		ask := func(call *tallystick.Call) error { return confirm(call, "ok", tallystick.Who{}) }
		d.tool("t", nil, func(_ context.Context, call *tallystick.Call) (string, error) { return "SECRET", ask(call) })
		tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "p"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Description: "SECRET", Messages: []*mcp.PromptMessage{}}, ask(call)
		})
		tallystick.AddResource(d.srv, &mcp.Resource{Name: "r", URI: "test://r"}, func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "SECRET"}}}, ask(call)
		})
	}})
	for method, name := range map[string]string{"tools/call": "t", "prompts/get": "p", "resources/read": "test://r"} {
		r := d.as("ann/acme", capsNone).send(method, name, nil)
		if r.err == nil || r.err.Code != -32021 || r.err.Data["requiredCapabilities"] == nil || strings.Contains(r.raw, "SECRET") {
			t.Errorf("%s: %s", method, r.raw)
		}
		// Given up between the rounds: another fact, and as little of a result.
		ann := d.as("ann/acme", capsForm)
		state := ann.send(method, name, nil).state()
		r = ann.send(method, name, map[string]any{"requestState": state, "inputResponses": map[string]any{"ok": map[string]any{"action": "cancel"}}})
		dismissed := r.outcome() == "dismissed" || r.err != nil && r.err.Code == tallystick.CodeDismissed
		if !dismissed || strings.Contains(r.raw, "SECRET") {
			t.Errorf("%s, given up: %s", method, r.raw)
		}
	}
}

// case S36
func TestAnUntouchedConfirmationIsNoYesAndCanBeAskedAgain(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	asked := ann.call("refund", order1)
	q := asked.result["inputRequests"].(map[string]any)["approve"].(map[string]any)["params"].(map[string]any)
	schema := q["requestedSchema"].(map[string]any)
	box := schema["properties"].(map[string]any)["confirm"].(map[string]any)
	if box["type"] != "boolean" || box["title"] == "" || box["default"] != nil || fmt.Sprint(schema["required"]) != "[confirm]" {
		t.Errorf("the form: %v", schema)
	}
	// Submitted as it was, a client sends nothing, or false, or gives up.
	r := ann.retry("refund", order1, asked.state(), map[string]any{"approve": accept(map[string]any{})})
	if fields, _ := r.err.Data["fields"].(map[string]any); r.err.Code != -32602 || !strings.Contains(fmt.Sprint(fields["approve"]), "required") {
		t.Errorf("nothing: %s", r.raw)
	}
	if r = ann.retry("refund", order1, asked.state(), map[string]any{"approve": accept(map[string]any{"confirm": false})}); r.outcome() != "declined" {
		t.Errorf("false: %s", r.raw)
	}
	asked = ann.call("refund", order1)
	r = ann.retry("refund", order1, asked.state(), map[string]any{"approve": map[string]any{"action": "cancel"}})
	if r.outcome() != "dismissed" || !r.isError() || !strings.Contains(r.text(), "calling again asks again") || sh.refunds.Load() != 0 {
		t.Errorf("cancel: %s", r.raw)
	}
	asked = ann.call("refund", order1)
	if r = ann.retry("refund", order1, asked.state(), map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Errorf("asked again: %s", r.raw)
	}
}

// case S48
func TestAnEmptyFormIsNeverSent(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("own", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			_, err := call.Input(tallystick.Question{Key: "q", Message: "Submit?"}, &mcp.ElicitParams{RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
			return "", err
		})
		d.tool("made", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Ask[struct{}](call, tallystick.Question{Key: "q", Message: "Submit?"})
			return "", err
		})
	}})
	for _, tool := range []string{"own", "made"} {
		if r := d.as("ann/acme", capsForm).call(tool, nil); r.typ() != "complete" || !r.isError() || !strings.Contains(r.text(), "no properties") {
			t.Errorf("%s: %s", tool, r.raw)
		}
	}
}

// case S51
func TestASwallowedQuestionCanBeAnsweredElsewhereOrExpires(t *testing.T) {
	opts := tallystick.Options{AnswerAt: func(id string, _ tallystick.Waiting) string { return "https://desk.example/" + id }}
	d, sh := refundDesk(t, tallystick.Who{}, opts)
	ann := d.as("ann/acme//mute", capsForm)
	swallowed := ann.call("refund", order1)
	if swallowed.typ() != "input_required" {
		t.Fatalf("asked: %s", swallowed.raw)
	}
	w, err := d.srv.Waiting(context.Background(), person("ann"))
	if err != nil || len(w) != 1 || w[0].Expires.Sub(w[0].AskedAt) != 15*time.Minute {
		t.Fatalf("on the page: %+v, %v", w, err)
	}
	if err := d.srv.Decide(context.Background(), person("ann"), tallystick.Decision{CallID: w[0].CallID, Key: w[0].Key, Digest: w[0].Digest, Accept: true}); err != nil {
		t.Fatal(err)
	}
	// It goes on when its client comes back, and says so until then.
	if s := ann.call("call_status", map[string]any{"callId": w[0].CallID}); s.outcome() != "pending" || !strings.Contains(s.text(), "sent again") || sh.refunds.Load() != 0 {
		t.Errorf("answered, and its client away: %s", s.raw)
	}
	// However late and empty-handed the client comes back.
	d.clock.Advance(time.Hour)
	if r := ann.retry("refund", order1, swallowed.state(), nil); r.isError() || sh.refunds.Load() != 1 {
		t.Errorf("answered elsewhere: %s", r.raw)
	}
	never := ann.call("refund", map[string]any{"orderId": "2"})
	d.clock.Advance(16 * time.Minute)
	if r := ann.retry("refund", map[string]any{"orderId": "2"}, never.state(), nil); r.outcome() != "expired" || sh.refunds.Load() != 1 {
		t.Errorf("never answered: %s", r.raw)
	}
	for _, e := range d.trail("") {
		if e.Event == "question expired" {
			return
		}
	}
	t.Error("it is not on record that a question expired")
}

// case S52
func TestHowLongADecisionTookIsOnRecord(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme//print-mode", capsForm)
	for _, thinks := range []time.Duration{0, 40 * time.Second} {
		state := ann.call("refund", order1).state()
		d.clock.Advance(thinks)
		if r := ann.retry("refund", order1, state, map[string]any{"approve": map[string]any{"action": "decline"}}); r.outcome() != "declined" {
			t.Fatalf("declined after %v: %s", thinks, r.raw)
		}
	}
	var asked time.Time
	var took []time.Duration
	for _, e := range d.trail("") {
		switch {
		case e.Event == "asked":
			asked = e.At
		case e.Event == "answered":
			took = append(took, e.At.Sub(asked))
			if e.By.Client != "print-mode" || e.By.Channel != record.ChannelRound || e.Note != "decline" {
				t.Errorf("who declined, and by what: %+v", e)
			}
		}
	}
	if len(took) != 2 || took[0] < 0 || took[0] > 10*time.Second || took[1] < 40*time.Second || took[1] > 50*time.Second {
		t.Errorf("the decisions took %v", took)
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Errorf("%d refunds", n)
	}
}

// case S53
func TestAnUnansweredQuestionWaitsOnRecordAndThenEnds(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("ask", &tallystick.ToolOptions{Task: tallystick.TaskOptional}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "go", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	start := time.Now()
	id := ann.call("ask", nil).result["taskId"].(string)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the request was held for %v", took)
	}
	ann.await(id, status("input_required"))
	d.clock.Advance(14 * time.Minute)
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "input_required" || !slices.Equal(r.keys(), []string{"go"}) {
		t.Fatalf("14 minutes later: %s", r.raw)
	}
	d.clock.Advance(2 * time.Minute)
	ann.call("ask", nil) // the clock of the test moves without waking anybody
	end := ann.await(id, status("completed"))
	if result := (reply{result: end.result["result"].(map[string]any)}); result.outcome() != "expired" || !result.isError() {
		t.Errorf("after its time: %s", end.raw)
	}
	if !d.audited(id, "question expired", "") {
		t.Error("that is not on record")
	}
}
