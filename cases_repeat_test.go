package tallystick_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// case S03
func TestARoundInFlightSurvivesARotation(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	old := keys.List()[0].ID
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{Keys: keys.AEAD()})
	ann, answer := d.as("ann/acme", capsForm), map[string]any{"approve": yes}
	order := func(id string) map[string]any { return map[string]any{"orderId": id} }
	during, after := ann.call("refund", order("1")).state(), ann.call("refund", order("2")).state()

	key, err := keys.Add()
	if err == nil {
		err = keys.Promote(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := ann.retry("refund", order("1"), during, answer); r.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("a state of the key before: %s", r.raw)
	}
	fresh := ann.call("refund", order("3")).state()
	refusedState(t, "a state of the old key that names the new one", ann.retry("refund", order("2"), renamed(t, after, fresh), answer))
	refusedState(t, "a state of the new key that names the old one", ann.retry("refund", order("3"), renamed(t, fresh, after), answer))

	if err := keys.Disable(old); err != nil {
		t.Fatal(err)
	}
	refusedState(t, "a state of the disabled key", ann.retry("refund", order("2"), after, answer))
	if r := ann.retry("refund", order("3"), fresh, answer); r.isError() || sh.refunds.Load() != 2 {
		t.Fatalf("a state of the new key: %s", r.raw)
	}
}

// renamed is a state with the key id of another.
func renamed(t *testing.T, state, other string) string {
	t.Helper()
	version, sealed, _ := strings.Cut(state, ".")
	_, from, _ := strings.Cut(other, ".")
	a, errA := base64.RawURLEncoding.DecodeString(sealed)
	b, errB := base64.RawURLEncoding.DecodeString(from)
	if errA != nil || errB != nil || string(a[:5]) == string(b[:5]) {
		t.Fatalf("no two states of two keys: %v, %v", errA, errB)
	}
	copy(a, b[:5])
	return version + "." + base64.RawURLEncoding.EncodeToString(a)
}

// case S06: what a server can do about it: its own rounds are whole, and a
// wrong type is refused where it is met and not a round later.
func TestARoundOfTheWrongTypesIsRefusedAtOnce(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	asked := ann.call("refund", order1)
	if s, ok := asked.result["requestState"].(string); !ok || s == "" || len(asked.keys()) == 0 {
		t.Fatalf("our own round: %s", asked.raw)
	}
	for what, more := range map[string]map[string]any{
		"a number for the state":   {"requestState": 7, "inputResponses": map[string]any{"approve": yes}},
		"an object for the state":  {"requestState": map[string]any{"s": asked.state()}},
		"a list for the responses": {"requestState": asked.state(), "inputResponses": []any{yes}},
		"a text for a response":    {"requestState": asked.state(), "inputResponses": map[string]any{"approve": "yes"}},
	} {
		more["arguments"] = order1
		if r := ann.send("tools/call", "refund", more); r.err == nil || r.err.Code != -32602 || r.status != 400 {
			t.Errorf("%s: %d %s", what, r.status, r.raw)
		}
	}
	if r := ann.retry("refund", order1, asked.state(), map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Errorf("none of it used the round up: %s", r.raw)
	}
}

// case S08: of a tool and an effect that say nothing at all.
func TestAtMostOnceIsTheDefault(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.New(memory.Options{})
	var sent atomic.Int64
	var down atomic.Bool
	opts := tallystick.Options{Store: mem, Keys: keys.AEAD()}
	tools := func(d *desk) {
		d.tool("send", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "go", tallystick.Who{}); err != nil {
				return "", err
			}
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "send"}, func(context.Context, string) (string, error) {
				n := sent.Add(1)
				if down.Load() {
					return "", errors.New("no answer")
				}
				return fmt.Sprint("sent ", n), nil
			})
		})
	}
	first := newDesk(t, setup{opts: opts, tools: tools})
	ann, ok := first.as("ann/acme", capsForm), map[string]any{"go": yes}
	state := ann.call("send", nil).state()
	for range 3 {
		if r := ann.retry("send", nil, state, ok); r.text() != "sent 1" {
			t.Fatalf("the same retry: %s", r.raw)
		}
	}
	down.Store(true)
	lost := ann.call("send", nil).state()
	for range 3 { // of an attempt whose end nobody knows, neither
		if r := ann.retry("send", nil, lost, ok); r.outcome() != "held" {
			t.Fatalf("no answer of the far side: %s", r.raw)
		}
	}
	// Not only said, but so: a person has it to look after.
	olga := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "olga", Roles: []string{"operator"}}
	if w, err := first.srv.Waiting(context.Background(), olga); err != nil || len(w) != 1 || w[0].Effect != "send" {
		t.Fatalf("held for an operator: %+v, %v", w, err)
	}
	first.stop()
	down.Store(false)
	second := newDesk(t, setup{opts: opts, tools: tools})
	ann = second.as("ann/acme", capsForm)
	if r := ann.retry("send", nil, state, ok); r.text() != "sent 1" {
		t.Errorf("after a restart: %s", r.raw)
	}
	if r := ann.retry("send", nil, lost, ok); r.outcome() != "held" || sent.Load() != 2 {
		t.Errorf("after a restart: %s, sent %d times", r.raw, sent.Load())
	}
}

// case S20
func TestALostReplyOfTheFarSideIsNotSentAgain(t *testing.T) {
	var orders atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders.Add(1) // committed, and then the line is cut
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer far.Close()
	d := newDesk(t, setup{tools: func(d *desk) {
		for name, o := range map[string]*tallystick.ToolOptions{"inline": nil, "task": {Task: tallystick.TaskRequired}} {
			d.tool(name, o, func(ctx context.Context, call *tallystick.Call) (string, error) {
				return tallystick.Once(ctx, call, tallystick.Effect{Name: "order", Subject: name}, func(ctx context.Context, _ string) (string, error) {
					req, err := http.NewRequestWithContext(ctx, "POST", far.URL, strings.NewReader("{}"))
					if err != nil {
						return "", err
					}
					resp, err := far.Client().Do(req)
					if err == nil {
						resp.Body.Close()
					}
					return "ordered", err
				})
			})
		}
	}})
	ann := d.as("ann/acme", capsTasks)
	for range 3 { // the model tries it again, and again
		if r := ann.call("inline", nil); r.outcome() != "held" || !r.isError() {
			t.Errorf("inline: %s", r.raw)
		}
	}
	id := ann.call("task", nil).result["taskId"].(string)
	waitFor(t, func() bool { return d.audited(id, "effect held", "") })
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "working" || !strings.Contains(r.raw, "not known") {
		t.Errorf("task: %s", r.raw)
	}
	if n := orders.Load(); n != 2 {
		t.Errorf("%d orders of two calls", n)
	}
}

// case S21
func TestAToolErrorRunsNothingAgain(t *testing.T) {
	var runs, charges atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		for name, o := range map[string]*tallystick.ToolOptions{"inline": nil, "task": {Task: tallystick.TaskRequired}} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, o, func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				runs.Add(1)
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int64, error) { return charges.Add(1), nil })
				if err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "charged, and then there was no stock"}}}, nil, nil
			})
		}
	}})
	ann := d.as("ann/acme", capsTasks)
	key := map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}
	for range 3 {
		if r := ann.send("tools/call", "inline", key); !r.isError() || !strings.Contains(r.text(), "no stock") {
			t.Errorf("inline: %s", r.raw)
		}
	}
	id := ann.call("task", nil).result["taskId"].(string)
	end := ann.await(id, status("completed"))
	if end.result["result"].(map[string]any)["isError"] != true {
		t.Errorf("task: %s", end.raw)
	}
	if r, c := runs.Load(), charges.Load(); r != 2 || c != 2 {
		t.Errorf("%d runs and %d charges of two calls", r, c)
	}
}

// case S26
func TestARetryAfterATimeoutFindsTheFirstAttempt(t *testing.T) {
	var mails atomic.Int64
	onRecord := make(chan bool, 8)
	goOn := make(chan struct{})
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: 10 * time.Second}}, tools: func(d *desk) {
		d.tool("mail", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "mail"}, func(context.Context, string) (string, error) {
				n := mails.Add(1)
				onRecord <- d.audited(call.ID(), "effect started", "")
				<-goOn
				return fmt.Sprint("mail ", n), nil
			})
		})
	}})
	ann := d.as("ann/acme", capsForm)
	key := map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}
	impatient, giveUp := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := ann.try(impatient, "tools/call", "mail", key)
		gone <- err
	}()
	if !<-onRecord {
		t.Error("the far side was asked before that was on record")
	}
	giveUp()
	if err := <-gone; err == nil {
		t.Fatal("the first attempt was answered")
	}
	var wg sync.WaitGroup
	replies := make([]reply, 3)
	for i := range replies {
		wg.Go(func() { replies[i], _ = ann.try(context.Background(), "tools/call", "mail", key) })
	}
	close(goOn)
	wg.Wait()
	for _, r := range replies {
		if r.text() != "mail 1" {
			t.Errorf("a retry: %s", r.raw)
		}
	}
	if n := mails.Load(); n != 1 {
		t.Errorf("%d mails", n)
	}
}

// case S98
func TestALargeResultWaitsForAClientThatLeft(t *testing.T) {
	var runs atomic.Int64
	started, goOn := make(chan string, 8), make(chan struct{})
	long := strings.Repeat("Zeile für Zeile. ", 1300) // over 22 000 bytes
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: 10 * time.Second}}, tools: func(d *desk) {
		d.tool("report", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			runs.Add(1)
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "report"}, func(context.Context, string) (string, error) {
				started <- call.ID()
				<-goOn
				return long, nil
			})
		})
	}})
	ann := d.as("ann/acme", capsForm)
	key := map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}
	patience, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ann.try(patience, "tools/call", "report", key)
	}()
	id := <-started
	leave()
	<-gone
	close(goOn)
	waitFor(t, func() bool { return ann.call("call_status", map[string]any{"callId": id}).text() == long })
	if r := ann.send("tools/call", "report", key); r.text() != long || runs.Load() != 1 {
		t.Errorf("called again: %.200s, %d runs", r.raw, runs.Load())
	}
}

// case S99
func TestAResultThatWasDeliveredIsStillThere(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Retention: time.Hour}}, tools: func(d *desk) {
		(&shop{total: "1"}).addRefund(d, tallystick.Who{})
		addEcho(d, "job", tallystick.TaskRequired)
	}})
	ann, tasks := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks)
	state := ann.call("refund", order1).state()
	final := ann.retry("refund", order1, state, map[string]any{"approve": yes})
	id := tasks.call("job", nil).result["taskId"].(string)
	end := tasks.await(id, status("completed"))
	for range 3 { // each time as if the one before had been lost on its way
		d.clock.Advance(15 * time.Minute)
		http.DefaultClient.CloseIdleConnections()
		if r := ann.retry("refund", order1, state, map[string]any{"approve": yes}); r.text() != final.text() || r.isError() {
			t.Errorf("the round: %s", r.raw)
		}
		if r := tasks.send("tasks/get", id, nil); fmt.Sprint(r.result["result"]) != fmt.Sprint(end.result["result"]) || r.result["ttlMs"] != end.result["ttlMs"] {
			t.Errorf("the task: %s", r.raw)
		}
	}
}
