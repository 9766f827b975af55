package tallystick_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
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
