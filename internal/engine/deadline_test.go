package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

// An effect that started in time settles past the call's deadline, but not for
// ever: then nobody knows.
func TestAStartedEffectMaySettlePastTheDeadline(t *testing.T) {
	for _, c := range []struct {
		takes   time.Duration
		outcome record.Outcome
		word    string
		effect  record.EffectState
	}{
		{4 * time.Minute, record.Completed, "", record.EffectDone},
		{time.Hour, record.Failed, "unknown", record.EffectHeld},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, memory.New(memory.Options{}), once(Effect{Name: "e", Do: func(ctx context.Context, _ string) ([]byte, error) {
				select {
				case <-time.After(c.takes):
					return []byte(`"r"`), nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}}))
			id := b.create(func(call *record.Call) { call.Deadline = time.Now().Add(time.Minute) })
			time.Sleep(2 * time.Minute)
			if call := b.load(id); call.State != record.Running {
				t.Fatalf("the deadline overtook the effect: %+v", call)
			}
			time.Sleep(30 * time.Minute)
			b.ended(id, c.outcome, c.word)
			if f := b.load(id).Effect("e", ""); f.State != c.effect {
				t.Errorf("the effect that took %v: %+v", c.takes, f)
			}
		})
	}
}

// A clock that was ahead and is set back leaves a lease that looks live and
// that no run has.
func TestAClockThatWasAheadLeavesNoCallRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(time.Hour)) // when the lease begins
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		runs := 0
		b := newBench(t, memory.New(memory.Options{Now: now}), func(ctx context.Context, r *Run) End {
			if runs++; runs == 1 {
				ahead.Store(int64(2 * time.Hour))
				<-ctx.Done() // its lease is over by that clock
				ahead.Store(0)
				return End{Pending: true} // and what it came to is not recorded
			}
			return done
		})
		id := b.create()
		time.Sleep(time.Minute)
		b.ended(id, record.Completed, "")
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}
