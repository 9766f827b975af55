package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

const toolPayout = "payout"

const (
	// smallSum is up to what a requester approves their own refund.
	smallSum = 10_000
	// ExportParts is how many parts an export writes.
	ExportParts = 8
	partTakes   = 250 * time.Millisecond
	// VoucherWithin is how long an offered voucher waits for a yes.
	VoucherWithin = 2 * time.Second
	voucherCents  = 500
)

type orderArgs struct {
	OrderID string `json:"orderId" jsonschema:"the order's number, like A-1001"`
}

type exportArgs struct {
	Month string `json:"month" jsonschema:"like 2026-07"`
}

type exported struct {
	Month string `json:"month"`
	Parts int    `json:"parts"`
}

// addTools adds what the desk can do.
func (d *desk) addTools() {
	task := &tallystick.ToolOptions{Task: tallystick.TaskRequired}
	tallystick.AddTool(d.srv.Server, &mcp.Tool{Name: "refund", Description: "Refunds an order, once, after an approval: up to " + Euros(smallSum) + " by who asks for it, above by somebody else of finance."}, nil, d.refund)
	tallystick.AddTool(d.srv.Server, &mcp.Tool{Name: "voucher", Description: "Offers the customer of an order a voucher of " + Euros(voucherCents) + "; the offer must be confirmed within " + VoucherWithin.String() + "."}, nil, d.voucher)
	tallystick.AddTool(d.srv.Server, &mcp.Tool{Name: "export", Description: "Exports a month's orders, part by part. A task."}, task, d.export)
	tallystick.AddTool(d.srv.Server, &mcp.Tool{Name: toolPayout, Description: "Has the bank pay an order's supplier, half of the order's sum. A task, for finance."}, task, d.payout)
}

// refund asks before it pays. The approval rests on the order's version: if
// the order changes, the approval is void and asked for again.
func (d *desk) refund(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, Receipt, error) {
	order, err := d.shop.Order(ctx, in.OrderID) // afresh on every run
	if err != nil {
		return nil, Receipt{}, err
	}
	q := tallystick.Question{
		Key: "approve", Message: fmt.Sprintf("Refund %s to %s for %s?", order.Total(), order.Customer, order.Item), Facts: order.Version,
	}
	if order.Cents > smallSum {
		q.Who = tallystick.Who{Roles: []string{RoleFinance}, NotRequester: true}
	}
	if err := call.Confirm(q); err != nil {
		return nil, Receipt{}, err
	}
	r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: order.ID, Repeatable: true},
		func(ctx context.Context, key string) (Receipt, error) {
			return d.shop.Book(ctx, KindRefund, order.ID, order.Cents, key)
		})
	return nil, r, err
}

// voucher asks a question that does not wait for long.
func (d *desk) voucher(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, Receipt, error) {
	order, err := d.shop.Order(ctx, in.OrderID)
	if err != nil {
		return nil, Receipt{}, err
	}
	err = call.Confirm(tallystick.Question{
		Key: "offer", Message: fmt.Sprintf("Send %s a voucher of %s?", order.Customer, Euros(voucherCents)), Within: VoucherWithin,
	})
	if err != nil {
		return nil, Receipt{}, err
	}
	r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "voucher", Subject: order.ID, Repeatable: true},
		func(ctx context.Context, key string) (Receipt, error) {
			return d.shop.Book(ctx, KindVoucher, order.ID, voucherCents, key)
		})
	return nil, r, err
}

// export is a long job of many effects. A run that takes over from a dead one
// passes those that are done and goes on at the first that is not.
func (d *desk) export(ctx context.Context, call *tallystick.Call, in exportArgs) (*mcp.CallToolResult, exported, error) {
	for part := 1; part <= ExportParts; part++ {
		call.Report(fmt.Sprintf("part %d of %d", part, ExportParts), float64(part-1), ExportParts)
		// The same month may be exported again by another call, so the subject
		// is a part of this very export.
		e := tallystick.Effect{Name: "write", Subject: fmt.Sprintf("export %s part %d", call.ID(), part), Repeatable: true}
		_, err := tallystick.Once(ctx, call, e, func(ctx context.Context, key string) (Receipt, error) {
			r, err := d.shop.Book(ctx, KindPart, call.ID(), 0, key)
			if err != nil {
				return r, err
			}
			return r, wait(ctx, partTakes) // the far side is slow to say so
		})
		if err != nil {
			return nil, exported{}, err
		}
	}
	return nil, exported{Month: in.Month, Parts: ExportParts}, nil
}

// payout cannot be tried again: the bank honours no key. If nobody knows
// whether it paid, the call is held for a person.
func (d *desk) payout(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, Receipt, error) {
	order, err := d.shop.Order(ctx, in.OrderID)
	if err != nil {
		return nil, Receipt{}, err
	}
	call.Report("paying "+Euros(order.Cents/2)+" to the supplier of "+order.ID, 0, 1)
	r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: toolPayout, Subject: order.ID},
		func(ctx context.Context, _ string) (Receipt, error) {
			return d.shop.Pay(ctx, order.ID, order.Cents/2)
		})
	return nil, r, err
}
