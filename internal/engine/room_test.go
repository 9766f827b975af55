package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// A promotion that comes after a run was closed, its end not written, takes no
// place among the workers: nobody would give it back.
func TestAClosedRunTakesNoWorkersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		b := newBench(t, s, func(context.Context, *Run) End { return done }, func(o *Options) { o.Workers = 2 })
		ctx := context.Background()
		for range 4 {
			r, err := b.e.Begin(ctx, opening(func(c *record.Call) { c.Task = false }), Kept)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Keep(ctx); err != nil {
				t.Fatal(err)
			}
			s.onCommit(func(record.Change) error { return store.ErrFull })
			if _, err := r.Finish(ctx, done); !errors.Is(err, store.ErrFull) {
				t.Fatal(err)
			}
			s.onCommit(nil)
			_ = r.Promote(ctx)
		}
		b.e.mu.Lock()
		busy, tenants := b.e.busy, len(b.e.tenants)
		b.e.mu.Unlock()
		if busy != 0 || tenants != 0 {
			t.Errorf("%d places are taken, of %d tenants", busy, tenants)
		}
		id := b.create()
		synctest.Wait()
		if c, err := s.Store.Load(ctx, id); err != nil || c.State != record.Ended {
			t.Errorf("a new task: %v %v", c, err)
		}
	})
}

// A cancel that comes between the commit that takes a call and the run's
// registration ends the run's context, and whoever reads the call sees it.
func TestACancelBeforeTheRunIsRegisteredIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		ready := make(chan *Engine, 1)
		var once atomic.Bool
		stopped := make(chan error, 1)
		b := newBench(t, s, func(ctx context.Context, r *Run) End {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return done
		}, func(o *Options) {
			o.Bounds = func(c *record.Call) (time.Duration, int) {
				if c.State == record.Running && once.CompareAndSwap(false, true) {
					_, err := (<-ready).Change(context.Background(), c.ID, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
						return []record.Event{record.CancelAsked{}}
					})
					if err != nil {
						t.Error(err)
					}
				}
				return 0, 16
			}
		})
		ready <- b.e
		id := b.create()
		synctest.Wait()
		c, err := b.e.Load(context.Background(), id)
		if err != nil || c.CancelledAt.IsZero() {
			t.Errorf("the call is read as %+v, %v", c, err)
		}
		select {
		case err := <-stopped:
			if !errors.Is(err, ErrCancelled) {
				t.Errorf("the handler's context ended by %v", err)
			}
		default: // it was told before it began
		}
		synctest.Wait()
		if c, err := s.Load(context.Background(), id); err != nil || c.State != record.Ended {
			t.Errorf("it did not end: %v %v", c.State, err)
		}
	})
}

// lame is a store that cannot take over.
type lame struct{ store.Store }

func (lame) Takeover(context.Context, string, string) error { return errors.New("input/output error") }

// An engine that cannot begin is as one that has drained: what waits for that
// does not wait for ever.
func TestAnEngineThatCannotBeginHasStopped(t *testing.T) {
	e := newEngine(lame{memory.New(memory.Options{})}, func(context.Context, *Run) End { return done })
	if err := e.Work(context.Background()); err == nil {
		t.Error("it works")
	}
	select {
	case <-e.stopping:
	default:
		t.Error("nobody was told")
	}
}
