package tallystick_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

type chargeArgs struct {
	Order string `json:"order"`
}

// A model that calls the tool again for the same order gets the first receipt,
// and nobody is charged twice.
func ExampleOnce() {
	t := &demonstration{}
	defer t.end()

	charges := 0
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "charge"}, nil,
			func(ctx context.Context, call *tallystick.Call, in chargeArgs) (*mcp.CallToolResult, any, error) {
				receipt, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge", Subject: in.Order},
					func(ctx context.Context, key string) (string, error) {
						charges++
						return fmt.Sprintf("receipt %d for order %s", charges, in.Order), nil
					})
				return said(receipt), nil, err
			})
	}, nil)

	for _, order := range []string{"A", "A", "B"} {
		fmt.Println(b.As(ann).Call("charge", chargeArgs{order}).Text())
	}
	// Output:
	// receipt 1 for order A
	// receipt 1 for order A
	// receipt 2 for order B
}

// When nobody knows whether an effect happened, it is held, and a person says.
func ExampleServer_Decide() {
	t := &demonstration{}
	defer t.end()

	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "charge"}, nil,
			func(ctx context.Context, call *tallystick.Call, in chargeArgs) (*mcp.CallToolResult, any, error) {
				receipt, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge", Subject: in.Order},
					func(ctx context.Context, key string) (string, error) {
						return "", errors.New("the bank did not answer")
					})
				return said(receipt), nil, err
			})
	}, nil)

	r := b.As(ann).Call("charge", chargeArgs{"A"})
	fmt.Println(r.Outcome())

	w := b.As(eve).Waiting()[0] // what an operator's page would show
	fmt.Println(w.Tool, w.Effect, w.Subject)
	err := b.Server().Decide(context.Background(), eve, tallystick.Decision{
		CallID: w.CallID, Effect: w.Effect, Subject: w.Subject,
		Happened: true, Result: []byte(`"receipt 7, found in the bank's books"`),
	})
	fmt.Println(err, r.Await("completed").Text())
	// Output:
	// held
	// charge charge A
	// <nil> receipt 7, found in the bank's books
}

// What certainly did not happen holds nothing: it may be tried again.
func ExampleNotDone() {
	t := &demonstration{}
	defer t.end()

	funds := false
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "charge"}, nil,
			func(ctx context.Context, call *tallystick.Call, in chargeArgs) (*mcp.CallToolResult, any, error) {
				receipt, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge", Subject: in.Order},
					func(ctx context.Context, key string) (string, error) {
						if !funds {
							return "", tallystick.NotDone(errors.New("insufficient funds"))
						}
						return "receipt", nil
					})
				return said(receipt), nil, err
			})
	}, nil)

	fmt.Println(b.As(ann).Call("charge", chargeArgs{"A"}).Text())
	funds = true
	fmt.Println(b.As(ann).Call("charge", chargeArgs{"A"}).Text())
	// Output:
	// insufficient funds
	// receipt
}
