package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// shop is the far side of the refund tool.
type shop struct {
	mu      sync.Mutex
	version int
	total   string
	refunds atomic.Int64
	fail    func() error
}

type refundArgs struct {
	OrderID string `json:"orderId"`
}

type receipt struct {
	ID string `json:"id"`
}

// addRefund adds a refund tool in small.
func (sh *shop) addRefund(d *desk, who tallystick.Who) {
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "refund", Description: "Refunds an order."}, nil,
		func(ctx context.Context, call *tallystick.Call, in refundArgs) (*mcp.CallToolResult, receipt, error) {
			sh.mu.Lock()
			version, total := sh.version, sh.total
			sh.mu.Unlock()
			if err := call.Confirm(tallystick.Question{Key: "approve", Message: "Refund " + total + "?", Facts: version, Who: who}); err != nil {
				return nil, receipt{}, err
			}
			r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.OrderID, Repeatable: true},
				func(ctx context.Context, key string) (receipt, error) {
					if sh.fail != nil {
						if err := sh.fail(); err != nil {
							return receipt{}, err
						}
					}
					n := sh.refunds.Add(1)
					return receipt{ID: "r" + string(rune('0'+n))}, nil
				})
			return nil, r, err
		})
}

func refundDesk(t *testing.T, who tallystick.Who, opts tallystick.Options) (*desk, *shop) {
	t.Helper()
	sh := &shop{total: "10 EUR"}
	d := newDesk(t, setup{opts: opts, tools: func(d *desk) { sh.addRefund(d, who) }})
	return d, sh
}

// case S32
func TestApprovalInTwoRoundsRefundsOnce(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{}, tallystick.Options{})
	ann := d.as("ann/acme", capsForm)
	args := map[string]any{"orderId": "1"}
	r := ann.call("refund", args)
	if r.typ() != "input_required" || len(r.keys()) != 1 || r.keys()[0] != "approve" {
		t.Fatalf("round 0: %s", r.raw)
	}
	done := ann.retry("refund", args, r.state(), map[string]any{"approve": yes})
	if done.typ() != "complete" || done.isError() || sh.refunds.Load() != 1 {
		t.Fatalf("round 1: %s, %d refunds", done.raw, sh.refunds.Load())
	}
	again := ann.retry("refund", args, r.state(), map[string]any{"approve": yes})
	if again.text() != done.text() || sh.refunds.Load() != 1 {
		t.Fatalf("the same retry: %s, %d refunds", again.raw, sh.refunds.Load())
	}
	other := ann.retry("refund", args, r.state(), map[string]any{"approve": map[string]any{"action": "decline"}})
	if other.err == nil || other.err.Data["reason"] != "invalid_request_state" {
		t.Fatalf("other answers: %s", other.raw)
	}
	// The model calls it a second time for the same order: the recorded result.
	r = ann.call("refund", args)
	second := ann.retry("refund", args, r.state(), map[string]any{"approve": yes})
	if second.text() != done.text() || sh.refunds.Load() != 1 {
		t.Fatalf("a second call: %s, %d refunds", second.raw, sh.refunds.Load())
	}
	// Another owner of the same subject is told that it is done, and no more.
	bob := d.as("bob/acme", capsForm)
	r = bob.call("refund", args)
	third := bob.retry("refund", args, r.state(), map[string]any{"approve": yes})
	if third.outcome() != "already_done" || sh.refunds.Load() != 1 {
		t.Fatalf("another owner: %s, %d refunds", third.raw, sh.refunds.Load())
	}
}

func TestTaskRunsAfterApproval(t *testing.T) {
	var runs atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				runs.Add(1)
				call.Report("working", 1, 2)
				if err := call.Confirm(tallystick.Question{Key: "go", Message: "Go on?"}); err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	r := ann.call("job", map[string]any{})
	if r.typ() != "task" {
		t.Fatalf("created: %s", r.raw)
	}
	id := r.result["taskId"].(string)
	q := ann.await(id, status("input_required"))
	if len(q.keys()) != 1 {
		t.Fatalf("asked: %s", q.raw)
	}
	if u := ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}}); u.err != nil {
		t.Fatalf("update: %s", u.raw)
	}
	end := ann.await(id, status("completed"))
	result := end.result["result"].(map[string]any)
	if result["resultType"] != "complete" {
		t.Fatalf("ended: %s", end.raw)
	}
	// Foreign and absent are one answer.
	foreign := d.as("bob/acme", capsTasks).send("tasks/get", id, nil)
	absent := ann.send("tasks/get", "nope", nil)
	if foreign.err == nil || absent.err == nil || foreign.err.Message != absent.err.Message || foreign.status != absent.status {
		t.Fatalf("foreign %s, absent %s", foreign.raw, absent.raw)
	}
}

// case S42
func TestSomebodyElseApprovesOutOfBand(t *testing.T) {
	d, sh := refundDesk(t, tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, tallystick.Options{})
	ann := d.as("ann/acme/finance", capsForm)
	r := ann.call("refund", map[string]any{"orderId": "7"})
	if r.outcome() != "pending" {
		t.Fatalf("pending: %s", r.raw)
	}
	call := r.result["_meta"].(map[string]any)["tallystick/call"].(string)
	ctx := context.Background()
	annID := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "ann", Roles: []string{"finance"}}
	if w, err := d.srv.Waiting(ctx, annID); err != nil || len(w) != 0 {
		t.Fatalf("the requester sees %v, %v", w, err)
	}
	if err := d.srv.Decide(ctx, annID, tallystick.Decision{CallID: call, Key: "approve", Accept: true}); !errors.Is(err, tallystick.ErrNoQuestion) {
		t.Fatalf("the requester decides: %v", err)
	}
	eve := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "eve", Roles: []string{"finance"}}
	w, err := d.srv.Waiting(ctx, eve)
	if err != nil || len(w) != 1 || string(w[0].Arguments) != `{"orderId":"7"}` {
		t.Fatalf("waiting for eve: %v, %v", w, err)
	}
	// As a page would send it.
	var decision tallystick.Decision
	sent := fmt.Sprintf(`{"callId":%q,"key":%q,"digest":%q,"accept":true,"content":null}`, call, w[0].Key, w[0].Digest)
	if err := json.Unmarshal([]byte(sent), &decision); err != nil {
		t.Fatal(err)
	}
	if err := d.srv.Decide(ctx, eve, decision); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		s := ann.call("call_status", map[string]any{"callId": call})
		if s.outcome() == "completed" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status: %s\n%s", s.raw, d.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if sh.refunds.Load() != 1 {
		t.Fatalf("%d refunds", sh.refunds.Load())
	}
}
