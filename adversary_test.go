package tallystick_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// tool adds a tool whose handler returns a text.
func (d *desk) tool(name string, opts *tallystick.ToolOptions, h func(context.Context, *tallystick.Call) (string, error)) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, opts,
		func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			text, err := h(ctx, call)
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
}

func confirm(call *tallystick.Call, key string, who tallystick.Who) error {
	return call.Confirm(tallystick.Question{Key: key, Message: key + "?", Who: who})
}

func pendingCall(r reply) string {
	meta, _ := r.result["_meta"].(map[string]any)
	s, _ := meta["tallystick/call"].(string)
	return s
}

func person(subject string, roles ...string) tallystick.Identity {
	return tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: subject, Roles: roles}
}

// Two of finance must agree, and the requester is of finance: once she has
// answered, she is not asked again, neither by a round nor as a task's owner.
func TestWhoHasAnsweredIsNotAskedAgain(t *testing.T) {
	two := tallystick.Who{Roles: []string{"finance"}, Count: 2}
	d := newDesk(t, setup{tools: func(d *desk) {
		for name, use := range map[string]tallystick.TaskUse{"inline": tallystick.TaskForbidden, "task": tallystick.TaskRequired} {
			d.tool(name, &tallystick.ToolOptions{Task: use}, func(_ context.Context, call *tallystick.Call) (string, error) {
				return "done", confirm(call, "q", two)
			})
		}
	}})
	ann := d.as("ann/acme/finance", capsForm)
	r := ann.call("inline", nil)
	if !slices.Equal(r.keys(), []string{"q"}) {
		t.Fatalf("asked: %s", r.raw)
	}
	r = ann.retry("inline", nil, r.state(), map[string]any{"q": yes})
	if r.outcome() != "pending" || !strings.Contains(r.text(), "1 of 2") {
		t.Fatalf("after her own answer: %s", r.raw)
	}
	if w, err := d.srv.Waiting(context.Background(), person("ann", "finance")); err != nil || len(w) != 0 {
		t.Errorf("it waits for her again: %v, %v", w, err)
	}
	call := pendingCall(r)
	if err := d.srv.Decide(context.Background(), person("ann", "finance"), tallystick.Decision{CallID: call, Key: "q", Accept: true}); !errors.Is(err, tallystick.ErrSettled) {
		t.Errorf("she decides again: %v", err)
	}
	if err := d.srv.Decide(context.Background(), person("eve", "finance"), tallystick.Decision{CallID: call, Key: "q", Accept: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return ann.call("call_status", map[string]any{"callId": call}).outcome() == "completed" })

	owner := d.as("ann/acme/finance", capsTasks)
	id := owner.call("task", nil).result["taskId"].(string)
	owner.await(id, status("input_required"))
	owner.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"q": yes}})
	if g := owner.send("tasks/get", id, nil); g.result["status"] != "working" || len(g.keys()) != 0 {
		t.Errorf("the owner is asked again: %s", g.raw)
	}
}

// An update that is acked has stored every answer that still counted, though
// another one in it came too late.
func TestAckedAnswersAreStoredThoughOneIsLate(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			short := call.Confirm(tallystick.Question{Key: "a", Message: "a?", Within: time.Minute})
			long := call.Confirm(tallystick.Question{Key: "b", Message: "b?", Within: time.Hour})
			if errors.Is(short, tallystick.ErrExpired) && long == nil {
				return "a expired, b answered", nil
			}
			if long == nil {
				return "b answered", nil
			}
			return "", long
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, func(r reply) bool { return len(r.keys()) == 2 })
	d.clock.Advance(2 * time.Minute) // nobody has looked at the clock yet
	u := ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"a": yes, "b": yes}})
	if u.err != nil {
		t.Fatalf("update: %s", u.raw)
	}
	if !d.audited(id, "answered", "") {
		t.Fatalf("an answer was acked and not stored: %+v", d.trail(id))
	}
}

// A round's response that is replayed asks what it asked at first: nothing that
// is somebody else's to answer.
func TestReplayedRoundAsksTheSame(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("both", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			first := confirm(call, "zero", tallystick.Who{})
			if first != nil {
				return "", first
			}
			mine := confirm(call, "mine", tallystick.Who{})
			theirs := confirm(call, "theirs", tallystick.Who{Roles: []string{"finance"}})
			return "done", errors.Join(mine, theirs)
		})
	}})
	ann := d.as("ann/acme", capsForm)
	zero := ann.call("both", nil)
	one := ann.retry("both", nil, zero.state(), map[string]any{"zero": yes})
	again := ann.retry("both", nil, zero.state(), map[string]any{"zero": yes})
	if !slices.Equal(one.keys(), []string{"mine"}) || !slices.Equal(again.keys(), one.keys()) {
		t.Fatalf("first %s\nthen %s", one.raw, again.raw)
	}
}

// What a client cannot be asked, but can be answered elsewhere, does not keep
// it from being asked the rest.
func TestRoundLeavesOutWhatIsAnsweredElsewhere(t *testing.T) {
	opts := tallystick.Options{AnswerAt: func(id string, _ tallystick.Waiting) string { return "https://desk.example/" + id }}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		d.tool("both", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			err := confirm(call, "form", tallystick.Who{})
			_, uerr := call.Input(tallystick.Question{Key: "url"}, &mcp.ElicitParams{Mode: "url", Message: "Look", URL: "https://bank.example/"})
			return "done", errors.Join(err, uerr)
		})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("both", nil)
	if !slices.Equal(r.keys(), []string{"form"}) {
		t.Fatalf("first: %s", r.raw)
	}
	if again := ann.retry("both", nil, r.state(), nil); !slices.Equal(again.keys(), []string{"form"}) {
		t.Fatalf("again: %s", again.raw)
	}
	r = ann.retry("both", nil, r.state(), map[string]any{"form": yes})
	if r.outcome() != "pending" || !strings.Contains(r.text(), "https://desk.example/") {
		t.Fatalf("then: %s", r.raw)
	}
}

// The run of a retry dies. Who comes back with the idempotency key goes on
// where it was, with the answers that were given.
func TestIdempotencyKeyTakesOverACrashedRound(t *testing.T) {
	c := &clock{}
	mem := memory.New(memory.Options{Now: c.Now})
	tap := &tapped{Store: mem}
	sh := &shop{total: "1"}
	var fail atomic.Bool
	tap.commit = func(ch record.Change) error {
		if fail.Load() && ch.After != nil && ch.Epoch != 0 {
			return store.ErrFull
		}
		return nil
	}
	lim := tallystick.Limits{Lease: 300 * time.Millisecond, InlineWait: 5 * time.Second}
	d := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap, Limits: lim}, tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	ann := d.as("ann/acme", capsForm)
	keyed := func() reply {
		return ann.send("tools/call", "refund", map[string]any{"arguments": order1, "_meta": map[string]any{"tallystick/idempotencyKey": "k"}})
	}
	r := keyed()
	fail.Store(true) // the claim goes through, and nothing that its run writes
	if lost := ann.retry("refund", order1, r.state(), map[string]any{"approve": yes}); lost.err == nil && !lost.isError() {
		t.Fatalf("the run that fails: %s", lost.raw)
	}
	fail.Store(false)
	var wg sync.WaitGroup
	replies := make([]reply, 8)
	for i := range replies {
		wg.Go(func() { replies[i] = keyed() })
	}
	wg.Wait()
	for _, r := range replies {
		if r.typ() != "complete" || r.isError() {
			t.Errorf("after the crash: %s", r.raw)
		}
	}
	if n := sh.refunds.Load(); n != 1 {
		t.Errorf("%d refunds", n)
	}
}

// A call that nobody's client waits for any more asks what only its requester's
// client could answer: that ends it at once, as nobody can be asked.
func TestBackgroundCallCannotAskThroughTheClient(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "theirs", tallystick.Who{Roles: []string{"finance"}}); err != nil {
				return "", err
			}
			return "done", confirm(call, "mine", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsForm)
	id := pendingCall(ann.call("job", nil))
	if err := d.srv.Decide(context.Background(), person("eve", "finance"), tallystick.Decision{CallID: id, Key: "theirs", Accept: true}); err != nil {
		t.Fatal(err)
	}
	var last reply
	waitFor(t, func() bool {
		last = ann.call("call_status", map[string]any{"callId": id})
		return last.outcome() != "pending"
	})
	if last.outcome() != "nobody_to_ask" {
		t.Fatalf("it came to: %s", last.raw)
	}
}

// The same as a task that was announced by the run that asks.
func TestAnnouncedTaskAsksOnlyWhatItsClientDeclared(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskOptional, AskFirst: true}, func(_ context.Context, call *tallystick.Call) (string, error) {
			call.Report("begun", 1, 2)
			_, err := call.Input(tallystick.Question{Key: "url"}, &mcp.ElicitParams{Mode: "url", Message: "Look", URL: "https://bank.example/"})
			return "done", err
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	end := ann.await(id, func(r reply) bool { return r.result["status"] != "working" || len(d.trail(id)) > 4 })
	if end.result["status"] != "failed" {
		t.Fatalf("%s", end.raw)
	}
}

// The limit is on questions that are open together, not on all of a call's.
func TestOpenQuestionsLimitIsOnOpenOnes(t *testing.T) {
	var swallowed atomic.Bool
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{OpenQuestions: 2}}, tools: func(d *desk) {
		d.tool("four", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			for _, pair := range [][2]string{{"a", "b"}, {"c", "d"}} {
				if err := errors.Join(confirm(call, pair[0], tallystick.Who{}), confirm(call, pair[1], tallystick.Who{})); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		d.tool("three", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			var errs []error
			for _, key := range []string{"a", "b", "c"} {
				errs = append(errs, confirm(call, key, tallystick.Who{}))
			}
			if swallowed.Load() {
				return "", nil
			}
			return "done", errs[2]
		})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("four", nil)
	r = ann.retry("four", nil, r.state(), map[string]any{"a": yes, "b": yes})
	if len(r.keys()) != 2 {
		t.Fatalf("the second two: %s", r.raw)
	}
	if r = ann.retry("four", nil, r.state(), map[string]any{"c": yes, "d": yes}); r.text() != "done" {
		t.Fatalf("the end: %s", r.raw)
	}
	if r := ann.call("three", nil); !strings.Contains(r.text(), "OpenQuestions") {
		t.Errorf("three at once: %s", r.raw)
	}
	swallowed.Store(true)
	if r := ann.call("three", nil); len(r.keys()) > 2 {
		t.Errorf("three at once, though the error is swallowed: %s", r.raw)
	}
}

// What is recorded keeps every digit on its way back, by every way.
func TestResultsKeepEveryDigit(t *testing.T) {
	const big = "9007199254740993"
	type out struct {
		ID int64 `json:"id"`
	}
	d := newDesk(t, setup{tools: func(d *desk) {
		for name, who := range map[string]tallystick.Who{"now": {}, "later": {Roles: []string{"finance"}}} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, nil, func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, out, error) {
				if name == "later" {
					if err := confirm(call, "q", who); err != nil {
						return nil, out{}, err
					}
				}
				return nil, out{9007199254740993}, nil
			})
		}
	}})
	ann := d.as("ann/acme", capsForm)
	id := pendingCall(ann.call("later", nil))
	if err := d.srv.Decide(context.Background(), person("eve", "finance"), tallystick.Decision{CallID: id, Key: "q", Accept: true}); err != nil {
		t.Fatal(err)
	}
	var last reply
	waitFor(t, func() bool {
		last = ann.call("call_status", map[string]any{"callId": id})
		return last.outcome() == "completed"
	})
	if !strings.Contains(last.raw, `"structuredContent":{"id":`+big+`}`) {
		t.Errorf("call_status: %s", last.raw)
	}
	resp := legacyCall(t, d, "now")
	if !strings.Contains(resp, `"structuredContent":{"id":`+big+`}`) {
		t.Errorf("2025 era: %s", resp)
	}
}

// legacyCall returns the bytes that came back to a call of the 2025 era.
func legacyCall(t *testing.T, d *desk, tool string) string {
	t.Helper()
	seen := &recorder{next: httpClient("ann/acme").Transport}
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: &http.Client{Transport: seen}}, nil)
	if _, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool}); err != nil {
		t.Fatal(err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	return seen.all.String()
}

// recorder keeps the bodies of all responses.
type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	all  strings.Builder
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, r), resp.Body}
	}
	return resp, err
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}
