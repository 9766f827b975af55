package main

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// RefundArgs are the tool's arguments.
type RefundArgs struct {
	OrderID string `json:"orderId" jsonschema:"the order to refund"`
}

// Add adds the tool refund to s.
func Add(s *tallystick.Server, shop *Shop) {
	// region refund
	refund := func(ctx context.Context, call *tallystick.Call, in RefundArgs) (*mcp.CallToolResult, Receipt, error) {
		order, err := shop.Order(ctx, in.OrderID) // afresh on every run
		if err != nil {
			return nil, Receipt{}, err
		}
		if err := call.Confirm(tallystick.Question{
			Key: "approve", Message: fmt.Sprintf("Refund %s to %s?", order.Total, order.Customer), Facts: order,
			Who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, Within: 30 * time.Minute,
		}); err != nil {
			return nil, Receipt{}, err
		}
		// What was approved, should a run after a crash find another order.
		if err := call.Facts("approve", &order); err != nil {
			return nil, Receipt{}, err
		}
		r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.OrderID, Repeatable: true},
			func(ctx context.Context, key string) (Receipt, error) { return shop.Refund(ctx, order, key) })
		return nil, r, err
	}
	// endregion
	tallystick.AddTool(s, &mcp.Tool{Name: "refund", Description: "Refunds an order, once finance has approved it."}, nil, refund)
}
