package tallystick_test

import (
	"context"
	"errors"
	"slices"
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

// A tapped store lets a test see, hold up and refuse what a server writes.
type tapped struct {
	store.Store
	commit func(record.Change) error // before the commit; nil: nothing
	renew  atomic.Bool               // refuse renewals
}

func (s *tapped) Commit(ctx context.Context, c record.Change) error {
	if s.commit != nil {
		if err := s.commit(c); err != nil {
			return err
		}
	}
	return s.Store.Commit(ctx, c)
}

func (s *tapped) Renew(ctx context.Context, holder string, refs []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	if s.renew.Load() {
		return nil, errors.New("the process is stopped")
	}
	return s.Store.Renew(ctx, holder, refs, until)
}

func TestPromise4NothingIsAcknowledgedThatIsNotStored(t *testing.T) {
	c := &clock{}
	tap := &tapped{Store: memory.New(memory.Options{Now: c.Now})}
	var broken atomic.Bool
	tap.commit = func(record.Change) error {
		if broken.Load() {
			return store.ErrFull
		}
		return nil
	}
	sh := &shop{total: "1"}
	d := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap}, tools: func(d *desk) {
		sh.addRefund(d, tallystick.Who{})
		addEcho(d, "job", tallystick.TaskOptional)
	}})
	ann, tasks := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks)
	state := ann.call("refund", order1).state()
	id := tasks.call("job", nil).result["taskId"].(string)
	tasks.await(id, status("completed"))

	broken.Store(true)
	for what, r := range map[string]reply{
		"a question": ann.call("refund", order1),
		"a retry":    ann.retry("refund", order1, state, map[string]any{"approve": yes}),
		"a task":     tasks.call("job", nil),
	} {
		if r.err == nil || r.err.Code != -32603 || r.status != 500 {
			t.Errorf("%s was acknowledged: %s", what, r.raw)
		}
	}
	if n := sh.refunds.Load(); n != 0 {
		t.Fatalf("%d refunds without a record", n)
	}
	broken.Store(false)
	if r := ann.retry("refund", order1, state, map[string]any{"approve": yes}); r.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("once there is space: %s", r.raw)
	}
}

// A server that dies leaves all that it acknowledged to the next.
// case S64
func TestPromise4ARestartResumes(t *testing.T) {
	c := &clock{}
	mem := memory.New(memory.Options{Now: c.Now})
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	var charges atomic.Int64
	gate := make(chan struct{})
	var dead atomic.Bool
	tool := func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge", Subject: "1"},
					func(context.Context, string) (int64, error) { return charges.Add(1), nil })
				if err != nil {
					return nil, nil, err
				}
				select {
				case <-gate:
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
				return nil, nil, nil
			})
	}
	tap := &tapped{Store: mem}
	tap.commit = func(record.Change) error {
		if dead.Load() {
			return store.ErrClosed
		}
		return nil
	}
	// The lease is so long that only a restart of the node ends it.
	lim := tallystick.Limits{Lease: time.Hour}
	first := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap, Keys: keys.AEAD(), Limits: lim}, tools: tool})
	id := first.as("ann/acme", capsTasks).call("job", nil).result["taskId"].(string)
	waitFor(t, func() bool { return charges.Load() == 1 && first.audited(id, "effect ended", "") })
	dead.Store(true) // SIGKILL: nothing that it does counts any more
	second := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: mem, Keys: keys.AEAD(), Limits: lim}, tools: tool})
	close(gate)
	second.as("ann/acme", capsTasks).await(id, status("completed"))
	if n := charges.Load(); n != 1 {
		t.Fatalf("%d charges", n)
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// case S80
func TestPromise5TerminalIsFinal(t *testing.T) {
	release := make(chan struct{})
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Grace: 100 * time.Millisecond}}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "ask"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, call.Confirm(tallystick.Question{Key: "go", Message: "Go?"})
			})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "deaf"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, Deadline: time.Minute},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				<-release // it does not look at its context
				return nil, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("ask", nil).result["taskId"].(string)
	ann.await(id, status("input_required"))
	if r := ann.send("tasks/cancel", id, nil); r.err != nil || r.typ() != "complete" {
		t.Fatalf("cancel: %s", r.raw)
	}
	ann.await(id, status("cancelled"))
	// A late answer and a late cancel are acked, change nothing, and are on record.
	for range 2 {
		if r := ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}}); r.err != nil {
			t.Fatalf("late answer: %s", r.raw)
		}
		if r := ann.send("tasks/cancel", id, nil); r.err != nil {
			t.Fatalf("late cancel: %s", r.raw)
		}
	}
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "cancelled" || !d.audited(id, "refused", record.ReasonEnded) {
		t.Fatalf("afterwards: %s", r.raw)
	}

	// A late completion: the call has expired meanwhile.
	late := ann.call("deaf", nil).result["taskId"].(string)
	waitFor(t, func() bool { return d.audited(late, "taken", "") })
	d.clock.Advance(2 * time.Minute)
	ann.await(late, status("failed"))
	close(release)
	waitFor(t, func() bool { return d.audited(late, "refused", record.ReasonEnded) })
	r := ann.send("tasks/get", late, nil)
	data, _ := r.result["error"].(map[string]any)["data"].(map[string]any)
	if data["outcome"] != "expired" {
		t.Fatalf("after the late completion: %s", r.raw)
	}
}

// case S111: a worker that was stopped past its lease, and goes on.
func TestPromise6ARunThatLostItsLeaseChangesNothing(t *testing.T) {
	c := &clock{}
	mem := memory.New(memory.Options{Now: c.Now, Shared: true})
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	stopped := &tapped{Store: mem}
	var inFirst = make(chan struct{})
	goOn := make(chan struct{})
	var runs atomic.Int64
	tool := func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "pay"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"},
					func(context.Context, string) (string, error) {
						if runs.Add(1) == 1 {
							close(inFirst)
							<-goOn
							return "from the stopped process", nil
						}
						return "again", nil
					})
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r}}}, nil, err
			})
	}
	lim := tallystick.Limits{Lease: 500 * time.Millisecond}
	first := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: stopped, Keys: keys.AEAD(), Node: "a", Limits: lim}, tools: tool})
	id := first.as("ann/acme", capsTasks).call("pay", nil).result["taskId"].(string)
	<-inFirst
	stopped.renew.Store(true)
	second := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: mem, Keys: keys.AEAD(), Node: "b", Limits: lim}, tools: tool})
	ann := second.as("ann/acme", capsTasks)
	waitFor(t, func() bool { return second.audited(id, "effect held", "") })
	close(goOn)
	waitFor(t, func() bool { return second.audited(id, "evidence", "") })
	r := ann.send("tasks/get", id, nil)
	if r.result["status"] != "working" || runs.Load() != 1 {
		t.Fatalf("held: %s, %d runs of the effect", r.raw, runs.Load())
	}
	op := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "olga", Roles: []string{"operator"}}
	w, err := second.srv.Waiting(context.Background(), op)
	if err != nil || len(w) != 1 || w[0].Effect != "pay" {
		t.Fatalf("waiting: %v, %v", w, err)
	}
	told := slices.ContainsFunc(w[0].Evidence, func(e record.Evidence) bool { return string(e.Result) == `"from the stopped process"` })
	if !told {
		t.Errorf("what the stopped process learned is not among the evidence: %v", w[0].Evidence)
	}
	err = second.srv.Decide(context.Background(), op, tallystick.Decision{CallID: id, Effect: "pay", Subject: "1", Happened: true, Result: []byte(`"from the stopped process"`)})
	if err != nil {
		t.Fatal(err)
	}
	end := ann.await(id, status("completed"))
	if end.result["result"].(map[string]any)["content"].([]any)[0].(map[string]any)["text"] != "from the stopped process" || runs.Load() != 1 {
		t.Fatalf("resolved: %s, %d runs of the effect", end.raw, runs.Load())
	}
}

// case S30, S88
func TestPromise7PermissionIsAskedAgainEachTime(t *testing.T) {
	var mu sync.Mutex
	asked := map[tallystick.Verb]int{}
	denied := map[tallystick.Verb]bool{}
	deny := func(v ...tallystick.Verb) {
		mu.Lock()
		defer mu.Unlock()
		clear(denied)
		for _, v := range v {
			denied[v] = true
		}
	}
	opts := tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
		mu.Lock()
		defer mu.Unlock()
		asked[a.Verb]++
		if denied[a.Verb] {
			return errors.New("withdrawn")
		}
		return nil
	}}
	sh := &shop{total: "1"}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		sh.addRefund(d, tallystick.Who{})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, call.Confirm(tallystick.Question{Key: "go", Message: "Go?"})
			})
	}})
	ann, tasks := d.as("ann/acme", capsForm), d.as("ann/acme", capsTasks)

	deny(tallystick.Begin)
	if r := ann.call("refund", order1); r.outcome() != "not_allowed" || !r.isError() {
		t.Errorf("begin: %s", r.raw)
	}
	deny()
	state := ann.call("refund", order1).state()
	deny(tallystick.Resume)
	if r := ann.retry("refund", order1, state, map[string]any{"approve": yes}); r.outcome() != "not_allowed" {
		t.Errorf("resume: %s", r.raw)
	}
	deny(tallystick.Reply)
	if r := ann.retry("refund", order1, state, map[string]any{"approve": yes}); r.outcome() != "not_allowed" {
		t.Errorf("reply: %s", r.raw)
	}
	deny(tallystick.Act)
	if r := ann.retry("refund", order1, state, map[string]any{"approve": yes}); r.outcome() != "not_allowed" || sh.refunds.Load() != 0 {
		t.Errorf("act: %s, %d refunds", r.raw, sh.refunds.Load())
	}
	deny()
	id := tasks.call("job", nil).result["taskId"].(string)
	tasks.await(id, status("input_required"))
	absent := tasks.send("tasks/get", "nope", nil)
	deny(tallystick.Watch, tallystick.Reply, tallystick.Stop)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		r := tasks.send(method, id, map[string]any{"inputResponses": map[string]any{"go": yes}})
		if r.err == nil || r.err.Message != absent.err.Message {
			t.Errorf("%s: %s", method, r.raw)
		}
	}
	by := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "ann"}
	if err := d.srv.Decide(context.Background(), by, tallystick.Decision{CallID: id, Key: "go", Accept: true}); !errors.Is(err, tallystick.ErrNoQuestion) {
		t.Errorf("decide: %v", err)
	}
	// When a stored call is run, nobody is there: its run is refused, with a reason.
	deny(tallystick.Resume)
	tasks.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
	end := tasks.await(id, status("failed"))
	if data := end.result["error"].(map[string]any)["data"].(map[string]any); data["outcome"] != "not_authorised" {
		t.Errorf("a stored call: %s", end.raw)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, v := range []tallystick.Verb{tallystick.Begin, tallystick.Resume, tallystick.Watch, tallystick.Reply, tallystick.Stop, tallystick.Act} {
		if asked[v] == 0 {
			t.Errorf("Authorize was never asked %q", v)
		}
	}
	if !d.audited(id, "refused", record.ReasonNotAllowed) {
		t.Error("the refusals are not on record")
	}
}

// A slowStore says that a round was closed when something else has happened.
type slowStore struct {
	store.Store
	meanwhile func(call string)
}

func (s slowStore) Commit(ctx context.Context, c record.Change) error {
	err := s.Store.Commit(ctx, c)
	if err == nil && slices.ContainsFunc(c.Audit, func(e record.Entry) bool { return e.Event == "round closed" }) {
		s.meanwhile(c.ID)
	}
	return err
}

// What was asked is answered elsewhere before the round's response is out, so
// that the request goes on with the call: by then it may not.
func TestPromise7AskedAgainWhenItIsAnsweredMeanwhile(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		var d *desk
		var denied atomic.Bool
		once := sync.Once{}
		st := slowStore{memory.New(memory.Options{}), func(call string) {
			once.Do(func() {
				by := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "ann"}
				if err := d.srv.Decide(context.Background(), by, tallystick.Decision{CallID: call, Key: "approve", Accept: true}); err != nil {
					t.Error(err)
				}
				denied.Store(withdrawn)
			})
		}}
		sh := &shop{total: "1"}
		d = newDesk(t, setup{opts: tallystick.Options{Store: st, Authorize: func(_ context.Context, a tallystick.Access) error {
			if denied.Load() && a.Verb == tallystick.Resume {
				return errors.New("not any more")
			}
			return nil
		}}, tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
		r := d.as("ann/acme", capsForm).call("refund", order1)
		if ran := sh.refunds.Load() == 1; ran == withdrawn || withdrawn && r.outcome() != "not_allowed" {
			t.Errorf("withdrawn %v: %d refunds, %s", withdrawn, sh.refunds.Load(), r.raw)
		}
	}
}
