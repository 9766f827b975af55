package tallystick_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// The connection is lost at some moment of every request: before the run, in
// the handler, within the effect, after it. Whoever sends the same again, with
// its key or its state, comes to the one end, and the effect happens once.
// case S26, S72
func TestConnectionsAreLostAnywhere(t *testing.T) {
	var charges atomic.Int64
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{InlineWait: 5 * time.Second}}, tools: func(d *desk) {
		for name, o := range map[string]*tallystick.ToolOptions{"inline": nil, "first": {Task: tallystick.TaskOptional, AskFirst: true}} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name}, o, func(ctx context.Context, call *tallystick.Call, in refundArgs) (*mcp.CallToolResult, any, error) {
				nap(ctx)
				if err := confirm(call, "go", tallystick.Who{}); err != nil {
					return nil, nil, err
				}
				nap(ctx)
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge", Subject: in.OrderID}, func(context.Context, string) (int64, error) {
					n := charges.Add(1)
					time.Sleep(2 * time.Millisecond)
					return n, nil
				})
				nap(ctx)
				return nil, nil, err
			})
		}
	}})
	for tool, caps := range map[string]string{"inline": capsForm, "first": capsTasks} {
		ann := d.as("ann/acme", caps)
		for i := range 40 {
			args := map[string]any{"orderId": fmt.Sprint(tool, i)}
			key := map[string]any{"tallystick/idempotencyKey": fmt.Sprint(tool, i)}
			before := charges.Load()
			r := ann.persist(t, tool, map[string]any{"arguments": args, "_meta": key})
			if r.typ() != "input_required" {
				t.Fatalf("%s %d: %s\n%+v", tool, i, r.raw, d.trail(pendingCall(r)))
			}
			r = ann.persist(t, tool, map[string]any{"arguments": args, "requestState": r.state(), "inputResponses": map[string]any{"go": yes}})
			if id, ok := r.result["taskId"].(string); ok {
				ann.await(id, status("completed"))
			} else if r.typ() != "complete" || r.isError() {
				t.Fatalf("%s %d, answered: %s\n%+v", tool, i, r.raw, d.trail(pendingCall(r)))
			}
			if n := charges.Load() - before; n != 1 {
				t.Fatalf("%s %d: %d charges", tool, i, n)
			}
		}
	}
}

func nap(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
	}
}

// persist sends the same until an answer comes through, hanging up on most.
func (c caller) persist(t *testing.T, tool string, more map[string]any) reply {
	t.Helper()
	for try := range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(8))*time.Millisecond)
		if try > 4 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
		}
		r, err := c.try(ctx, "tools/call", tool, more)
		cancel()
		if err == nil && r.status != 503 && r.status != 500 {
			return r
		}
		if try > 20 {
			t.Fatalf("no answer: %s, %v", r.raw, err)
		}
	}
	return reply{}
}
