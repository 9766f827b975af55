package bazaar

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store"
)

// Tools are the tools that charge, and who has to approve.
var Tools = map[string]struct {
	opts    *tallystick.ToolOptions
	who     tallystick.Who
	honours bool          // the far side takes one key once
	steps   []string      // effects
	within  time.Duration // of the question
}{
	"refund": {who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, honours: true, steps: one},
	"pay":    {steps: one},
	"gift":   {honours: true, steps: one},
	"visit":  {who: tallystick.Who{OutOfBand: true}, steps: one},
	"wire":   {who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true, Count: 2}, steps: one},
	"batch":  {opts: &tallystick.ToolOptions{Task: tallystick.TaskOptional}, steps: three},
	"ship":   {opts: &tallystick.ToolOptions{Task: tallystick.TaskRequired, AskFirst: true}, honours: true, steps: one},
	"export": {opts: &tallystick.ToolOptions{Task: tallystick.TaskRequired}, who: tallystick.Who{Roles: []string{"finance"}}, steps: three},
	"parcel": {opts: &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 2 * time.Millisecond}, steps: three},
	"hasty":  {opts: &tallystick.ToolOptions{Timeout: 20 * time.Millisecond}, honours: true, steps: one},
	"brief":  {opts: &tallystick.ToolOptions{Task: tallystick.TaskOptional}, steps: one, within: 300 * time.Millisecond},
	"due":    {opts: &tallystick.ToolOptions{Task: tallystick.TaskOptional, Deadline: 600 * time.Millisecond}, steps: three},
}

var (
	one   = []string{"charge"}
	three = []string{"charge", "ship", "mail"}
)

// Options serve the bazaar from a store, with a lease that tests can wait for.
func Options(s store.Store) tallystick.Options {
	return tallystick.Options{Store: s, Limits: tallystick.Limits{LiveCalls: 1 << 20, Lease: time.Second, InlineWait: 100 * time.Millisecond}}
}

// asksFor comes before the id of the call in a question, since nothing else tells
// the client which call its round is of.
const asksFor = "For call "

type order struct {
	OrderID string `json:"orderId"`
}

// Add adds the bazaar's tools, a prompt and a resource.
func Add(s *tallystick.Server, shop Shop) {
	for name := range Tools {
		addCharging(s, shop, name)
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
		func(_ context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, any, error) {
			return nil, map[string]any{"saw": in.OrderID}, call.Confirm(tallystick.Question{Key: "approve", Message: "Look?"})
		})
	tallystick.AddPrompt(s, &mcp.Prompt{Name: "letter"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, call.Confirm(tallystick.Question{Key: "approve", Message: "Write?"})
	})
	tallystick.AddResourceTemplate(s, &mcp.ResourceTemplate{Name: "order", URITemplate: "order://{id}"},
		func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "x"}}}, call.Confirm(tallystick.Question{Key: "approve", Message: "Read?"})
		})
}

func addCharging(s *tallystick.Server, shop Shop, name string) {
	o := Tools[name]
	tallystick.AddTool(s, &mcp.Tool{Name: name}, o.opts, func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, any, error) {
		version, err := shop.order(in.OrderID)
		if err != nil {
			return nil, nil, err
		}
		q := tallystick.Question{Key: "approve", Message: "Charge " + in.OrderID + "? " + asksFor + call.ID(), Facts: version, Who: o.who, Within: o.within}
		if err := call.Confirm(q); err != nil {
			return nil, nil, err
		}
		if err := call.Facts("approve", &version); err != nil { // a yes that is spent was given for those of then
			return nil, nil, err
		}
		subject := name + " " + in.OrderID
		var receipts []int
		for i, step := range o.steps {
			call.Report(step, float64(i), float64(len(o.steps)))
			n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: step, Subject: subject, Repeatable: o.honours},
				func(ctx context.Context, key string) (int, error) {
					return shop.charge(ctx, Charge{
						Call: call.ID(), Tenant: call.Owner().Tenant, Effect: step, Subject: subject, Key: key,
						Facts: version, Honours: o.honours, Began: time.Now(),
					})
				})
			if err != nil {
				return nil, nil, err
			}
			receipts = append(receipts, n)
		}
		return nil, map[string]any{"receipts": receipts}, nil
	})
}
