package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// TransferArgs are the tool's arguments.
type TransferArgs struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Cents int64  `json:"cents" jsonschema:"how much, in cents of a euro"`
	Ref   string `json:"ref" jsonschema:"names this transfer; the same again is the same transfer"`
}

// Transferred is the tool's output.
type Transferred struct {
	ID         string   `json:"id"`
	ApprovedBy []string `json:"approvedBy"`
}

// Add adds the tool transfer to s. Two people of finance approve, neither of
// them the requester, and only on the page: what a client relays does not count.
func Add(s *tallystick.Server, bank *Bank) {
	transfer := func(ctx context.Context, call *tallystick.Call, in TransferArgs) (*mcp.CallToolResult, Transferred, error) {
		if err := call.Confirm(tallystick.Question{
			Key:     "approve",
			Message: fmt.Sprintf("Transfer %d.%02d EUR from %s to %s?", in.Cents/100, in.Cents%100, in.From, in.To),
			Who:     tallystick.Who{Roles: []string{"finance"}, NotRequester: true, OutOfBand: true, Count: 2},
			Within:  8 * time.Hour,
		}); err != nil {
			return nil, Transferred{}, err
		}
		var out Transferred
		for _, a := range call.Answers("approve") {
			out.ApprovedBy = append(out.ApprovedBy, a.By.Subject)
		}
		var err error
		out.ID, err = tallystick.Once(ctx, call, tallystick.Effect{Name: "transfer", Subject: in.Ref, Repeatable: true},
			func(ctx context.Context, key string) (string, error) { return bank.Transfer(ctx, key, in) })
		return nil, out, err
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "transfer", Description: "Transfers money, once two people of finance have approved it."}, nil, transfer)
}

// A Bank stands for the far side. It honours idempotency keys.
type Bank struct {
	mu   sync.Mutex
	made map[string]string // transfer ids by key
}

// Transfer moves money. The same key again is the same transfer.
func (b *Bank) Transfer(_ context.Context, key string, _ TransferArgs) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made = map[string]string{}
	}
	if b.made[key] == "" {
		b.made[key] = fmt.Sprintf("T%d", len(b.made)+1)
	}
	return b.made[key], nil
}

// Transfers is how many there were.
func (b *Bank) Transfers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.made)
}
