package engine

import (
	"context"
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
