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
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/memory"
)

// once makes a handler that does one effect and returns what it came to.
func once(e Effect) handler {
	return func(ctx context.Context, r *Run) End {
		raw, err := r.Once(ctx, e)
		if err != nil {
			return End{Result: []byte(err.Error()), ToolError: true}
		}
		return End{Result: raw}
	}
}

func refusedFor(err error, reason record.Reason) bool {
	var r *record.Refusal
	return errors.As(err, &r) && r.Reason == reason
}

func TestEndsOfAnEffect(t *testing.T) {
	far := errors.New("the far side hung up")
	for name, c := range map[string]struct {
		repeatable bool
		do         func(n int64) error // by attempt
		state      record.EffectState
		attempts   int64
	}{
		"done":                     {false, func(int64) error { return nil }, record.EffectDone, 1},
		"unknown":                  {false, func(int64) error { return far }, record.EffectHeld, 1},
		"undone":                   {true, func(int64) error { return &Undone{far} }, record.EffectUndone, 1},
		"at the third try":         {true, func(n int64) error { return map[bool]error{true: far}[n < 3] }, record.EffectDone, 3},
		"never":                    {true, func(int64) error { return far }, record.EffectHeld, 5},
		"happened, cannot be kept": {true, func(int64) error { return &Unkept{far} }, record.EffectHeld, 1},
		"panic":                    {false, func(int64) error { panic("boom") }, record.EffectHeld, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				b := newBench(t, memory.New(memory.Options{}), once(Effect{Name: "e", Repeatable: c.repeatable, Do: func(context.Context, string) ([]byte, error) {
					err := c.do(n.Add(1))
					return []byte(`"r"`), err
				}}))
				id := b.create()
				time.Sleep(time.Minute)
				call := b.load(id)
				f := call.Effect("e", "")
				if f.State != c.state || n.Load() != c.attempts || f.State == record.EffectDone && string(call.Result) != `"r"` {
					t.Errorf("%s after %d attempts; the call: %s", f.State, n.Load(), call.Result)
				}
				if held := c.state == record.EffectHeld; held != (call.State == record.Held) {
					t.Errorf("the call is %s", call.State)
				}
			})
		})
	}
}

func TestAHeldCallGoesOnWhenItIsResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), once(Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) { return nil, errors.New("?") }}))
		id := b.create()
		synctest.Wait()
		_, err := b.e.Change(context.Background(), id, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
			return []record.Event{record.EffectResolved{Name: "e", Done: true, Result: []byte(`"it did"`)}}
		})
		if err != nil {
			t.Fatal(err)
		}
		b.ended(id, record.Completed, "")
		if c := b.load(id); string(c.Result) != `"it did"` {
			t.Errorf("%s", c.Result)
		}
	})
}

// A person is quicker than the handler's return: the call is not over with what
// the handler was told before.
func TestAnEffectResolvedBeforeTheHandlerReturnsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		runs := 0
		b = newBench(t, memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
			runs++
			end := once(Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) { return nil, errors.New("?") }})(ctx, r)
			if runs == 1 {
				_, err := b.e.Change(ctx, r.Call().ID, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
					return []record.Event{record.EffectResolved{Name: "e", Done: true, Result: []byte(`"it did"`)}}
				})
				if err != nil {
					t.Error(err)
				}
			}
			return end
		})
		id := b.create()
		b.ended(id, record.Completed, "")
		if c := b.load(id); string(c.Result) != `"it did"` || runs != 2 {
			t.Errorf("%s after %d runs", c.Result, runs)
		}
	})
}

// A subject belongs to one call: others wait while it is at it, and then get
// its result, or are told that it is done.
func TestASubjectIsDoneOnceOverAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, memory.New(memory.Options{}), once(Effect{Name: "pay", Subject: "1", Do: func(context.Context, string) ([]byte, error) {
			n.Add(1)
			time.Sleep(time.Minute)
			return []byte(`"paid"`), nil
		}}))
		first := b.create()
		synctest.Wait()
		second := b.create()
		bob := b.create(func(c *record.Call) { c.Owner.Subject = "bob" })
		time.Sleep(2 * time.Minute)
		for _, id := range []string{first, second} {
			if c := b.load(id); string(c.Result) != `"paid"` {
				t.Errorf("ann's: %s", c.Result)
			}
		}
		if c := b.load(bob); string(c.Result) != "refused: effect_done_by_another_owner (pay [1])" {
			t.Errorf("bob's: %s", c.Result)
		}
		if n.Load() != 1 {
			t.Errorf("done %d times", n.Load())
		}
	})
}

func TestEffectsThatMayNotStart(t *testing.T) {
	never := Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) { panic("it started") }}
	for name, c := range map[string]struct {
		try  func(b *bench, ctx context.Context, r *Run) error
		fits func(error) bool
	}{
		"while a question is pending": {func(_ *bench, ctx context.Context, r *Run) error {
			ask(r, "q")
			_, err := r.Once(ctx, never)
			return err
		}, func(err error) bool { return errors.Is(err, ErrPending) }},
		"after a cancel": {func(b *bench, ctx context.Context, r *Run) error {
			_, err := b.e.Change(ctx, r.id, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event { return []record.Event{record.CancelAsked{}} })
			if err != nil {
				return err
			}
			_, err = r.Once(context.WithoutCancel(ctx), never)
			return err
		}, func(err error) bool { return errors.Is(err, ErrCancelled) }},
		"when Authorize says no": {func(b *bench, ctx context.Context, r *Run) error {
			b.e.MayAct = func(context.Context, *Run, string) error { return store.ErrFull }
			_, err := r.Once(ctx, never)
			return err
		}, func(err error) bool { return errors.Is(err, store.ErrFull) }},
		"within itself": {func(_ *bench, ctx context.Context, r *Run) error {
			var inner error
			_, err := r.Once(ctx, Effect{Name: "e", Do: func(ctx context.Context, _ string) ([]byte, error) {
				_, inner = r.Once(ctx, never)
				return nil, nil
			}})
			return errors.Join(err, inner)
		}, func(err error) bool { return errors.Is(err, ErrNested) }},
		"when the handler's own time is up": {func(_ *bench, ctx context.Context, r *Run) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := r.Once(ctx, never)
			return err
		}, func(err error) bool { return errors.Is(err, context.Canceled) }},
		"after the handler has returned": {func(b *bench, ctx context.Context, r *Run) error {
			r.Close()
			_, err := r.Once(ctx, never)
			return err
		}, func(err error) bool { return errors.Is(err, ErrLost) }},
		"while another goroutine is at it, past a cancel": {func(b *bench, ctx context.Context, r *Run) error {
			_, leave, err := r.alone(ctx, "e\x00")
			if err != nil {
				return err
			}
			defer leave()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, err = r.Once(ctx, never)
			return err
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan error, 10)
				var b *bench
				ready := make(chan struct{})
				b = newBench(t, memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
					<-ready
					got <- c.try(b, ctx, r)
					return done
				})
				close(ready)
				b.create()
				if err := <-got; !c.fits(err) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// What an effect returned after its lease was lost is kept for whoever resolves
// the hold.
func TestLostRunsLeaveEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		goOn := make(chan struct{})
		b := newBench(t, s, once(Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) {
			<-goOn
			return []byte(`"it did"`), nil
		}}))
		id := b.create()
		synctest.Wait()
		s.noRenew.Store(true)
		time.Sleep(time.Minute)
		if c := b.load(id); c.State != record.Held {
			t.Fatalf("the call is %s", c.State)
		}
		close(goOn)
		c := b.load(id)
		last := c.Effects[0].Evidence[len(c.Effects[0].Evidence)-1]
		if c.State != record.Held || string(last.Result) != `"it did"` || last.Epoch != 1 {
			t.Errorf("the call is %s, the evidence %+v", c.State, last)
		}
	})
}

// A store that fails has perhaps applied the change all the same.
func TestWritesOfUnknownEnd(t *testing.T) {
	for name, c := range map[string]struct {
		event string
		after bool
		want  string
	}{
		"the end was written":     {"effect ended", true, `"r"`},
		"the end was not written": {"effect ended", false, `"r"`},
		"the start was written":   {"effect started", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := false
				s := faulty.New(memory.New(memory.Options{}), func(_ int, ch record.Change) faulty.Fault {
					if failed || len(ch.Audit) == 0 || ch.Audit[len(ch.Audit)-1].Event != c.event {
						return faulty.Fault{}
					}
					failed = true
					return faulty.Fault{Err: store.ErrFull, After: c.after}
				})
				var n atomic.Int64
				b := newBench(t, s, once(Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) {
					n.Add(1)
					return []byte(`"r"`), nil
				}}))
				id := b.create()
				time.Sleep(time.Minute)
				call := b.load(id)
				switch {
				case c.want != "" && (string(call.Result) != c.want || n.Load() != 1):
					t.Errorf("%s %s, done %d times", call.State, call.Result, n.Load())
				case c.want == "" && (call.State != record.Held || n.Load() != 0):
					t.Errorf("%s, done %d times", call.State, n.Load())
				}
			})
		})
	}
}

// The very first write of an inline call is applied, though the store said that
// it failed: trying again finds that out and does not spin.
func TestAnOpeningOfUnknownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.New(memory.New(memory.Options{}), func(n int, _ record.Change) faulty.Fault {
			if n == 1 {
				return faulty.Fault{Err: store.ErrFull, After: true}
			}
			return faulty.Fault{}
		})
		e := newEngine(s, func(ctx context.Context, r *Run) End {
			f := Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) { return []byte(`1`), nil }}
			if _, err := r.Once(ctx, f); !errors.Is(err, store.ErrFull) {
				t.Errorf("first: %v", err)
			}
			_, err := r.Once(ctx, f)
			if !refusedFor(err, record.ReasonInFlight) {
				t.Errorf("again: %v", err)
			}
			return done
		})
		run, err := e.Begin(context.Background(), opening(func(c *record.Call) { c.Task = false }), Kept)
		if err != nil {
			t.Fatal(err)
		}
		end := run.Do()
		c, err := run.Finish(context.Background(), end)
		if err != nil || c.State != record.Held {
			t.Errorf("%+v, %v", c, err)
		}
		<-e.work.Empty()
	})
}

// A drain leaves a repeatable effect that fails to the next process.
func TestDrainLeavesRepeatableEffectsToBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		var healthy atomic.Bool
		f := Effect{Name: "e", Subject: "1", Repeatable: true, Do: func(context.Context, string) ([]byte, error) {
			time.Sleep(16 * time.Second)
			if healthy.Load() {
				return []byte(`"r"`), nil
			}
			return nil, errors.New("down")
		}}
		a := newBench(t, mem, once(f))
		id := a.create()
		synctest.Wait()
		a.stop()
		if c := a.load(id); c.State != record.Ready || c.Effects[0].State != record.EffectStarted {
			t.Fatalf("handed back: %s, %s", c.State, c.Effects[0].State)
		}
		healthy.Store(true)
		b := newBench(t, mem, once(f))
		time.Sleep(time.Minute)
		b.ended(id, record.Completed, "")
	})
}
