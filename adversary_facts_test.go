package tallystick_test

import (
	"context"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// Once an effect has started on a yes, later runs get it whatever the order is
// by then. They can tell what it was given for, and act on that.
func TestASpentYesSaysWhatItWasGivenFor(t *testing.T) {
	version := 1
	var acted []int
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "pay"}, nil, func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			if err := call.Confirm(tallystick.Question{Key: "go", Message: "Pay?", Facts: version}); err != nil {
				var none int
				if err := call.Facts("go", &none); err != tallystick.ErrPending {
					t.Errorf("facts %d of no answer: %v", none, err)
				}
				return nil, nil, err
			}
			var approved int
			if err := call.Facts("go", &approved); err != nil {
				return nil, nil, err
			}
			act := func(context.Context, string) (int, error) {
				acted = append(acted, approved)
				version++
				return 0, nil
			}
			if _, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, act); err != nil {
				return nil, nil, err
			}
			if err := confirm(call, "and", tallystick.Who{}); err != nil {
				return nil, nil, err
			}
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "ship"}, act)
			return nil, nil, err
		})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("pay", nil)
	version = 2 // the first yes is for an order that has changed, and void
	r = ann.retry("pay", nil, r.state(), map[string]any{"go": yes})
	r = ann.retry("pay", nil, r.state(), map[string]any{"go~2": yes})
	r = ann.retry("pay", nil, r.state(), map[string]any{"and": yes})
	if r.typ() != "complete" || r.isError() || !slices.Equal(acted, []int{2, 2}) {
		t.Fatalf("acted on %v, and 2 was approved: %s", acted, r.raw)
	}
}
