package tallystick_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

// A tool that asks nothing, does no effect and is no task costs no write, and a
// read-only one none even when it asks.
func TestWhatNeedsNoRecordCostsNoWrite(t *testing.T) {
	c := &clock{}
	tap := &tapped{Store: memory.New(memory.Options{Now: c.Now})}
	var writes atomic.Int64
	tap.commit = func(record.Change) error { writes.Add(1); return nil }
	sh := &shop{total: "1"}
	d := newDesk(t, setup{clock: c, opts: tallystick.Options{Store: tap}, tools: func(d *desk) {
		addEcho(d, "plain", tallystick.TaskForbidden)
		sh.addRefund(d, tallystick.Who{})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, call.Confirm(tallystick.Question{Key: "ok", Message: "Look?"})
			})
	}})
	ann := d.as("ann/acme", capsForm)
	if r := ann.call("plain", nil); r.text() != "done" || writes.Load() != 0 {
		t.Errorf("a plain call: %s, %d writes", r.raw, writes.Load())
	}
	asked := ann.call("look", nil)
	if r := ann.retry("look", nil, asked.state(), map[string]any{"ok": yes}); r.isError() || r.err != nil || writes.Load() != 0 {
		t.Errorf("a read-only round: %s, %d writes", r.raw, writes.Load())
	}
	if r := ann.call("refund", order1); r.typ() != "input_required" || writes.Load() == 0 {
		t.Errorf("a kept question: %s, %d writes", r.raw, writes.Load())
	}
}
