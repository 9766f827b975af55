package tallysticktest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

var (
	ann = tallystick.Identity{Tenant: "acme", Subject: "ann"}
	eve = tallystick.Identity{Tenant: "acme", Subject: "eve", Roles: []string{"finance"}}
	ops = tallystick.Identity{Tenant: "acme", Subject: "ops", Roles: []string{"operator"}}
)

// A bank is a far side that honours keys.
type bank struct {
	mu       sync.Mutex
	payments map[string]int // by key
	asked    int
	version  int
}

func (b *bank) pay(key string, amount int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.payments == nil {
		b.payments = map[string]int{}
	}
	if _, ok := b.payments[key]; !ok {
		b.payments[key] = amount
	}
	return fmt.Sprintf("payment of %d", b.payments[key])
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.payments)
}

type payArgs struct {
	Invoice string `json:"invoice"`
	Amount  int    `json:"amount"`
}

// addPay adds a tool that asks and pays.
func addPay(s *tallystick.Server, b *bank, who tallystick.Who, opts *tallystick.ToolOptions, e tallystick.Effect) {
	tallystick.AddTool(s, &mcp.Tool{Name: "pay", Description: "Pays an invoice."}, opts,
		func(ctx context.Context, call *tallystick.Call, in payArgs) (*mcp.CallToolResult, any, error) {
			b.mu.Lock()
			version := b.version
			b.mu.Unlock()
			q := tallystick.Question{Key: "approve", Message: fmt.Sprintf("Pay %d?", in.Amount), Facts: version, Who: who}
			if err := call.Confirm(q); err != nil {
				return nil, nil, err
			}
			effect := tallystick.Effect{Name: "pay", Subject: e.Subject, Repeatable: e.Repeatable}
			paid, err := tallystick.Once(ctx, call, effect, func(ctx context.Context, key string) (string, error) {
				return b.pay(key, in.Amount), nil
			})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: paid}}}, nil, err
		})
}

var (
	invoice = payArgs{Invoice: "7", Amount: 12}
	safely  = tallystick.Effect{Subject: "invoice 7", Repeatable: true}
	asTask  = &tallystick.ToolOptions{Task: tallystick.TaskOptional}
)

func TestARoundIsAnsweredAndRepeated(t *testing.T) {
	far := &bank{}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, nil, safely) }, nil)
	r := b.As(ann).Call("pay", invoice)
	if !r.InputRequired() || r.Asked("approve").Message != "Pay 12?" {
		t.Fatalf("asked: %v", r)
	}
	b.Restart()
	done := r.Confirm("approve")
	if done.Status() != "completed" || done.Text() != "payment of 12" {
		t.Fatalf("paid: %v", done)
	}
	if again := done.Repeat(); again.Text() != done.Text() || far.count() != 1 {
		t.Fatalf("repeated: %v, %d payments", again, far.count())
	}
	if other := r.Decline("approve"); other.Err == nil {
		t.Fatalf("other answers: %v", other)
	}
}

// case S33, S34
func TestALateAnswerIsToldApart(t *testing.T) {
	far := &bank{}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, asTask, safely) }, nil)
	inline := b.As(ann, tallysticktest.Form).Call("pay", invoice)
	task := b.As(ann).Call("pay", invoice).Await("input_required")
	b.Advance(16 * time.Minute)
	if late := inline.Confirm("approve"); late.Outcome() != "expired" {
		t.Errorf("the late answer of a round: %v", late)
	}
	if late := task.Confirm("approve").Await("completed", "failed"); late.Outcome() != "expired" {
		t.Errorf("the late answer to a task: %v", late)
	}
	if far.asked != 0 {
		t.Errorf("%d payments", far.asked)
	}
}

func TestChangedFactsVoidAnAnswer(t *testing.T) {
	far := &bank{}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, nil, safely) }, nil)
	r := b.As(ann).Call("pay", invoice)
	far.version++
	again := r.Confirm("approve")
	if !again.InputRequired() || again.Asked("approve").WireKey != "approve~2" || far.asked != 0 {
		t.Fatalf("asked anew: %v", again)
	}
	if done := again.Confirm("approve"); done.Status() != "completed" || far.count() != 1 {
		t.Fatalf("paid: %v", done)
	}
}

func TestSomebodyElseDecides(t *testing.T) {
	far := &bank{}
	who := tallystick.Who{Roles: []string{"finance"}, NotRequester: true}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, who, nil, safely) }, nil)
	r := b.As(ann).Call("pay", invoice)
	if r.Status() != "pending" {
		t.Fatalf("pending: %v", r)
	}
	if err := b.As(ann).Approve(r, "approve", nil); err == nil {
		t.Error("the requester approved")
	}
	if err := b.As(eve).Approve(r, "approve", nil); err != nil {
		t.Error(err)
	}
	if done := r.Await("completed"); done.Text() != "payment of 12" {
		t.Errorf("paid: %v", done)
	}
}

func TestACancelledTaskDoesNotAct(t *testing.T) {
	far := &bank{}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, asTask, safely) }, nil)
	r := b.As(ann).Call("pay", invoice).Await("input_required")
	r.Cancel().Await("cancelled")
	if late := r.Confirm("approve"); late.Status() != "cancelled" || far.asked != 0 {
		t.Errorf("answered after the cancel: %v, %d payments", late, far.asked)
	}
}

func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &bank{}
		b := tallysticktest.New(t, func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, asTask, safely) }, nil)
		r := b.As(ann).Call("pay", invoice).Await("input_required")
		b.Restart()
		b.Advance(14 * time.Minute)
		if done := r.Confirm("approve").Await("completed"); far.count() != 1 {
			t.Errorf("paid: %v", done)
		}
	})
}
