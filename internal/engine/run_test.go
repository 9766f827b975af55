package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

var inline = func(c *record.Call) { c.Task = false }

// begin makes an inline run.
func begin(t *testing.T, e *Engine, k Keeping) *Run {
	t.Helper()
	o := opening(inline)
	o.Key = record.KeyMark(ann.Principal, "t", o.Call.ID) // so that its client can come back
	r, err := e.Begin(context.Background(), o, k)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// case S54, S75
func TestTimeoutIsRunningTimeOverAllRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
			if _, pending := ask(r, "q"); pending {
				time.Sleep(40 * time.Second)
				return End{Pending: true}
			}
			select {
			case <-ctx.Done():
				return End{Error: &record.Error{Message: context.Cause(ctx).Error(), Outcome: "told"}}
			case <-time.After(30 * time.Second):
				return done
			}
		}, func(o *Options) { o.Bounds = func(*record.Call) (time.Duration, int) { return time.Minute, 1 } })
		id := b.create()
		time.Sleep(10 * time.Minute) // somebody thinks
		synctest.Wait()
		b.answer(id, "q", record.Accept)
		time.Sleep(time.Minute)
		c := b.load(id)
		if c.Error == nil || c.Error.Message != ErrTimeout.Error() || c.Ran != time.Minute {
			t.Errorf("%+v, %+v after %v", c.State, c.Error, c.Ran)
		}
	})
}

func TestHandlersThatDoNotReturn(t *testing.T) {
	for name, c := range map[string]struct {
		h    handler
		word string
	}{
		"deaf":   {func(context.Context, *Run) End { time.Sleep(time.Hour); return done }, "timeout"},
		"exits":  {func(context.Context, *Run) End { runtime.Goexit(); return done }, "panic"},
		"panics": {func(context.Context, *Run) End { panic("boom") }, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, memory.New(memory.Options{}), c.h, func(o *Options) {
					o.Bounds = func(*record.Call) (time.Duration, int) { return time.Minute, 1 }
				})
				id := b.create()
				time.Sleep(2 * time.Minute)
				b.ended(id, record.Failed, c.word)
				time.Sleep(time.Hour)
			})
		})
	}
}

// A lost connection ends what has had no effect, and nothing else.
// case S72
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var act bool
		began := make(chan struct{}, 1)
		e := newEngine(memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
			if act {
				_, err := r.Once(ctx, Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) {
					began <- struct{}{}
					time.Sleep(time.Minute)
					return []byte(`1`), nil
				}})
				if err != nil {
					return End{Error: &record.Error{Message: err.Error()}}
				}
				return done
			}
			began <- struct{}{}
			<-ctx.Done()
			_, err := r.Once(context.WithoutCancel(ctx), Effect{Name: "e", Do: func(context.Context, string) ([]byte, error) { panic("it started") }})
			if !errors.Is(err, ErrLeft) {
				t.Errorf("an effect after the client left: %v", err)
			}
			r.AskFirst = true
			if _, err := r.Report(ctx, record.Progress{Done: 1}); !errors.Is(err, ErrLeft) {
				t.Errorf("a task that nobody hears of: %v", err)
			}
			return End{Pending: true}
		})
		r := begin(t, e, Kept)
		if err := r.Keep(context.Background()); err != nil {
			t.Fatal(err)
		}
		go func() { <-began; r.Leave() }()
		r.Do()
		if err := r.Release(context.Background(), record.WhyLeft); err != nil || !r.HasLeft() {
			t.Fatalf("released: %v", err)
		}
		if c, err := e.Load(context.Background(), r.id); err != nil || c.State != record.Waiting || c.Round != 0 {
			t.Fatalf("%+v, %v", c, err)
		}

		act = true // the client comes back
		r, err := e.Retry(context.Background(), r.id, ann, nothing, record.Retry{})
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-began; r.Leave() }()
		end := r.Do()
		if c, err := r.Finish(context.Background(), end); err != nil || c.Outcome != record.Completed || r.HasLeft() {
			t.Fatalf("%+v, %v", c, err)
		}
		<-e.work.Empty()
	})
}

func nothing(*record.Call, time.Time) []record.Event { return nil }

func TestRunsThatHaveEndedChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(memory.New(memory.Options{}), func(context.Context, *Run) End { return done })
		r := begin(t, e, Kept)
		if _, err := r.Finish(context.Background(), r.Do()); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"put":      second(r.Put(context.Background(), &record.Paused{})),
			"finish":   second(r.Finish(context.Background(), done)),
			"release":  r.Release(context.Background(), record.WhyHandback),
			"announce": func() error { r.AskFirst = true; return r.Announce(context.Background()) }(),
			"settle":   r.Settle(context.Background(), done),
		} {
			if err == nil {
				t.Errorf("%s went through", what)
			}
		}
		if end := r.Do(); end.Error == nil || end.Error.Outcome != "stopped" {
			t.Errorf("its handler ran: %+v", end)
		}
		if _, err := e.Retry(context.Background(), r.id, ann, nothing, record.Retry{}); !refusedFor(err, record.ReasonEnded) {
			t.Errorf("a retry: %v", err)
		}
		<-e.work.Empty()
	})
}

func second[T any](_ T, err error) error { return err }

func TestCarriedRunsWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		s.onCommit(func(record.Change) error { t.Error("a write"); return nil })
		e := newEngine(s, func(ctx context.Context, r *Run) End {
			if _, err := r.Once(ctx, Effect{Name: "e"}); !errors.Is(err, ErrCarried) {
				t.Errorf("an effect: %v", err)
			}
			if _, err := r.Report(ctx, record.Progress{Done: 1}); err != nil {
				t.Error(err)
			}
			if _, pending := ask(r, "q"); pending {
				return End{Pending: true}
			}
			return done
		})
		r := begin(t, e, Carried)
		if !r.Carried() || r.IsKept() || !r.Do().Pending || len(r.Asks()) != 1 {
			t.Fatal("it does not ask")
		}
		c, err := r.Put(context.Background(), &record.Paused{})
		if err != nil {
			t.Fatal(err)
		}
		answers := func(*record.Call, time.Time) []record.Event {
			return []record.Event{record.Responded{WireKey: "q", Action: record.Accept}}
		}
		for range 2 { // any number of times
			r, _, err = e.Carry(context.Background(), c, ann, answers, record.Retry{N: 1, Answers: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if end := r.Do(); string(end.Result) != `"done"` {
				t.Errorf("%+v", end)
			}
			if err := r.Release(context.Background(), record.WhyLeft); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := e.Carry(context.Background(), c, ann, answers, record.Retry{N: 7}); !refusedFor(err, record.ReasonRoundAhead) {
			t.Errorf("another round: %v", err)
		}
		<-e.work.Empty()
	})
}

func TestAnswersBeforeTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			ask(r, "q")
			if err := r.Answer("other", record.Responded{}, ann); err == nil {
				t.Error("an answer to nothing")
			}
			if err := r.Answer("q", record.Responded{WireKey: "q", Action: record.Accept}, ann); err != nil || r.Pending() {
				t.Errorf("%v, pending %t", err, r.Pending())
			}
			return done
		})
		r := begin(t, e, Carried)
		if end := r.Do(); string(end.Result) != `"done"` {
			t.Errorf("%+v", end)
		}
	})
}

func TestQuestionsThatMayNotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			ask(r, "q")
			if _, _, err := r.Ask(record.Question{Key: "q"}); !errors.Is(err, ErrAskedTwice) {
				t.Errorf("twice: %v", err)
			}
			if _, _, err := r.Ask(record.Question{Key: "p"}); err == nil {
				t.Error("more than may be open")
			}
			return End{Pending: true}
		}, func(o *Options) { o.Bounds = func(*record.Call) (time.Duration, int) { return 0, 1 } })
		r := begin(t, e, Kept)
		if r.Do(); r.Fault() == nil || len(r.Asks()) != 1 {
			t.Errorf("%v, %v", r.Fault(), r.Asks())
		}
	})
}

// A question that changes at every run ends the call, which names it.
func TestAnUnstableQuestionEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			_, _, err := r.Ask(record.Question{Key: "q", Kind: record.KindForm, Message: time.Now().String(), Within: time.Hour})
			if err != nil {
				return End{Error: &record.Error{Message: err.Error()}}
			}
			return End{Pending: true}
		})
		id := b.create()
		for range 4 {
			time.Sleep(time.Second)
			synctest.Wait()
			if open := b.load(id).Open(); len(open) == 1 {
				b.answer(id, open[0].WireKey, record.Accept)
			}
		}
		b.ended(id, record.Failed, "unstable_question")
	})
}

func TestAskFirstAnnouncesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
			for i := range 3 {
				if _, err := r.Report(ctx, record.Progress{Done: float64(3 - i)}); err != nil {
					t.Error(err)
				}
			}
			return done
		})
		r := begin(t, e, Kept)
		r.AskFirst = true
		end := r.Do()
		<-r.Announced()
		r.Leave() // a task goes on without its client
		if err := r.Settle(context.Background(), end); err != nil || r.HasLeft() {
			t.Error(err)
		}
		c, err := e.Load(context.Background(), r.id)
		if err != nil || !c.Task || c.Outcome != record.Completed || r.Progress().Done != 3 {
			t.Errorf("%+v, %v, %+v", c, err, r.Progress())
		}
		<-e.work.Empty()
	})
}

// A cancel by another process reaches the handler by its heartbeat.
func TestACancelElsewhereReachesTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shared: true})
		a := newBench(t, mem, func(ctx context.Context, _ *Run) End {
			<-ctx.Done()
			return End{Error: &record.Error{Message: context.Cause(ctx).Error()}}
		}, func(o *Options) { o.Node = "a" })
		b := newEngine(mem, nil, func(o *Options) { o.Node = "b" })
		id := a.create()
		synctest.Wait()
		_, err := b.Change(context.Background(), id, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event { return []record.Event{record.CancelAsked{}} })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		a.ended(id, record.Cancelled, "")
	})
}

// A call that is ready and cannot be read is looked at again, though nothing
// else happens.
func TestAReadyCallThatCannotBeReadIsTriedAgain(t *testing.T) {
	for fails := range int64(4) {
		synctest.Test(t, func(t *testing.T) {
			s := &flaky{Store: memory.New(memory.Options{})}
			s.noLoads.Store(fails)
			b := newBench(t, s, func(context.Context, *Run) End { return done })
			defer b.stop()
			id := b.create()
			time.Sleep(time.Minute)
			s.noLoads.Store(0)
			b.ended(id, record.Completed, "")
		})
	}
}

// A store that cannot be written to is not hammered, and panics of callbacks
// are survived.
func TestTheLoopSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		var full, boom atomic.Bool
		var tries atomic.Int64
		full.Store(true)
		b := newBench(t, s, func(context.Context, *Run) End { return done }, func(o *Options) {
			o.MayRun = func(context.Context, *record.Call) *record.Error {
				if boom.Load() {
					panic("boom")
				}
				return nil
			}
		})
		id := b.create()
		b.ended(id, record.Completed, "")
		s.onCommit(func(record.Change) error {
			if tries.Add(1); full.Load() {
				return store.ErrFull
			}
			return nil
		})
		time.Sleep(time.Hour + 10*time.Second) // the retention is over, and that cannot be stored
		synctest.Wait()
		if n := tries.Load(); n < 5 || n > 15 {
			t.Errorf("%d tries in 10 s", n)
		}
		full.Store(false)
		boom.Store(true)
		time.Sleep(2 * time.Second)
		id = b.create()
		time.Sleep(10 * time.Second)
		if c := b.load(id); c.State != record.Ready {
			t.Errorf("%s", c.State)
		}
		boom.Store(false)
		time.Sleep(2 * time.Second)
		b.ended(id, record.Completed, "")
		b.e.Go(func() { panic("boom") })
		b.e.Refuse(context.Background(), id, ann, record.ReasonEnded, "")
		b.e.Refuse(context.Background(), "nope", ann, record.ReasonEnded, "")
		if b.audited(id, "refused", record.ReasonEnded) != 1 {
			t.Error("a refusal is not on record")
		}
	})
}
