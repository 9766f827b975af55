package tallysticktest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

// once is a check that the bank was paid exactly once.
func once(t *testing.T, far *bank) func(*tallysticktest.Bench) {
	return func(*tallysticktest.Bench) {
		if n := far.count(); n != 1 {
			t.Errorf("%d payments", n)
		}
	}
}

// case S27: killed at every write, so also between the spending of a yes and what it was for.
func TestRoundsSurviveEveryCrash(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, nil, safely) },
			Scenario: func(b *tallysticktest.Bench) {
				b.As(ann).Call("pay", invoice).Confirm("approve").Await("completed")
			},
			Check: once(t, far),
		}
	})
}

func TestTasksSurviveEveryCrash(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, asTask, safely) },
			Scenario: func(b *tallysticktest.Bench) {
				b.As(ann).Call("pay", invoice).Await("input_required").Confirm("approve").Await("completed")
			},
			Check: once(t, far),
		}
	})
}

func TestDecisionsSurviveEveryCrash(t *testing.T) {
	who := tallystick.Who{Roles: []string{"finance"}, NotRequester: true}
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addPay(s, far, who, nil, safely) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(ann).Call("pay", invoice)
				if err := b.As(eve).Approve(r, "approve", nil); err != nil {
					t.Error(err)
				}
				r.Await("completed")
			},
			Check: once(t, far),
		}
	})
}

// Without a subject, only a key brings a repeated first request back to its call.
func TestKeyedCallsSurviveEveryCrash(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) {
				addPay(s, far, tallystick.Who{}, asTask, tallystick.Effect{Repeatable: true})
			},
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(ann, tallysticktest.Form).CallKeyed("k1", "pay", invoice)
				r.Confirm("approve").Await("completed")
			},
			Check: once(t, far),
		}
	})
}

// A far side that honours no keys: what was under way is held for a person, who
// looks there and says whether it happened.
func TestWhatIsHeldIsResolved(t *testing.T) {
	helds := 0
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) {
				addPay(s, far, tallystick.Who{}, nil, tallystick.Effect{Subject: "invoice 7"})
			},
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(ann).Call("pay", invoice).Confirm("approve").Await("completed", "held")
				if r.Status() != "held" {
					return
				}
				helds++
				if err := b.As(ops).Resolve(r, "pay", "invoice 7", far.count() == 1, "payment of 12"); err != nil {
					t.Error(err)
				}
				r.Await("completed")
			},
			Check: func(*tallysticktest.Bench) {
				if far.count() != 1 || far.asked != 1 {
					t.Errorf("%d payments, asked for %d times", far.count(), far.asked)
				}
			},
		}
	})
	if helds == 0 {
		t.Error("nothing was ever held")
	}
}

// The crashes find a handler that is not careful, and say where: a first request
// that is sent again makes a second call, and its effect has no subject.
func TestACarelessHandlerIsFound(t *testing.T) {
	seen := &recorder{T: t}
	tallysticktest.CrashEverywhere(seen, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) {
				tallystick.AddTool(s, &mcp.Tool{Name: "tip"}, nil,
					func(ctx context.Context, call *tallystick.Call, in payArgs) (*mcp.CallToolResult, any, error) {
						_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "tip", Repeatable: true},
							func(ctx context.Context, key string) (string, error) { return far.pay(key, in.Amount), nil })
						return nil, nil, err
					})
			},
			Scenario: func(b *tallysticktest.Bench) { b.As(ann).Call("tip", invoice).Await("completed") },
			Check: func(*tallysticktest.Bench) {
				if n := far.count(); n != 1 {
					seen.Errorf("%d payments", n)
				}
			},
		}
	})
	if !seen.failed || !strings.Contains(seen.log, "killed just before write 2; the audit trail:\ncall 1: opened") {
		t.Errorf("failed is %t; log:\n%s", seen.failed, seen.log)
	}
}

// A scenario may restart the server by itself; the writes of every process are
// ones to die at.
func TestTheNextProcessDiesToo(t *testing.T) {
	seen := &recorder{T: t}
	tallysticktest.CrashEverywhere(seen, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, nil, safely) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(ann).Call("pay", invoice)
				b.Restart()
				r.Confirm("approve").Await("completed")
			},
			Check: once(t, far),
		}
	})
	if !strings.Contains(seen.log, "5 writes; survived 10 crashes") {
		t.Error(seen.log)
	}
}

// After its death no write of a process reaches the store, and the contexts of
// its handlers and effects end.
func TestADeadProcessIsDead(t *testing.T) {
	entered, ended := make(chan struct{}, 2), make(chan error, 2)
	var first atomic.Bool
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "job"}, asTask,
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "slow", Subject: "s", Repeatable: true},
					func(ctx context.Context, key string) (string, error) {
						if first.Swap(true) {
							return "by the second", nil
						}
						entered <- struct{}{}
						<-ctx.Done()
						ended <- context.Cause(ctx)
						return "by the first", nil
					})
				return nil, nil, err
			})
	}, nil)
	r := b.As(ann).Call("job", nil)
	<-entered
	b.Restart()
	if err := <-ended; err == nil {
		t.Error("the context has no cause")
	}
	r.Await("completed")
	for _, e := range b.Audit() {
		if e.Event == "evidence" || e.Event == "effect ended" && e.Epoch == 1 {
			t.Errorf("the dead process wrote:\n%s", b.Trail())
		}
	}
}

// A recorder keeps a test's failures to itself.
type recorder struct {
	*testing.T
	failed bool
	log    string
}

func (r *recorder) Failed() bool                   { return r.failed }
func (r *recorder) Logf(format string, a ...any)   { r.log += fmt.Sprintf(format+"\n", a...) }
func (r *recorder) Errorf(format string, a ...any) { r.failed = true; r.Logf(format, a...) }
func (r *recorder) Fatalf(format string, a ...any) { r.Errorf(format, a...); r.SkipNow() }

// A worker goes on with a round whose run died after its effect had begun. The
// repeated request waits for that, and does not say pending at once.
func TestARepeatedRequestWaitsForTheWorker(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Options: &tallystick.Options{Limits: tallystick.Limits{InlineWait: 10 * time.Second}},
			Server:  func(s *tallystick.Server) { addPay(s, far, tallystick.Who{}, nil, safely) },
			Scenario: func(b *tallysticktest.Bench) {
				if r := b.As(ann).Call("pay", invoice).Confirm("approve"); r.Status() != "completed" {
					t.Errorf("%v", r)
				}
			},
			Check: once(t, far),
		}
	})
}
