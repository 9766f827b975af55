package tallystick_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// These tests stand for statements of the specification's page on multi
// round-trip requests that no other test is about: docs/spec.md has them all.

// addTwoAtOnce adds a tool that asks a and b together, and a read-only one.
func addTwoAtOnce(d *desk) {
	for name, hints := range map[string]*mcp.ToolAnnotations{"kept": nil, "carried": {ReadOnlyHint: true}} {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: name, Annotations: hints}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				a, errA := tallystick.Ask[codeOf](call, tallystick.Question{Key: "a", Message: "Code a"})
				b, errB := tallystick.Ask[codeOf](call, tallystick.Question{Key: "b", Message: "Code b"})
				if err := first(errA, errB); err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Code + "+" + b.Code}}}, nil, nil
			})
	}
}

func TestAMissingAnswerIsAskedForAgain(t *testing.T) {
	d := newDesk(t, setup{tools: addTwoAtOnce})
	ann := d.as("ann/acme", capsForm)
	for _, tool := range []string{"kept", "carried"} {
		r := ann.call(tool, nil)
		for what, c := range map[string]struct {
			answers map[string]any
			want    []string
		}{
			"no answers at all":  {nil, []string{"a", "b"}},
			"an empty object":    {map[string]any{}, []string{"a", "b"}},
			"one that is no one": {map[string]any{"c": isCode("3")}, []string{"a", "b"}},
		} {
			again := ann.send("tools/call", tool, map[string]any{"requestState": r.state(), "inputResponses": c.answers})
			keys := again.keys()
			slices.Sort(keys)
			if again.typ() != "input_required" || !slices.Equal(keys, c.want) || again.state() == "" || again.status != http.StatusOK {
				t.Errorf("%s, %s: %d %s", tool, what, again.status, again.raw)
			}
		}
		half := ann.retry(tool, nil, r.state(), map[string]any{"a": isCode("1")})
		if half.typ() != "input_required" || !slices.Equal(half.keys(), []string{"b"}) {
			t.Fatalf("%s, one of two: %s", tool, half.raw)
		}
		if end := ann.retry(tool, nil, half.state(), map[string]any{"b": isCode("2")}); end.text() != "1+2" {
			t.Errorf("%s, then the other: %s", tool, end.raw)
		}
	}
}

func TestWhatIsNotKnownInAnswersIsIgnored(t *testing.T) {
	d := newDesk(t, setup{tools: addTwoAtOnce})
	ann := d.as("ann/acme", capsForm)
	extra := func(code string) map[string]any {
		return map[string]any{"action": "accept", "content": map[string]any{"code": code, "mood": "good"}, "more": 1, "_meta": map[string]any{"k": "v"}}
	}
	for _, tool := range []string{"kept", "carried"} {
		r := ann.call(tool, nil)
		end := ann.send("tools/call", tool, map[string]any{
			"requestState": r.state(), "unknown": true, "task": map[string]any{"ttl": 1},
			"inputResponses": map[string]any{"a": extra("1"), "b": extra("2"), "c": extra("3"), "d": map[string]any{"whatever": nil}},
		})
		if end.text() != "1+2" || end.status != http.StatusOK {
			t.Errorf("%s: %d %s", tool, end.status, end.raw)
		}
	}
}

// Only three requests are ever answered with questions, whatever is in others.
func TestNoOtherRequestIsAnsweredWithQuestions(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		addKinds(d)
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	state := ann.call("form", nil).state()
	id := ann.newTask("job")
	ann.await(id, status("input_required"))
	for _, method := range []string{
		"tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover", "completion/complete",
		"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "ping", "nothing",
	} {
		r := ann.send(method, id, map[string]any{"requestState": state, "inputResponses": map[string]any{"q": map[string]any{}, "x": yes}})
		if r.typ() == "input_required" || r.state() != "" || method != "tasks/get" && len(r.keys()) > 0 {
			t.Errorf("%s: %s", method, r.raw)
		}
	}
}

// A key names one question of a round, so a handler that uses it for two is
// told, and nothing goes out.
func TestTwoQuestionsUnderOneKeyAreNeverSent(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("twice", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", first(confirm(call, "q", tallystick.Who{}), call.Confirm(tallystick.Question{Key: "q", Message: "Something else?"}))
		})
	}})
	r := d.as("ann/acme", capsForm).call("twice", nil)
	if r.typ() == "input_required" || !r.isError() || !strings.Contains(r.text(), `"q"`) {
		t.Errorf("%s", r.raw)
	}
}

// A state lapses. With the questions in it, its handler still hears that they
// have expired; past its call's deadline it is no state at all.
func TestAStateLapses(t *testing.T) {
	limits := tallystick.Limits{Question: time.Minute, Deadline: 10 * time.Minute}
	ran := 0
	d := newDesk(t, setup{opts: tallystick.Options{Limits: limits}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				if err := call.Confirm(tallystick.Question{Key: "q", Message: "Look?"}); err != nil {
					return nil, nil, err
				}
				ran++
				return nil, nil, nil
			})
		sh := &shop{total: "1"}
		sh.addRefund(d, tallystick.Who{})
	}})
	ann := d.as("ann/acme", capsForm)
	carried, kept := ann.call("look", nil).state(), ann.call("refund", order1).state()
	d.clock.Advance(2 * time.Minute)
	for tool, r := range map[string]reply{
		"look": ann.retry("look", nil, carried, map[string]any{"q": yes}), "refund": ann.retry("refund", order1, kept, map[string]any{"approve": yes}),
	} {
		if r.outcome() != "expired" || !r.isError() {
			t.Errorf("%s with an expired question: %s", tool, r.raw)
		}
	}
	d.clock.Advance(10 * time.Minute)
	refusedState(t, "a carried state past its call", ann.retry("look", nil, carried, map[string]any{"q": yes}))
	if r := ann.retry("refund", order1, kept, map[string]any{"approve": yes}); r.typ() == "input_required" || r.err == nil && !r.isError() {
		t.Errorf("a kept call past its deadline: %s", r.raw)
	}
	if ran != 0 {
		t.Errorf("it ran %d times", ran)
	}
}

// A client that was given no state and invents one gets nowhere.
func TestAnInventedStateIsRefused(t *testing.T) {
	d := newDesk(t, setup{tools: addTwoAtOnce})
	ann := d.as("ann/acme", capsForm)
	for _, tool := range []string{"kept", "carried"} {
		for what, state := range map[string]string{
			"JSON": `{"round":1}`, "base64": "eyJyb3VuZCI6MX0", "our prefix": "ts1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "long": "ts1." + strings.Repeat("A", 20_000),
		} {
			if r := ann.retry(tool, nil, state, map[string]any{"a": isCode("1"), "b": isCode("2")}); what == "long" {
				if r.err == nil || r.status < 400 || r.status > 499 {
					t.Errorf("%s, %s: %d %s", tool, what, r.status, r.raw)
				}
			} else {
				refusedState(t, tool+", "+what, r)
			}
		}
	}
}

// Each prompt of a call stands for itself: rounds may be many, and the same
// request may be made anew at any time.
func TestARequestMayBeAnsweredWithQuestionsAgainAndAgain(t *testing.T) {
	d := newDesk(t, setup{tools: addKinds})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("rounds", nil)
	states := map[string]bool{}
	for _, key := range []string{"q0", "q1", "q2"} {
		if r.typ() != "input_required" || !slices.Equal(r.keys(), []string{key}) || states[r.state()] {
			t.Fatalf("%s: %s", key, r.raw)
		}
		states[r.state()] = true
		r = ann.retry("rounds", nil, r.state(), map[string]any{key: accept(map[string]any{"name": key})})
	}
	if r.text() != "q0 q1 q2" {
		t.Errorf("%s", r.raw)
	}
	for range 3 { // nobody has to come back
		if r := ann.call("rounds", nil); r.typ() != "input_required" || states[r.state()] {
			t.Errorf("made anew: %s", r.raw)
		}
	}
}
