package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

func TestAWorkerRunsACallToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(context.Context, *Run) End { return done })
		id := b.create()
		b.ended(id, record.Completed, "")
		if c := b.load(id); string(c.Result) != `"done"` || c.Runs != 1 {
			t.Errorf("%+v", c)
		}
		time.Sleep(2 * time.Hour) // retention
		synctest.Wait()
		if _, err := b.e.Store.Load(context.Background(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after its retention: %v", err)
		}
	})
}

func TestIdleMakesNoStoreCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		b := newBench(t, s, func(_ context.Context, r *Run) End {
			ask(r, "q")
			return End{Pending: true}
		}, func(o *Options) { o.Lease, o.Heartbeat = time.Second, 300*time.Millisecond })
		b.create()
		synctest.Wait()
		s.calls.Store(0)
		time.Sleep(14 * time.Minute)
		synctest.Wait()
		if n := s.calls.Load(); n != 0 {
			t.Errorf("%d calls of the store while all waits", n)
		}
	})
}

func TestHeartbeatKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{Shared: true}), func(ctx context.Context, r *Run) End {
			if _, err := r.Report(ctx, record.Progress{Message: "half", Done: 1, Total: 2}); err != nil {
				return End{Error: &record.Error{Message: err.Error()}}
			}
			time.Sleep(time.Hour)
			return done
		})
		id := b.create()
		time.Sleep(time.Minute)
		if c := b.load(id); c.State != record.Running || c.Epoch != 1 || c.Progress == nil || c.Progress.Message != "half" {
			t.Errorf("after a minute: %+v", c)
		}
		time.Sleep(time.Hour)
		b.ended(id, record.Completed, "")
		if n := b.audited(id, "stopped", ""); n != 0 {
			t.Errorf("its run died %d times", n)
		}
	})
}

// case S111
func TestALapsedLeaseIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shared: true})
		frozen := &flaky{Store: mem}
		frozen.noRenew.Store(true)
		a := newBench(t, frozen, func(ctx context.Context, _ *Run) End {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("its context ended with %v", context.Cause(ctx))
			}
			return End{Result: []byte(`"from the dead"`)}
		}, func(o *Options) { o.Node = "a" })
		id := a.create()
		synctest.Wait()
		a.e.mu.Lock()
		a.e.draining = true // so that only b takes it
		a.e.mu.Unlock()
		b := newBench(t, mem, func(context.Context, *Run) End { return done }, func(o *Options) { o.Node = "b" })
		time.Sleep(9 * time.Second)
		if c := b.load(id); c.Epoch != 1 {
			t.Fatalf("taken over while it was leased: %+v", c)
		}
		time.Sleep(20 * time.Second)
		b.ended(id, record.Completed, "")
		if c := b.load(id); c.Epoch != 2 || c.Kills != 1 || string(c.Result) != `"done"` {
			t.Errorf("%+v", c)
		}
		if b.audited(id, "refused", "")+b.audited(id, "refused", record.ReasonEnded) == 0 {
			t.Error("what the dead run came to is not on record")
		}
	})
}

// After a restart of its node a call is taken over at once.
// case S64, S65
func TestARestartTakesOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shared: true})
		dead := &flaky{Store: mem}
		a := newBench(t, dead, func(ctx context.Context, _ *Run) End { <-ctx.Done(); return done }, func(o *Options) { o.Drain = time.Second })
		id := a.create()
		synctest.Wait()
		dead.onCommit(func(record.Change) error { return store.ErrClosed }) // SIGKILL
		dead.noRenew.Store(true)
		b := newBench(t, mem, func(context.Context, *Run) End { return done })
		b.ended(id, record.Completed, "")
	})
}

// case S71
func TestDrainHandsBackWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		a := newBench(t, mem, func(ctx context.Context, _ *Run) End {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrDraining) {
				t.Errorf("told to stop with %v", context.Cause(ctx))
			}
			return End{Error: &record.Error{Message: "stopped"}}
		})
		id := a.create()
		synctest.Wait()
		a.stop()
		if c := a.load(id); c.State != record.Ready || c.Kills != 0 {
			t.Fatalf("handed back: %+v", c)
		}
		b := newBench(t, mem, func(context.Context, *Run) End { return done })
		b.ended(id, record.Completed, "")
	})
}

func TestDrainLeavesADeafHandlerBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, memory.New(memory.Options{}), func(context.Context, *Run) End { <-release; return done })
		id := b.create()
		synctest.Wait()
		start := time.Now()
		b.stop()
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("the drain took %v", took)
		}
		close(release)
		if c := b.load(id); c.State == record.Ended {
			t.Errorf("its end counted: %+v", c)
		}
	})
}

func TestAnAnswerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			q, pending := ask(r, "q")
			if pending {
				return End{Pending: true}
			}
			return End{Result: []byte(`"` + string(q.State) + `"`)}
		})
		for _, action := range []record.AnswerAction{record.Accept, record.Decline, record.Dismiss} {
			id := b.create()
			synctest.Wait()
			b.answer(id, "q", action)
			b.ended(id, record.Completed, "")
		}
		id := b.create() // nobody answers
		time.Sleep(16 * time.Minute)
		if c := b.load(id); string(c.Result) != `"expired"` {
			t.Errorf("%+v", c)
		}
	})
}

func TestACallExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(ctx context.Context, r *Run) End {
			if ctx.Err() == nil && r.Call().Action.Name == "deaf" {
				time.Sleep(2 * time.Hour)
				return done
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrDeadline) && !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("told to stop with %v", context.Cause(ctx))
			}
			return End{Error: &record.Error{Message: "stopped"}}
		})
		soon := func(c *record.Call) { c.Deadline, c.Retention = time.Now().Add(time.Hour), 24*time.Hour }
		id := b.create(soon)
		deaf := b.create(soon, func(c *record.Call) { c.Action.Name = "deaf" })
		time.Sleep(61 * time.Minute)
		b.ended(id, record.Expired, "expired")
		b.ended(deaf, record.Expired, "expired")
		time.Sleep(59*time.Minute + time.Second) // it comes back, too late
		b.ended(deaf, record.Expired, "expired")
		if b.audited(deaf, "refused", record.ReasonEnded) != 1 {
			t.Error("its late end is not on record")
		}
	})
}

// case S112
func TestACallThatKillsItsWorkersFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		s.noRenew.Store(true)
		b := newBench(t, s, func(ctx context.Context, _ *Run) End { <-ctx.Done(); return done })
		id := b.create()
		time.Sleep(5 * time.Minute)
		b.ended(id, record.Failed, "crash_loop")
		if c := b.load(id); c.Kills != 5 || c.Runs != 5 {
			t.Errorf("%d kills, %d runs", c.Kills, c.Runs)
		}
	})
}

func TestMaxRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			for i := range r.Call().Runs {
				ask(r, fmt.Sprintf("q%d", i))
			}
			return End{Pending: true}
		})
		id := b.create(func(c *record.Call) { c.MaxRuns = 2 })
		for i := range 2 {
			synctest.Wait()
			b.answer(id, fmt.Sprintf("q%d", i), record.Accept)
		}
		b.ended(id, record.Failed, "max_runs")
	})
}

func TestTenantsShareTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := map[string]int{}, map[string]int{}
		b := newBench(t, memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			tenant := r.Call().Owner.Tenant
			mu.Lock()
			running[tenant]++
			most[tenant] = max(most[tenant], running[tenant])
			most["all"] = max(most["all"], running["greedy"]+running["modest"])
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running[tenant]--
			mu.Unlock()
			return done
		}, func(o *Options) { o.Workers, o.PerTenant = 3, 2 })
		var all []string
		for i := range 12 {
			tenant := []string{"greedy", "modest"}[min(i/10, 1)]
			all = append(all, b.create(func(c *record.Call) { c.Owner.Tenant = tenant }))
		}
		time.Sleep(2500 * time.Millisecond)
		for _, id := range all[10:] {
			b.ended(id, record.Completed, "")
		}
		time.Sleep(time.Minute)
		for _, id := range all {
			b.ended(id, record.Completed, "")
		}
		if most["greedy"] != 2 || most["all"] > 3 {
			t.Errorf("at once: %v", most)
		}
	})
}

func TestACallThatMayNotBeRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{}), func(context.Context, *Run) End { return done }, func(o *Options) {
			o.MayRun = func(_ context.Context, c *record.Call) *record.Error {
				return &record.Error{Message: "no", Outcome: "not_authorised"}
			}
		})
		b.ended(b.create(), record.Failed, "not_authorised")
	})
}

// What becomes due while the loop asks the store what is due is not missed.
func TestNothingDueIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		asked := func(within time.Duration) handler {
			return func(_ context.Context, r *Run) End {
				q, pending, err := r.Ask(record.Question{Key: "q", Kind: record.KindForm, Within: within})
				if err != nil || !pending {
					return End{Result: []byte(`"` + string(q.State) + `"`)}
				}
				return End{Pending: true}
			}
		}
		b := newBench(t, s, asked(5*time.Minute))
		first := b.create()
		synctest.Wait()
		// While the loop looks, the first one is answered away and a call comes
		// that is due before anything the loop has seen.
		var second string
		var once sync.Once
		s.onDue(func() {
			once.Do(func() {
				c, err := b.e.Create(context.Background(), ann, opening(func(c *record.Call) { c.Deadline = time.Now().Add(8 * time.Minute) }))
				if err != nil {
					t.Error(err)
					return
				}
				second = c.ID
			})
		})
		b.e.nudge()
		synctest.Wait()
		s.onDue(nil)
		time.Sleep(9 * time.Minute)
		if c := b.load(second); c.State != record.Ended {
			t.Errorf("the second call: %s", c.State)
		}
		if c := b.load(first); c.State != record.Ended {
			t.Errorf("the first call: %s", c.State)
		}
	})
}

func TestAwaitEndsWithWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory.New(memory.Options{Shared: true}), func(_ context.Context, r *Run) End {
			if _, pending := ask(r, "q"); pending {
				return End{Pending: true}
			}
			return done
		})
		id := b.create()
		synctest.Wait()
		over := func(c *record.Call) bool { return c.State == record.Ended }
		await := func(ctx context.Context) *record.Call {
			c, err := b.e.Await(ctx, id, time.Minute, over)
			if err != nil {
				t.Error(err)
			}
			return c
		}
		if c := await(context.Background()); c.State != record.Waiting {
			t.Errorf("after its time: %s", c.State)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := b.e.Await(ctx, id, time.Minute, over); !errors.Is(err, context.Canceled) {
			t.Errorf("without a client: %v", err)
		}
		got := make(chan *record.Call, 2)
		go func() { got <- await(context.Background()) }()
		synctest.Wait()
		b.answer(id, "q", record.Accept)
		if c := <-got; c.State != record.Ended {
			t.Errorf("after the answer: %s", c.State)
		}
		other := b.create()
		go func() {
			c, _ := b.e.Await(context.Background(), other, time.Hour, over)
			got <- c
		}()
		synctest.Wait()
		start := time.Now()
		b.stop()
		if c := <-got; c.State != record.Waiting || time.Since(start) > time.Second {
			t.Errorf("while draining: %s after %v", c.State, time.Since(start))
		}
		if len(b.e.watches) != 0 || slices.Contains(b.e.saturated(), "acme") {
			t.Errorf("left behind: %v", b.e.watches)
		}
	})
}
