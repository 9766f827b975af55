package tallystick_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store/memory"
)

// payment is what the effect of these tests returns.
type payment struct {
	ID string `json:"id"`
}

// payDesk has a tool whose effect fails, so that it is held.
func payDesk(t *testing.T, st *memory.Store, did *atomic.Int64) *desk {
	return newDesk(t, setup{opts: tallystick.Options{Store: st}, tools: func(d *desk) {
		for _, name := range []string{"pay", "pay too"} {
			d.tool(name, &tallystick.ToolOptions{Task: tallystick.TaskOptional}, func(ctx context.Context, call *tallystick.Call) (string, error) {
				r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"}, func(context.Context, string) (payment, error) {
					did.Add(1)
					return payment{}, errors.New("no reply")
				})
				return "receipt " + r.ID, err
			})
		}
	}})
}

func given(id, result string) tallystick.Decision {
	return tallystick.Decision{CallID: id, Effect: "pay", Subject: "1", Happened: true, Result: []byte(result)}
}

// What an operator says came of an effect is held against what the handler can
// use as soon as that is known. Nothing of it is lost, nothing is done again.
func TestAResultThatTheHandlerCannotUseIsGivenAnew(t *testing.T) {
	var did atomic.Int64
	st, op := memory.New(memory.Options{}), person("olga", "operator")
	first := payDesk(t, st, &did)
	id := first.as("ann/acme", capsTasks).call("pay", nil).result["taskId"].(string)
	waitFor(t, func() bool { return first.audited(id, "effect held", "") })
	for result, why := range map[string]string{
		`{"id":7}`: "payment.id", `"seven"`: "payment", `{"no":"7"}`: `"no"`, `{"id":"7","id":"8"}`: "a name twice", `{"id":`: "no JSON", "\"\xff\"": "not UTF-8",
	} {
		if err := first.srv.Decide(t.Context(), op, given(id, result)); !errors.Is(err, tallystick.ErrBadAnswer) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", result, err)
		}
	}
	first.stop()

	second := payDesk(t, st, &did) // no handler of it has got to its effect
	ann := second.as("ann/acme", capsTasks)
	if err := second.srv.Decide(t.Context(), op, given(id, `{"id":7}`)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		w, err := second.srv.Waiting(t.Context(), op)
		return err == nil && len(w) == 1 && strings.Contains(fmt.Sprint(w[0].Evidence[len(w[0].Evidence)-1]), "does not fit") &&
			string(w[0].Evidence[len(w[0].Evidence)-1].Result) == `{"id":7}`
	})
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "working" {
		t.Errorf("held again: %s", r.raw)
	}
	undone := tallystick.Decision{CallID: id, Effect: "pay", Subject: "1"}
	if err := second.srv.Decide(t.Context(), op, undone); !errors.Is(err, tallystick.ErrSettled) || !strings.Contains(err.Error(), "effect_done") {
		t.Errorf("taken back: %v", err)
	}
	if err := second.srv.Decide(t.Context(), op, given(id, `{"id":"7"}`)); err != nil {
		t.Fatal(err)
	}
	if r := ann.await(id, status("completed")); !strings.Contains(r.raw, "receipt 7") || did.Load() != 1 {
		t.Errorf("given anew: %s, done %d times", r.raw, did.Load())
	}
}

// A call that shares a result which it cannot use says so, and can use the one
// that is given anew for the call that has ended.
func TestASharedResultThatDoesNotFitIsNamed(t *testing.T) {
	var did atomic.Int64
	c := &clock{}
	st, op := memory.New(memory.Options{Now: c.Now}), person("olga", "operator")
	first := payDesk(t, st, &did)
	id := first.as("ann/acme", capsTasks).call("pay", nil).result["taskId"].(string)
	waitFor(t, func() bool { return first.audited(id, "effect held", "") })
	if r := first.as("ann/acme", capsTasks).send("tasks/cancel", id, nil); r.err != nil {
		t.Fatal(r.raw)
	}
	first.stop()
	second := payDesk(t, st, &did)
	ann := second.as("ann/acme", capsForm)
	for _, say := range []struct{ result, want string }{{`{"id":7}`, "was done, and is not done again"}, {`{"id":"7"}`, "receipt 7"}} {
		if err := second.srv.Decide(t.Context(), op, given(id, say.result)); err != nil {
			t.Fatal(err)
		}
		r := ann.call("pay too", nil)
		if !strings.Contains(r.text(), say.want) || r.isError() != (say.want != "receipt 7") || r.isError() && !strings.Contains(r.text(), id) || did.Load() != 1 {
			t.Errorf("%s: %s, done %d times", say.result, r.raw, did.Load())
		}
	}
}

// A far side that two deployments share is not given one key by both.
func TestTwoDeploymentsGiveTheFarSideTwoKeys(t *testing.T) {
	keys := map[string]string{}
	for _, deployment := range []string{"", "staging", "production"} {
		for range 2 { // the same from every call
			d := newDesk(t, setup{opts: tallystick.Options{Deployment: deployment}, tools: func(d *desk) {
				d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
					return tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"}, func(_ context.Context, key string) (string, error) { return key, nil })
				})
			}})
			key := d.as("ann/acme", capsForm).call("pay", nil).text()
			if was := keys[deployment]; was != "" && was != key {
				t.Errorf("%q: %s and %s", deployment, was, key)
			}
			keys[deployment] = key
		}
	}
	if a, b, c := keys[""], keys["staging"], keys["production"]; a == "" || a == b || b == c || a == c {
		t.Errorf("%v", keys)
	}
}

// What is decided out of band is parsed as strictly as what clients relay.
func TestDecideRefusesANameThatComesTwice(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "q", finance)
		})
		d.tool("page", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			_, err := call.Input(tallystick.Question{Key: "q", Message: "open", Who: finance}, &mcp.ElicitParams{Mode: "url", URL: "https://example.com/x"})
			return "", err
		})
	}})
	eve := person("eve", "finance")
	for _, tool := range []string{"ask", "page"} {
		id := pendingCall(d.as("ann/acme", capsNone).call(tool, nil))
		for _, content := range []string{`{"confirm":false,"confirm":true}`, "{\"confirm\":true,\"x\":\"\xff\"}", `[true`} {
			err := d.srv.Decide(t.Context(), eve, tallystick.Decision{CallID: id, Key: "q", Accept: true, Content: []byte(content)})
			if !errors.Is(err, tallystick.ErrBadAnswer) || d.audited(id, "answered", "") {
				t.Errorf("%s, %q: %v", tool, content, err)
			}
		}
	}
}
