package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// handedBack is a store in which a drain has left a task whose repeatable effect
// "pay" on "1" is started.
func handedBack(t *testing.T) (s store.Store, holder string) {
	t.Helper()
	s = memory.New(memory.Options{})
	b := newBench(t, s, once(Effect{Name: "pay", Subject: "1", Repeatable: true, Do: func(context.Context, string) ([]byte, error) {
		time.Sleep(16 * time.Second)
		return nil, errors.New("down")
	}}))
	holder = b.create()
	synctest.Wait()
	b.stop()
	if c := b.load(holder); c.State != record.Ready || c.Effects[0].State != record.EffectStarted {
		t.Fatalf("handed back: %s, %s", c.State, c.Effects[0].State)
	}
	return s, holder
}

// pays is a handler whose effect goes well, and counts how often it is done.
func pays(n *atomic.Int64) handler {
	return once(Effect{Name: "pay", Subject: "1", Repeatable: true, Do: func(context.Context, string) ([]byte, error) {
		n.Add(1)
		return []byte(`"paid"`), nil
	}})
}

// passing is a store whose Due leaves a call out: as if others always came first.
type passing struct {
	store.Store
	id string
}

func (s passing) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	due, err := s.Store.Due(ctx, now, limit, except)
	due.Ready = slices.DeleteFunc(due.Ready, func(id string) bool { return id == s.id })
	return due, err
}

// Those that wait for a subject have all the places, and the call that has it
// is not being run: it is run with the place of one of them.
func TestWhoWaitsForACallLendsItAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, holder := handedBack(t)
		var n atomic.Int64
		b := newBench(t, passing{s, holder}, pays(&n), func(o *Options) { o.Workers, o.PerTenant = 1, 1 })
		waiters := []string{b.create(), b.create(), b.create()}
		time.Sleep(10 * time.Second)
		for _, id := range append(waiters, holder) {
			b.ended(id, record.Completed, "")
			if c := b.load(id); string(c.Result) != `"paid"` {
				t.Errorf("%s: %s", id, c.Result)
			}
		}
		b.e.mu.Lock()
		defer b.e.mu.Unlock()
		if n.Load() != 1 || b.e.busy != 0 || len(b.e.tenants) != 0 {
			t.Errorf("done %d times; %d places are taken", n.Load(), b.e.busy)
		}
	})
}

// Whose lease is over is not at it, though nobody has said so yet: a run that
// wants the subject sees to it, even in a process that does no work.
func TestWhoWaitsSeesThatALeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, holder := handedBack(t)
		var n atomic.Int64
		b := &bench{t: t, e: newEngine(s, pays(&n))}
		take(b, holder, record.Lease{Holder: "gone/1", Until: time.Now().Add(time.Minute)})
		r, err := b.e.Begin(context.Background(), opening(func(c *record.Call) { c.Task = false }), Kept)
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan End, 1)
		go func() { ends <- r.Do() }()
		time.Sleep(59 * time.Second)
		if c := b.load(holder); c.State != record.Running || len(ends) != 0 || n.Load() != 0 {
			t.Errorf("under a live lease: %s, %d", c.State, n.Load())
		}
		time.Sleep(3 * time.Second)
		b.ended(holder, record.Completed, "")
		c, err := r.Finish(context.Background(), <-ends)
		if err != nil || string(c.Result) != `"paid"` || n.Load() != 1 {
			t.Errorf("%v, %s, done %d times", err, c.Result, n.Load())
		}
		<-b.e.work.Empty()
	})
}

// take makes a call running under a lease of another process.
func take(b *bench, id string, l record.Lease) {
	b.t.Helper()
	_, err := b.e.Change(context.Background(), id, record.System, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Taken{Lease: l}}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// The call that has the subject waits for a person: nobody waits for that with
// it, neither a worker's run nor one with a client. Once it has gone on, its
// result is everybody's.
func TestNobodyWaitsForACallThatWaitsForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, holder := handedBack(t)
		var n atomic.Int64
		pay := pays(&n)
		b := newBench(t, s, func(ctx context.Context, r *Run) End {
			if r.id == holder {
				if _, pending := ask(r, "q"); pending {
					return End{Pending: true}
				}
			}
			return pay(ctx, r)
		})
		if c := b.load(holder); c.State != record.Waiting {
			t.Fatalf("the holder is %s", c.State)
		}
		began := time.Now()
		refused := func() {
			t.Helper()
			task := b.create()
			r, err := b.e.Begin(context.Background(), opening(func(c *record.Call) { c.Task = false }), Kept)
			if err != nil {
				t.Fatal(err)
			}
			inline, err := r.Finish(context.Background(), r.Do())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*record.Call{b.load(task), inline} {
				if string(c.Result) != "refused: effect_in_flight_elsewhere (pay [1])" || b.audited(c.ID, "refused", record.ReasonBusy) != 1 {
					t.Errorf("%s, %s", c.State, c.Result)
				}
			}
		}
		refused()
		if took := time.Since(began); took != 0 {
			t.Errorf("they waited %v", took)
		}
		b.answer(holder, b.load(holder).Open()[0].WireKey, record.Accept)
		b.ended(holder, record.Completed, "")
		after := b.create()
		if c := b.load(after); string(c.Result) != `"paid"` || n.Load() != 1 {
			t.Errorf("%s, %s, done %d times", c.State, c.Result, n.Load())
		}
	})
}
