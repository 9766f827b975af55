package tallystick_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// Every limit that a handler or a caller can meet is told by its option's name.
// case S11: a call that asks on and on ends at Limits.Rounds.
func TestEachLimitIsNamed(t *testing.T) {
	opts := tallystick.Options{Limits: tallystick.Limits{
		OpenQuestions: 2, Rounds: 3, StateBytes: 2000, ArgumentsBytes: 500, AnswerBytes: 300, ResultBytes: 1000, Nesting: 12, JournalBytes: 4000,
	}}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) {
		tool := func(name string, readOnly bool, f func(ctx context.Context, c *tallystick.Call) error) {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}, &tallystick.ToolOptions{Timeout: time.Minute},
				func(ctx context.Context, c *tallystick.Call, _ map[string]any) (*mcp.CallToolResult, any, error) {
					err := f(ctx, c)
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, err
				})
		}
		ask := func(c *tallystick.Call, key, message string) error {
			return c.Confirm(tallystick.Question{Key: key, Message: message})
		}
		tool("asks_many", false, func(_ context.Context, c *tallystick.Call) error {
			for i := range 3 {
				ask(c, fmt.Sprint("q", i), "?")
			}
			return nil
		})
		tool("asks_on", false, func(_ context.Context, c *tallystick.Call) error {
			for i := range 9 {
				if err := ask(c, fmt.Sprint("q", i), "?"); err != nil {
					return err
				}
			}
			return nil
		})
		tool("asks_much", true, func(_ context.Context, c *tallystick.Call) error { return ask(c, "q", strings.Repeat("x", 3000)) })
		tool("does_much", false, func(ctx context.Context, c *tallystick.Call) error {
			for i := range 9 {
				_, err := tallystick.Once(ctx, c, tallystick.Effect{Name: fmt.Sprint("e", i)}, func(context.Context, string) (string, error) { return strings.Repeat("x", 800), nil })
				if err != nil {
					return err
				}
			}
			return nil
		})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "says_much"}, nil, func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 2000)}}}, nil, nil
		})
	}})
	ann := d.as("ann/acme", capsForm)
	on := ann.call("asks_on", nil)
	for len(on.keys()) == 1 {
		on = ann.retry("asks_on", nil, on.state(), map[string]any{on.keys()[0]: yes})
	}
	state := ann.call("asks_on", nil)
	for name, r := range map[string]reply{
		"OpenQuestions":  ann.call("asks_many", nil),
		"Rounds":         on,
		"StateBytes":     ann.call("asks_much", nil),
		"JournalBytes":   ann.call("does_much", nil),
		"ResultBytes":    ann.call("says_much", nil),
		"ArgumentsBytes": ann.call("asks_on", map[string]any{"a": strings.Repeat("x", 600)}),
		"AnswerBytes":    ann.retry("asks_on", nil, state.state(), map[string]any{"q0": accept(map[string]any{"confirm": true, "x": strings.Repeat("x", 400)})}),
		"Nesting":        ann.call("asks_on", map[string]any{"a": nested(20)}),
	} {
		if !strings.Contains(r.raw, name) || r.typ() == "input_required" || r.err == nil && !r.isError() {
			t.Errorf("%s: %d %.300s", name, r.status, r.raw)
		}
	}
}

func nested(n int) any {
	if n == 0 {
		return 1
	}
	return []any{nested(n - 1)}
}

// A number that a handler's float64 cannot hold is named, in whatever it comes.
func TestANumberOutOfRangeIsNamed(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "any"}, nil, func(context.Context, *tallystick.Call, map[string]any) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
	}})
	ann := d.as("ann/acme", capsNone)
	for raw, at := range map[string]string{`{"a":1,"price":1e400}`: `"/price"`, `{"deep":[{"b~":2},{"c":-1e999}]}`: `"/deep/1/c"`} {
		r := ann.send("tools/call", "any", map[string]any{"arguments": json.RawMessage(raw)})
		if !r.isError() || !strings.Contains(r.text(), at) || !strings.Contains(r.text(), "out of range") {
			t.Errorf("%s: %s", raw, r.raw)
		}
	}
	if r := ann.send("tools/call", "any", map[string]any{"arguments": json.RawMessage(`{"price":1e308}`)}); r.isError() {
		t.Errorf("in range: %s", r.raw)
	}
}
