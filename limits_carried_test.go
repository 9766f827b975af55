package tallystick_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store"
)

// addLook adds a read-only tool, which its client carries, or its kept twin.
func addLook(d *desk, readOnly bool, opts *tallystick.ToolOptions, f func(ctx context.Context, call *tallystick.Call) error) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}, opts,
		func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			if err := f(ctx, call); err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "seen"}}}, nil, nil
		})
}

// kinds runs a test with a carried call, and with a kept one.
func kinds(t *testing.T, f func(t *testing.T, readOnly bool)) {
	t.Run("carried", func(t *testing.T) { f(t, true) })
	t.Run("kept", func(t *testing.T) { f(t, false) })
}

func TestMaxRunsEndACallOfEitherKind(t *testing.T) {
	kinds(t, func(t *testing.T, readOnly bool) {
		var runs atomic.Int64
		d := newDesk(t, setup{tools: func(d *desk) {
			addLook(d, readOnly, &tallystick.ToolOptions{MaxRuns: 2}, func(_ context.Context, call *tallystick.Call) error {
				runs.Add(1)
				if err := confirm(call, "a", tallystick.Who{}); err != nil {
					return err
				}
				return confirm(call, "b", tallystick.Who{})
			})
		}})
		ann := d.as("ann/acme", capsForm)
		r := ann.call("look", nil)
		r = ann.retry("look", nil, r.state(), map[string]any{"a": yes})
		r = ann.retry("look", nil, r.state(), map[string]any{"b": yes})
		if runs.Load() != 2 || r.status != 500 || !strings.Contains(r.raw, "limit: MaxRuns") || !strings.Contains(r.raw, `"max_runs"`) {
			t.Errorf("ran %d times, and then: %d %s", runs.Load(), r.status, r.raw)
		}
	})
}

func TestDeadlineEndsTheHandlerOfEitherKind(t *testing.T) {
	kinds(t, func(t *testing.T, readOnly bool) {
		d := newDesk(t, setup{tools: func(d *desk) {
			addLook(d, readOnly, &tallystick.ToolOptions{Deadline: 200 * time.Millisecond}, func(ctx context.Context, _ *tallystick.Call) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(20 * time.Second):
					return nil
				}
			})
		}})
		if r := d.as("ann/acme", capsForm).call("look", nil); !r.isError() || !strings.Contains(r.text(), "deadline") {
			t.Errorf("with a deadline of 200 ms: %d %s", r.status, r.raw)
		}
	})
}

// A live question is open no longer than its call, whose handler then runs no
// more.
func TestDeadlineEndsALiveCallOfEitherKind(t *testing.T) {
	kinds(t, func(t *testing.T, readOnly bool) {
		var runs atomic.Int64
		d := newDesk(t, setup{tools: func(d *desk) {
			addLook(d, readOnly, &tallystick.ToolOptions{Deadline: 300 * time.Millisecond}, func(_ context.Context, call *tallystick.Call) error {
				runs.Add(1)
				_ = confirm(call, "a", tallystick.Who{})
				return nil
			})
		}})
		cs := overStdio(t, d, &mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"})
		if err != nil || !res.IsError || res.Meta["tallystick/outcome"] != "expired" || runs.Load() != 1 {
			t.Errorf("ran %d times: %v, %+v", runs.Load(), err, res)
		}
	})
}

// What is known is returned though the call remembers as much as it may; what
// is new fails.
func TestAFullJournalReturnsWhatItKnows(t *testing.T) {
	big := strings.Repeat("x", 5000)
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{JournalBytes: 8 << 10}}, tools: func(d *desk) {
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if err := confirm(call, "sure", tallystick.Who{}); err != nil {
				return "", err
			}
			for _, e := range []string{"one", "two"} {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: e, Subject: "1"}, func(context.Context, string) (string, error) {
					if e == "two" {
						return "", errors.New("timeout")
					}
					return big, nil
				})
				if err != nil {
					return "", err
				}
			}
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "three"}, func(context.Context, string) (string, error) { return "", nil })
			if err == nil || !strings.Contains(err.Error(), "JournalBytes") {
				t.Errorf("a new effect of a full call: %v", err)
			}
			return "paid", nil
		})
	}})
	ann := d.as("ann/acme", capsForm)
	ann.retry("pay", nil, ann.call("pay", nil).state(), map[string]any{"sure": yes})
	op := person("op", "operator")
	held, err := d.srv.Waiting(t.Context(), op)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	id := held[0].CallID
	if err := d.srv.Decide(t.Context(), op, tallystick.Decision{CallID: id, Effect: "two", Subject: "1", Happened: true, Result: []byte(`"` + big + `"`)}); err != nil {
		t.Fatal(err)
	}
	var last reply
	waitFor(t, func() bool {
		last = ann.call("call_status", map[string]any{"callId": id})
		return last.outcome() != "pending" && last.outcome() != "held"
	})
	if last.text() != "paid" {
		t.Errorf("both effects are done, and it says: %s", last.raw)
	}
}

func TestAnswersOverTheJournalsLimitAreReturned(t *testing.T) {
	type words struct {
		W string `json:"w"`
	}
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{JournalBytes: 8 << 10}}, tools: func(d *desk) {
		d.tool("vote", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Ask[words](call, tallystick.Question{Key: "v", Message: "why?", Who: tallystick.Who{Roles: []string{"board"}, Count: 3}})
			return "decided", err
		})
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("vote", nil).result["taskId"].(string)
	said := []byte(`{"w":"` + strings.Repeat("x", 3000) + `"}`)
	for _, who := range []string{"p1", "p2", "p3"} {
		waitFor(t, func() bool {
			open, err := d.srv.Waiting(t.Context(), person(who, "board"))
			return err == nil && len(open) == 1
		})
		if err := d.srv.Decide(t.Context(), person(who, "board"), tallystick.Decision{CallID: id, Key: "v", Accept: true, Content: said}); err != nil {
			t.Fatal(err)
		}
	}
	r := ann.await(id, status("completed"))
	if res, _ := r.result["result"].(map[string]any); res == nil || res["isError"] == true {
		t.Errorf("three answers were taken, and it says: %s", r.raw)
	}
}

// The start of an effect may fill the call: it is tried again all the same.
func TestAFullJournalRepeatsTheEffectThatFilledIt(t *testing.T) {
	var tries atomic.Int64
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{JournalBytes: 600}}, tools: func(d *desk) {
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			for _, e := range []tallystick.Effect{{Name: "one"}, {Name: "two", Repeatable: true}} {
				_, err := tallystick.Once(ctx, call, e, func(context.Context, string) (string, error) {
					if e.Repeatable && tries.Add(1) == 1 {
						return "", errors.New("timeout")
					}
					return "", nil
				})
				if err != nil {
					return "", err
				}
			}
			return "paid", nil
		})
	}})
	if r := d.as("ann/acme", capsForm).call("pay", nil); r.text() != "paid" || tries.Load() != 2 {
		t.Errorf("tried %d times: %s", tries.Load(), r.raw)
	}
}

// A drain ends the live question of a call of which the store knows nothing, as
// it does for a kept one.
func TestDrainEndsALiveQuestionOfEitherKind(t *testing.T) {
	kinds(t, func(t *testing.T, readOnly bool) {
		d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{Drain: 6 * time.Second}}, tools: func(d *desk) {
			addLook(d, readOnly, nil, func(_ context.Context, call *tallystick.Call) error { return confirm(call, "a", tallystick.Who{}) })
		}})
		asked := make(chan struct{})
		cs := overStdio(t, d, &mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		ended := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"})
			ended <- err
		}()
		<-asked
		d.stop()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "shutting down") {
				t.Errorf("the request was told: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the request waits after the drain")
		}
		if log := d.log.String(); strings.Contains(log, "still running") {
			t.Errorf("the drain was waited for to its end: %s", log)
		}
	})
}

// A call may be made by the start of its first effect: if there is no room for
// it, the request is told so.
func TestNoRoomForTheCallOfAFirstEffect(t *testing.T) {
	var did atomic.Int64
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{LiveCalls: 1}}, tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", confirm(call, "sure", tallystick.Who{})
		})
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"}, func(context.Context, string) (string, error) {
				did.Add(1)
				return "", nil
			})
			if err != nil && !errors.Is(err, store.ErrQuota) {
				t.Errorf("Once: %v", err)
			}
			if err != nil {
				return "", fmt.Errorf("paying: %w", err)
			}
			return "paid", nil
		})
	}})
	ann := d.as("ann/acme", capsForm)
	open := ann.call("ask", nil)
	r := ann.call("pay", nil)
	if r.status != 429 || r.err == nil || r.err.Code != -32603 || !strings.Contains(r.err.Message, "LiveCalls 1") || did.Load() != 0 {
		t.Errorf("without room: %d %s", r.status, r.raw)
	}
	ann.retry("ask", nil, open.state(), map[string]any{"sure": yes})
	if r := ann.call("pay", nil); r.text() != "paid" || did.Load() != 1 {
		t.Errorf("with room again: %d %s", r.status, r.raw)
	}
}

// No store knows the call of a read-only tool, so that nobody is told its id.
func TestACarriedCallHasNoIDToComeBackWith(t *testing.T) {
	kinds(t, func(t *testing.T, readOnly bool) {
		d := newDesk(t, setup{tools: func(d *desk) {
			addLook(d, readOnly, nil, func(_ context.Context, call *tallystick.Call) error { return confirm(call, "q", tallystick.Who{}) })
		}})
		ann := d.as("ann/acme", capsForm)
		r := ann.retry("look", nil, ann.call("look", nil).state(), map[string]any{"q": map[string]any{"action": "decline"}})
		if told := pendingCall(r) != ""; r.outcome() != "declined" || told == readOnly {
			t.Errorf("%s", r.raw)
		}
	})
}
