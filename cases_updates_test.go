package tallystick_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// updatesDesk has a task that asks two codes, a and b, and says them.
func updatesDesk(t *testing.T) (*desk, caller) {
	t.Helper()
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			a, errA := tallystick.Ask[codeOf](call, tallystick.Question{Key: "a", Message: "Code a"})
			b, errB := tallystick.Ask[codeOf](call, tallystick.Question{Key: "b", Message: "Code b"})
			return a.Code + "+" + b.Code, first(errA, errB)
		})
	}})
	return d, d.as("ann/acme", capsTasks)
}

func (c caller) update(id string, answers map[string]any) reply {
	c.d.t.Helper()
	return c.send("tasks/update", id, map[string]any{"inputResponses": answers})
}

func (c caller) newTask(tool string) string {
	c.d.t.Helper()
	r := c.call(tool, nil)
	id, _ := r.result["taskId"].(string)
	if id == "" {
		c.d.t.Fatalf("no task: %s", r.raw)
	}
	return id
}

func isCode(s string) map[string]any { return accept(map[string]any{"code": s}) }

func acked(t *testing.T, what string, r reply) {
	t.Helper()
	if r.err != nil || r.typ() != "complete" || r.result["inputRequests"] != nil || r.result["status"] != nil {
		t.Errorf("%s is no plain ack: %s", what, r.raw)
	}
}

// refusals counts what was refused of a call, for a reason.
func (d *desk) refusals(call string, reason record.Reason) int {
	n := 0
	for _, e := range d.trail(call) {
		if e.Event == "refused" && e.Reason == reason {
			n++
		}
	}
	return n
}

// case S80: the specification wants an ack; nothing is stored, and that is on
// record each time. Of an update that is acked while the task waits, all is.
func TestAnUpdateOfATerminalTaskIsStoredNowhere(t *testing.T) {
	d, ann := updatesDesk(t)
	for end, finish := range map[string]func(id string){
		"completed": func(id string) { ann.update(id, map[string]any{"a": isCode("1"), "b": isCode("2")}) },
		"cancelled": func(id string) { ann.send("tasks/cancel", id, nil) },
	} {
		id := ann.newTask("job")
		ann.await(id, status("input_required"))
		finish(id)
		before := ann.await(id, status(end))
		stored, err := d.store.Load(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 3; n++ { // the same update again and again
			acked(t, "a late update", ann.update(id, map[string]any{"a": isCode("SECRET-LATE"), "b": isCode("SECRET-LATE")}))
			if got := d.refusals(id, record.ReasonEnded); got != n {
				t.Errorf("%s: %d refusals on record after %d late updates", end, got, n)
			}
		}
		after, err := d.store.Load(context.Background(), id)
		if err != nil || fmt.Sprintf("%+v", after.Questions) != fmt.Sprintf("%+v", stored.Questions) || after.Outcome != stored.Outcome {
			t.Errorf("%s: the call has changed, %v", end, err)
		}
		if r := ann.send("tasks/get", id, nil); r.result["status"] != end || fmt.Sprint(r.result["result"]) != fmt.Sprint(before.result["result"]) {
			t.Errorf("%s: afterwards %s", end, r.raw)
		}
	}
	d.stop()
	if trail := fmt.Sprintf("%+v", d.trail("")) + d.log.String(); strings.Contains(trail, "SECRET-LATE") {
		t.Error("a late answer is in the log or the trail")
	}
}

// case S80: what is acked is there at the next look, for good.
func TestAnAckedAnswerIsStored(t *testing.T) {
	_, ann := updatesDesk(t)
	id := ann.newTask("job")
	ann.await(id, status("input_required"))
	for range 2 {
		acked(t, "one of two", ann.update(id, map[string]any{"a": isCode("1")}))
		if r := ann.send("tasks/get", id, nil); !slices.Equal(r.keys(), []string{"b"}) {
			t.Fatalf("the next look: %s", r.raw)
		}
	}
	acked(t, "the other", ann.update(id, map[string]any{"b": isCode("2")}))
	if end := ann.await(id, status("completed")); !strings.Contains(end.raw, `"1+2"`) {
		t.Errorf("%s", end.raw)
	}
}

// case S81
func TestAMistypedKeyIsIgnoredAndSeen(t *testing.T) {
	d, ann := updatesDesk(t)
	id := ann.newTask("job")
	ann.await(id, status("input_required"))
	acked(t, "nothing but typos", ann.update(id, map[string]any{"typo_key": isCode("1"), "A": isCode("1")}))
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "input_required" || len(r.keys()) != 2 {
		t.Errorf("afterwards: %s", r.raw)
	}
	if n := d.refusals(id, record.ReasonNotOpen); n != 1 {
		t.Errorf("%d refusals on record", n)
	}
	acked(t, "one typo", ann.update(id, map[string]any{"a": isCode("1"), "typo_key": map[string]any{"whatever": "it is"}}))
	if r := ann.send("tasks/get", id, nil); !slices.Equal(r.keys(), []string{"b"}) || d.refusals(id, record.ReasonNotOpen) != 2 {
		t.Errorf("the good one counts: %s", r.raw)
	}
	d.stop()
	if !strings.Contains(d.log.String(), "ignored") || !strings.Contains(d.log.String(), "answers=2") || !strings.Contains(d.log.String(), "answers=1") {
		t.Errorf("the log does not say how many were ignored:\n%s", d.log)
	}
}

// case S82
func TestTheFirstAnswerWins(t *testing.T) {
	t.Parallel()
	d, ann := updatesDesk(t)
	no := map[string]any{"action": "decline"}
	id := ann.newTask("job")
	ann.await(id, status("input_required"))
	acked(t, "the first", ann.update(id, map[string]any{"a": isCode("1")}))
	for _, later := range []map[string]any{no, isCode("other"), isCode("1")} {
		acked(t, "a later one", ann.update(id, map[string]any{"a": later}))
	}
	if n := d.refusals(id, record.ReasonNotOpen); n != 3 {
		t.Errorf("%d of 3 later answers are on record", n)
	}
	ann.update(id, map[string]any{"b": isCode("2")})
	if end := ann.await(id, status("completed")); !strings.Contains(end.raw, `"1+2"`) {
		t.Errorf("%s", end.raw)
	}

	for range 10 { // a yes and a no at the same moment, and each of them twice
		id := ann.newTask("job")
		ann.await(id, status("input_required"))
		ann.update(id, map[string]any{"b": isCode("2")})
		var wg sync.WaitGroup
		for _, answer := range []map[string]any{isCode("1"), no, isCode("1"), no} {
			wg.Go(func() {
				if r, err := ann.try(context.Background(), "tasks/update", id, map[string]any{"inputResponses": map[string]any{"a": answer}}); err != nil || r.err != nil {
					t.Errorf("%s, %v", r.raw, err)
				}
			})
		}
		wg.Wait()
		var won []string
		for _, e := range d.trail(id) {
			if e.Event == "answered" && e.Key == "a" {
				won = append(won, e.Note)
			}
		}
		end := ann.await(id, status("completed"))
		accepted := strings.Contains(end.raw, `"1+2"`)
		if len(won) != 1 || accepted != (won[0] == "accept") || !accepted && !strings.Contains(end.raw, `"declined"`) {
			t.Fatalf("recorded %v, and it ended as %s", won, end.raw)
		}
		if n := d.refusals(id, record.ReasonNotOpen) + d.refusals(id, record.ReasonEnded); n != 3 {
			t.Errorf("%d of the 3 that came later are on record", n)
		}
	}
}

// case S105
func TestAResultThatIsTooLargeIsOneError(t *testing.T) {
	t.Parallel()
	var charges atomic.Int64
	charge := func(ctx context.Context, call *tallystick.Call) error {
		_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int64, error) { return charges.Add(1), nil })
		return err
	}
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{ResultBytes: 1 << 20}}, tools: func(d *desk) {
		addEcho(d, "echo", tallystick.TaskForbidden)
		d.tool("task", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return strings.Repeat("x", 11<<20), charge(ctx, call)
		})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "twice"}, nil, func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, codeOf, error) {
			return nil, codeOf{strings.Repeat("x", 600<<10)}, charge(ctx, call) // in the text, and in the structure
		})
	}})
	peer := peerOverStdio(t, d)
	told := func(what string, result any) {
		text := fmt.Sprint(result)
		if len(text) > 2000 || !strings.Contains(text, "isError:true") || !strings.Contains(text, "ResultBytes (1048576)") {
			t.Errorf("%s: %.300s", what, text)
		}
	}
	told("inline", peer(t, "tools/call", map[string]any{"name": "twice"}))
	id := peer(t, "tools/call", map[string]any{"name": "task"})["taskId"]
	var end map[string]any
	waitFor(t, func() bool {
		end = peer(t, "tasks/get", map[string]any{"taskId": id})
		return end["status"] == "completed"
	})
	told("as a task", end["result"])
	if r := peer(t, "tools/call", map[string]any{"name": "echo"}); r["isError"] == true || r["content"] == nil {
		t.Errorf("the connection afterwards: %v", r)
	}
	if n := charges.Load(); n != 2 {
		t.Errorf("%d charges of two calls", n)
	}
}
