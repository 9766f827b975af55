package tallysticktest_test

import (
	"fmt"
	"strings"
	"testing"

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

// The crashes find a handler that is not careful, and say where.
func TestACarelessHandlerIsFound(t *testing.T) {
	seen := &recorder{T: t}
	tallysticktest.CrashEverywhere(seen, func() tallysticktest.Trial {
		far := &bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) {
				addPay(s, far, tallystick.Who{}, nil, tallystick.Effect{Repeatable: true}) // no subject, no idempotency key
			},
			Scenario: func(b *tallysticktest.Bench) {
				b.As(ann).Call("pay", invoice).Confirm("approve").Await("completed")
				b.As(ann).Call("pay", invoice).Confirm("approve").Await("completed")
			},
			Check: func(*tallysticktest.Bench) {
				if far.count() != 2 {
					return
				}
				// As it is, without a crash, too: the model called twice.
				seen.Errorf("%d payments", far.count())
			},
		}
	})
	if !seen.failed || !strings.Contains(seen.log, "no crash; the audit trail:\ncall 1: opened") {
		t.Errorf("failed is %t; log:\n%s", seen.failed, seen.log)
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
