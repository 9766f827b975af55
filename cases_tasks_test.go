package tallystick_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
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

// A power cut ends what a server can write. What it wrote is there for the next.
type powerCut struct {
	*tapped
	dead atomic.Bool
}

func newPowerCut(s store.Store) *powerCut {
	p := &powerCut{tapped: &tapped{Store: s}}
	p.commit = func(record.Change) error {
		if p.dead.Load() {
			return store.ErrClosed
		}
		return nil
	}
	return p
}

// restartable gives the options of a server that dies and of the next one on
// the same node.
func restartable(t *testing.T) (first, second tallystick.Options, kill func()) {
	t.Helper()
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.New(memory.Options{})
	cut := newPowerCut(mem)
	limits := tallystick.Limits{Lease: time.Hour, Grace: 100 * time.Millisecond, Drain: 200 * time.Millisecond}
	first = tallystick.Options{Store: cut, Keys: keys.AEAD(), Limits: limits}
	second = tallystick.Options{Store: mem, Keys: keys.AEAD(), Limits: limits}
	return first, second, func() { cut.dead.Store(true) }
}

// case S62, S73: nor with the connection by which it was made.
func TestATaskDoesNotEndWithItsRequest(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, _ *tallystick.Call) (string, error) {
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
				return "done", nil
			}
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	http.DefaultClient.CloseIdleConnections()
	waitFor(t, func() bool { return d.audited(id, "taken", "") })
	for range 5 { // pollers that hang up
		ctx, hangUp := context.WithTimeout(context.Background(), time.Millisecond)
		ann.try(ctx, "tasks/get", id, nil)
		hangUp()
	}
	if end := ann.await(id, status("completed")); !strings.Contains(end.raw, `"text":"done"`) {
		t.Errorf("%s", end.raw)
	}
}

// case S64
func TestATaskIsItsPrincipalsOnAnyConnection(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "job", tallystick.TaskRequired) }})
	var id string
	t.Run("a connection that ends", func(t *testing.T) {
		id, _ = peerOverMemory(t, d)(t, "tools/call", map[string]any{"name": "job"})["taskId"].(string)
	})
	other := peerOverStdio(t, d) // the same user of the operating system
	waitFor(t, func() bool { return other(t, "tasks/get", map[string]any{"taskId": id})["status"] == "completed" })
	if r := d.as("ann/acme", capsTasks).send("tasks/get", id, nil); r.err == nil {
		t.Errorf("to another principal: %s", r.raw)
	}
}

// case S63
func TestADeadTaskFreesItsPlace(t *testing.T) {
	for what, end := range map[string]func(d *desk, ann caller, id string){
		"its time is over": func(*desk, caller, string) {},
		"cancelled at once": func(_ *desk, ann caller, id string) {
			if r := ann.send("tasks/cancel", id, nil); r.err != nil {
				t.Errorf("cancel: %s", r.raw)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			deadline := time.Hour
			if strings.Contains(what, "time") {
				deadline = 100 * time.Millisecond
			}
			d := newDesk(t, setup{opts: tallystick.Options{Workers: 1}, tools: func(d *desk) {
				addEcho(d, "next", tallystick.TaskRequired)
				d.tool("stuck", &tallystick.ToolOptions{Task: tallystick.TaskRequired, Deadline: deadline}, func(ctx context.Context, _ *tallystick.Call) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				})
			}})
			ann := d.as("ann/acme", capsTasks)
			stuck := ann.call("stuck", nil).result["taskId"].(string)
			end(d, ann, stuck)
			next := ann.call("next", nil).result["taskId"].(string)
			ann.await(next, status("completed"))
			r := ann.await(stuck, func(r reply) bool { return r.result["status"] != "working" })
			want := map[bool]string{true: "failed", false: "cancelled"}[deadline < time.Hour]
			if r.result["status"] != want || want == "failed" && !strings.Contains(r.raw, `"outcome":"expired"`) {
				t.Errorf("the first: %s", r.raw)
			}
		})
	}
}

// case S65
func TestATaskWhoseServerDiedIsNeverUnknown(t *testing.T) {
	first, second, kill := restartable(t)
	var charges, reads atomic.Int64
	over := make(chan struct{})
	started := make(chan string, 2)
	tools := func(d *desk) {
		d.tool("pay", &tallystick.ToolOptions{Task: tallystick.TaskRequired, Deadline: time.Minute}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			return tallystick.Once(ctx, call, tallystick.Effect{Name: "pay"}, func(context.Context, string) (string, error) {
				charges.Add(1)
				started <- call.ID()
				<-over
				return "", errors.New("killed")
			})
		})
		d.tool("read", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(context.Context, *tallystick.Call) (string, error) {
			if reads.Add(1) > 1 {
				return "read again", nil
			}
			started <- ""
			<-over
			return "", errors.New("killed")
		})
	}
	a := newDesk(t, setup{opts: first, tools: tools})
	ann := a.as("ann/acme", capsTasks)
	pay, read := ann.call("pay", nil).result["taskId"].(string), ann.call("read", nil).result["taskId"].(string)
	<-started
	<-started
	kill()
	defer close(over)
	b := newDesk(t, setup{opts: second, tools: tools})
	ann = b.as("ann/acme", capsTasks)
	for _, id := range []string{pay, read} { // at once
		if r := ann.send("tasks/get", id, nil); r.err != nil {
			t.Errorf("just after the restart: %s", r.raw)
		}
	}
	if end := ann.await(read, status("completed")); !strings.Contains(end.raw, "read again") {
		t.Errorf("without an effect: %s", end.raw)
	}
	waitFor(t, func() bool { return b.audited(pay, "effect held", "") })
	if r := ann.send("tasks/get", pay, nil); r.result["status"] != "working" || !strings.Contains(r.raw, "not known whether it was done") || charges.Load() != 1 {
		t.Errorf("in an effect: %s, %d charges", r.raw, charges.Load())
	}
}

// case S66
func TestRetentionBeginsWhenTheWorkEnds(t *testing.T) {
	goOn := make(chan struct{})
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Retention: 5 * time.Minute}}, tools: func(d *desk) {
		addEcho(d, "kick", tallystick.TaskRequired)
		d.tool("long", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			call.Report("half", 1, 2)
			<-goOn
			return "done", nil
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("long", nil).result["taskId"].(string)
	waitFor(t, func() bool { return strings.Contains(ann.send("tasks/get", id, nil).raw, "half") })
	kick := func() {
		k := ann.call("kick", nil).result["taskId"].(string)
		ann.await(k, func(r reply) bool { return r.err != nil || r.result["status"] == "completed" })
	}
	d.clock.Advance(10 * time.Minute)
	kick()
	r := ann.send("tasks/get", id, nil)
	if ttl, _ := r.result["ttlMs"].(float64); r.result["status"] != "working" || ttl < float64((10*time.Minute).Milliseconds()) {
		t.Fatalf("at work for twice the retention: %s", r.raw)
	}
	close(goOn)
	end := ann.await(id, status("completed"))
	if ttl, _ := end.result["ttlMs"].(float64); ttl < float64((15*time.Minute).Milliseconds()) || ttl > float64((16*time.Minute).Milliseconds()) {
		t.Errorf("ttlMs after 10 minutes of work: %v", end.result["ttlMs"])
	}
	d.clock.Advance(4 * time.Minute)
	kick()
	if r := ann.send("tasks/get", id, nil); r.result["status"] != "completed" {
		t.Errorf("within the retention: %s", r.raw)
	}
	d.clock.Advance(2 * time.Minute)
	kick()
	ann.await(id, func(r reply) bool { return r.err != nil })
}

// case S69
func TestAFailedBuildIsACompletedTask(t *testing.T) {
	type failure struct {
		File string `json:"file"`
		Line int    `json:"line"`
	}
	type report struct {
		Errors []failure `json:"errors"`
	}
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "build"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, report, error) {
				return &mcp.CallToolResult{IsError: true}, report{[]failure{{"main.go", 42}}}, nil
			})
		d.tool("error", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(context.Context, *tallystick.Call) (string, error) {
			return "", errors.New("main.go:42: no such thing")
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	for tool, want := range map[string]string{"build": `"structuredContent":{"errors":[{"file":"main.go","line":42}]}`, "error": "main.go:42"} {
		id := ann.call(tool, nil).result["taskId"].(string)
		end := ann.await(id, func(r reply) bool { return r.result["status"] != "working" })
		result, _ := end.result["result"].(map[string]any)
		if end.result["status"] != "completed" || result["isError"] != true || !strings.Contains(end.raw, want) {
			t.Errorf("%s: %s", tool, end.raw)
		}
	}
}

// case S70
func TestAQuestionOutlivesItsServer(t *testing.T) {
	first, second, kill := restartable(t)
	tools := func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskOptional}, func(_ context.Context, call *tallystick.Call) (string, error) {
			a, errA := tallystick.Ask[codeOf](call, tallystick.Question{Key: "a", Message: "Code a"})
			b, errB := tallystick.Ask[codeOf](call, tallystick.Question{Key: "b", Message: "Code b"})
			return a.Code + "+" + b.Code, errors.Join(errA, errB)
		})
	}
	code := func(s string) map[string]any { return accept(map[string]any{"code": s}) }
	a := newDesk(t, setup{opts: first, tools: tools})
	id := a.as("ann/acme", capsTasks).call("job", nil).result["taskId"].(string)
	a.as("ann/acme", capsTasks).await(id, status("input_required"))
	inline := a.as("ann/acme", capsForm).call("job", nil)
	a.as("ann/acme", capsTasks).send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"a": code("1")}})
	kill()
	b := newDesk(t, setup{opts: second, tools: tools})
	ann := b.as("ann/acme", capsTasks)
	if r := ann.send("tasks/get", id, nil); !slices.Equal(r.keys(), []string{"b"}) || !strings.Contains(r.raw, "Code b") {
		t.Fatalf("what is still asked: %s", r.raw)
	}
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"b": code("2")}})
	if end := ann.await(id, status("completed")); !strings.Contains(end.raw, "1+2") {
		t.Errorf("the task: %s", end.raw)
	}
	r := b.as("ann/acme", capsForm).retry("job", nil, inline.state(), map[string]any{"a": code("3"), "b": code("4")})
	if r.text() != "3+4" {
		t.Errorf("the round: %s", r.raw)
	}
}

// case S71
func TestAShutdownSettlesWhatHasBegun(t *testing.T) {
	t.Parallel()
	mem := memory.New(memory.Options{})
	started, goOn := make(chan struct{}), make(chan struct{})
	var charges, after atomic.Int64
	tools := func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int64, error) {
				close(started)
				<-goOn
				return charges.Add(1), nil
			})
			if err != nil {
				return "", err
			}
			if after.Add(1) == 1 {
				<-ctx.Done() // 300 s of further work
				return "", context.Cause(ctx)
			}
			return "done", nil
		})
	}
	first := newDesk(t, setup{opts: tallystick.Options{Store: mem, Limits: tallystick.Limits{Drain: time.Second}}, tools: tools})
	ann := first.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	<-started
	refused := ann.send("tools/call", "job", map[string]any{"requestState": "garbage"})
	refusedState(t, "garbage", refused)

	begun := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		first.stop()
	}()
	waitFor(t, func() bool { return ann.send("tasks/get", id, nil).status == http.StatusServiceUnavailable })
	close(goOn)
	<-stopped
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if !first.audited(id, "effect ended", "") || !first.audited("", "refused", "state_does_not_open") {
		t.Errorf("the trail lacks what had happened: %+v", first.trail(""))
	}
	second := newDesk(t, setup{opts: tallystick.Options{Store: mem}, tools: tools})
	second.as("ann/acme", capsTasks).await(id, status("completed"))
	if n := charges.Load(); n != 1 {
		t.Errorf("%d charges", n)
	}
}
