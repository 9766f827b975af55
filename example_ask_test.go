package tallystick_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// An approval rests on facts. If they change before it arrives, it is void, and
// asked again.
func ExampleCall_Confirm() {
	t := &demonstration{}
	defer t.end()

	price := 10
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "buy"}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				err := call.Confirm(tallystick.Question{
					Key: "buy", Message: fmt.Sprintf("Buy it for %d EUR?", price), Facts: price,
				})
				if err != nil {
					return nil, nil, err // ErrPending until somebody has answered
				}
				return said("bought"), nil, nil
			})
	}, nil)

	r := b.As(ann).Call("buy", nil)
	fmt.Println(r.Asked("buy").Message)
	price = 12
	r = r.Confirm("buy")
	fmt.Println(r.Status(), "-", r.Asked("buy").Message)
	r = r.Confirm("buy")
	fmt.Println(r.Status(), "-", r.Text())
	// Output:
	// Buy it for 10 EUR?
	// input_required - Buy it for 12 EUR?
	// completed - bought
}

// A form is made from a struct.
func ExampleAsk() {
	t := &demonstration{}
	defer t.end()

	type address struct {
		Street  string `json:"street" form:"title=Street and number,minLength=3"`
		Country string `json:"country,omitempty" form:"enum=AT|CH|DE,default=AT"`
	}
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "ship"}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				to, err := tallystick.Ask[address](call, tallystick.Question{Key: "address", Message: "Where to?"})
				switch {
				case errors.Is(err, tallystick.ErrDeclined):
					return said("not shipped"), nil, nil
				case err != nil:
					return nil, nil, err
				}
				return said("to " + to.Street + ", " + to.Country), nil, nil
			})
	}, nil)

	fmt.Println(b.As(ann).Call("ship", nil).Answer(map[string]any{"address": map[string]any{"street": "Ring 1"}}).Text())
	fmt.Println(b.As(ann).Call("ship", nil).Decline("address").Text())
	// Output:
	// to Ring 1, AT
	// not shipped
}
