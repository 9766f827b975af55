package tallystick_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// inBackground sends a tools/call, and its reply comes on the channel.
func (c caller) inBackground(tool string, args map[string]any) chan reply {
	got := make(chan reply, 1)
	go func() {
		r, err := c.try(context.Background(), "tools/call", tool, map[string]any{"arguments": args})
		if err != nil {
			r.raw = err.Error()
		}
		got <- r
	}()
	return got
}

// offences are the refused entries of all calls of a tenant.
func (d *desk) offences(tenant string) []string {
	d.t.Helper()
	all, err := d.store.List(context.Background(), store.Filter{Tenant: tenant, Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	var refused []string
	for _, c := range all {
		for _, e := range d.trail(c.ID) {
			if e.Event == "refused" {
				refused = append(refused, fmt.Sprintf("%s: %s %s", c.ID, e.Reason, e.Note))
			}
		}
	}
	return refused
}

// noRefusal checks that nobody is said to have done anything wrong.
func (w *overseen) noRefusal(tenant string) {
	w.t.Helper()
	for _, r := range w.offences(tenant) {
		w.t.Errorf("on record: %s", r)
	}
	if got := w.collect("tallystick.refusals"); len(got) > 0 {
		w.t.Errorf("counted: %v", got)
	}
}

// A pausing store lets a test step in before a write.
type pausing struct {
	store.Store
	before func(record.Change)
}

func (p *pausing) Commit(ctx context.Context, c record.Change) error {
	p.before(c)
	return p.Store.Commit(ctx, c)
}

// announces reports whether a change makes its call a task that was none.
func announces(c record.Change) bool {
	for _, e := range c.Audit {
		if e.Event == "announced" {
			return true
		}
	}
	return false
}

// An onEnd is told of each span that ends, before what it spans goes on.
type onEnd func(sdktrace.ReadOnlySpan)

func (onEnd) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (f onEnd) OnEnd(s sdktrace.ReadOnlySpan)                 { f(s) }
func (onEnd) Shutdown(context.Context) error                  { return nil }
func (onEnd) ForceFlush(context.Context) error                { return nil }

// A handler has asked while its call was inline, and before anything comes of
// that it is a task, whose client cannot be asked. The task ends, and waits for
// nobody.
func TestATaskWhoseClientCannotBeAskedEnds(t *testing.T) {
	const caps = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}` // and no elicitation
	for _, promoted := range []string{"before the handler returns", "as the handler returns"} {
		t.Run(promoted, func(t *testing.T) {
			task := make(chan struct{}) // closed once it is one
			traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(onEnd(func(s sdktrace.ReadOnlySpan) {
				if s.Name() == "run ask" {
					<-task
				}
			})))
			d := newDesk(t, setup{opts: tallystick.Options{TracerProvider: traces}, tools: func(d *desk) {
				tallystick.AddTool(d.srv, &mcp.Tool{Name: "ask"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 10 * time.Millisecond},
					func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
						err := call.Confirm(tallystick.Question{Key: "q", Message: "Sure?"})
						if promoted == "before the handler returns" {
							<-task
						}
						return nil, nil, err
					})
			}})
			goOn := sync.OnceFunc(func() { close(task) })
			t.Cleanup(goOn)
			ann := d.as("ann/acme", caps)
			r := ann.call("ask", nil)
			id, _ := r.result["taskId"].(string)
			if id == "" {
				t.Fatalf("no task: %s", r.raw)
			}
			goOn()
			end := ann.await(id, func(r reply) bool { return r.result["status"] != "working" })
			failed, _ := end.result["error"].(map[string]any)
			data, _ := failed["data"].(map[string]any)
			required, _ := data["requiredCapabilities"].(map[string]any)
			if end.result["status"] != "failed" || failed["code"] != -32021.0 || required["elicitation"] == nil {
				t.Errorf("at the end: %s", end.raw)
			}
		})
	}
}

// What has become a task needs a place among Workers and WorkersPerTenant. A
// call for which there is none stays inline, and asks for one again.
func TestPromotedRunsTakePlacesOfWorkers(t *testing.T) {
	release := map[string]chan struct{}{}
	open := map[string]func(){}
	for _, name := range []string{"first", "same tenant", "other tenant", "third tenant"} {
		ch := make(chan struct{})
		release[name], open[name] = ch, sync.OnceFunc(func() { close(ch) })
	}
	w := newOverseen(t, setup{opts: tallystick.Options{Workers: 2, WorkersPerTenant: 1}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "slow"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 5 * time.Millisecond},
			func(_ context.Context, _ *tallystick.Call, in struct{ Name string }) (*mcp.CallToolResult, any, error) {
				<-release[in.Name]
				return said(in.Name), nil, nil
			})
	}})
	t.Cleanup(func() {
		for _, f := range open {
			f()
		}
	})
	begin := func(token, name string) chan reply {
		return w.as(token, capsTasks).inBackground("slow", map[string]any{"Name": name})
	}
	becomes := func(who string, r reply) {
		t.Helper()
		if r.typ() != "task" {
			t.Fatalf("%s is no task: %s", who, r.raw)
		}
	}
	staysInline := func(got chan reply, calls int) { // the last of so many
		t.Helper()
		waitFor(t, func() bool {
			inline := map[string]bool{}
			for line := range strings.Lines(w.logged()) {
				if _, rest, ok := strings.Cut(line, "stays inline"); ok {
					_, rest, _ = strings.Cut(rest, "call=")
					call, _, _ := strings.Cut(rest, " ")
					inline[call] = true
				}
			}
			return len(inline) == calls || len(got) > 0
		})
		select {
		case r := <-got:
			t.Fatalf("it had no place: %s", r.raw)
		default:
		}
	}
	becomes("the first", <-begin("ann/acme", "first"))
	same := begin("ann/acme", "same tenant")
	staysInline(same, 1) // WorkersPerTenant
	becomes("that of another tenant", <-begin("eve/other", "other tenant"))
	third := begin("zoe/third", "third tenant")
	staysInline(third, 2) // Workers

	open["first"]()
	var left chan reply
	select { // whichever asks first has the place
	case r := <-same:
		becomes("the one of the same tenant", r)
		left = third
	case r := <-third:
		becomes("the one of a third tenant", r)
		left = same
	case <-time.After(10 * time.Second):
		t.Fatal("nobody takes the place that is free")
	}
	select {
	case r := <-left:
		t.Fatalf("and so does another: %s", r.raw)
	default:
	}
	for _, f := range open {
		f()
	}
	if r := <-left; r.err != nil || r.typ() != "complete" && r.typ() != "task" {
		t.Errorf("the one without a place: %s", r.raw)
	}
}

// Who waits for somebody else's answer gets the task at once, whenever else the
// tool's calls become tasks, and nothing of it is put down as an offence.
func TestACallThatAwaitsSomebodyElseIsATaskAtOnce(t *testing.T) {
	const inlineWait = 5 * time.Second
	for name, opts := range map[string]*tallystick.ToolOptions{
		"TaskAfter":          {Task: tallystick.TaskOptional, TaskAfter: 50 * time.Millisecond},
		"AskFirst":           {Task: tallystick.TaskOptional, AskFirst: true},
		"AskFirst, required": {Task: tallystick.TaskRequired, AskFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newOverseen(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: inlineWait}}, tools: func(d *desk) {
				tallystick.AddTool(d.srv, &mcp.Tool{Name: "two"}, opts,
					func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
						if err := call.Confirm(tallystick.Question{Key: "ok", Message: "Ok?", Who: tallystick.Who{NotRequester: true}}); err != nil {
							return nil, nil, err
						}
						return said("approved"), nil, nil
					})
			}})
			ann := w.as("ann/acme", capsTasks)
			start := time.Now()
			r := ann.call("two", nil)
			id, _ := r.result["taskId"].(string)
			if took := time.Since(start); id == "" || took >= inlineWait {
				t.Fatalf("after %v: %s", took, r.raw)
			}
			bob := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "bob"}
			if err := w.srv.Decide(context.Background(), bob, tallystick.Decision{CallID: id, Key: "ok", Accept: true}); err != nil {
				t.Fatal(err)
			}
			if end := ann.await(id, status("completed")); !strings.Contains(end.raw, "approved") {
				t.Errorf("at the end: %s", end.raw)
			}
			w.noRefusal("acme")
		})
	}
}

// The time is up while the end, or a question, is being written: the call stays
// inline, and nobody is refused anything.
func TestAPromotionThatComesTooLateIsNoOffence(t *testing.T) {
	const after = 20 * time.Millisecond
	st := &pausing{memory.New(memory.Options{}), func(c record.Change) {
		if a := c.After; a != nil && !a.Task && (a.State == record.Ended || a.State == record.Waiting) {
			time.Sleep(3 * after)
		}
	}}
	w := newOverseen(t, setup{opts: tallystick.Options{Store: st}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "act"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: after}, actAndAsk(nil))
	}})
	ann := w.as("ann/acme", capsTasks)
	for asks, want := range map[bool]string{false: "complete", true: "input_required"} {
		inline := 0
		for range 4 {
			r := ann.call("act", map[string]any{"Kept": true, "Asks": asks})
			if r.typ() == want {
				inline++
			} else if r.typ() != "task" { // of a run that was slow
				t.Fatalf("neither: %s", r.raw)
			}
		}
		if inline == 0 {
			t.Errorf("asks %v: all were promoted before", asks)
		}
	}
	w.noRefusal("acme")
}

type actArgs struct {
	Kept, Asks bool `json:",omitempty"`
}

// actAndAsk is a handler that does something if that is to be kept, waits for
// the channel if there is one, and asks if it is to.
func actAndAsk(wait chan struct{}) tallystick.ToolHandler[actArgs, any] {
	return func(ctx context.Context, call *tallystick.Call, in actArgs) (*mcp.CallToolResult, any, error) {
		if in.Kept {
			if _, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "act"}, func(context.Context, string) (int, error) { return 1, nil }); err != nil {
				return nil, nil, err
			}
		}
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
			}
		}
		if in.Asks {
			if err := call.Confirm(tallystick.Question{Key: "q", Message: "Sure?"}); err != nil {
				return nil, nil, err
			}
		}
		return said("ok"), nil, nil
	}
}

// The handler ends, or asks, while its call becomes a task: it is a task that
// has ended, or asks, and nobody is refused anything.
func TestAnEndDuringAPromotionIsNoOffence(t *testing.T) {
	begun := make(chan struct{}, 10)
	st := &pausing{memory.New(memory.Options{}), func(c record.Change) {
		if announces(c) {
			begun <- struct{}{}
			time.Sleep(20 * time.Millisecond) // for the end, to come to where it waits
		}
	}}
	w := newOverseen(t, setup{opts: tallystick.Options{Store: st}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "act"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 5 * time.Millisecond}, actAndAsk(begun))
	}})
	ann := w.as("ann/acme", capsTasks)
	for _, kept := range []bool{false, true} {
		for asks, want := range map[bool]string{false: "completed", true: "input_required"} {
			r := ann.call("act", map[string]any{"Kept": kept, "Asks": asks})
			id, _ := r.result["taskId"].(string)
			if id == "" {
				t.Fatalf("kept %v, asks %v: %s", kept, asks, r.raw)
			}
			ann.await(id, status(want))
		}
	}
	w.noRefusal("acme")
}
