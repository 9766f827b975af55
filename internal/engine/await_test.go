package engine

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// Who begins to wait for a call while a change of it is being told may look at
// a run that has not heard yet: then the change is still to be told to the
// watch. Otherwise somebody who sends again what the connection was lost of
// waits in vain, and is told that the call is being worked on.
func TestWhoBeginsToWaitWhileAChangeIsToldHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		e := newEngine(memory.New(memory.Options{}), nil)
		r, err := e.Begin(ctx, opening(), Kept)
		if err != nil {
			t.Fatal(err)
		}
		// One more run of the call that is told before r is, so that the telling
		// can be held up.
		other := e.newRun(r.Call(), true)
		e.hold(other)
		defer other.Close()
		if err := r.Keep(ctx); err != nil {
			t.Fatal(err)
		}
		other.mu.Lock()
		finished := make(chan error, 1)
		go func() {
			_, err := r.Finish(ctx, done)
			finished <- err
		}()
		for !standsIn("engine.(*Run).see(") { // it is committed, and being told
			runtime.Gosched()
		}
		looked, waited := e.waitForEnd(t, r.id)
		<-looked
		other.mu.Unlock()
		if err := <-finished; err != nil {
			t.Error(err)
		}
		if c := <-waited; c.State != record.Ended {
			t.Errorf("it waited its whole time, and was told that the call is %s", c.State)
		}
	})
}

// A change that comes between the commit that makes a run and its registration
// is not told to the run, which looks once more. Who has looked at the run before
// that is told of what it finds.
func TestWhoLooksAtARunBeforeItHasCaughtUpHearsOfIt(t *testing.T) {
	for name, start := range map[string]func(ctx context.Context, e *Engine, id string) (*Run, error){
		"made": func(ctx context.Context, e *Engine, id string) (*Run, error) {
			r, err := e.Begin(ctx, opening(func(c *record.Call) { c.ID = id }), Kept)
			if err != nil {
				return nil, err
			}
			return r, r.Keep(ctx)
		},
		"taken": func(ctx context.Context, e *Engine, id string) (*Run, error) {
			if _, err := e.Create(ctx, ann, opening(func(c *record.Call) { c.ID = id })); err != nil {
				return nil, err
			}
			return e.claim(ctx, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				s := &lookedAt{Store: memory.New(memory.Options{})}
				var e *Engine
				e = newEngine(s, nil, func(o *Options) {
					o.Committed = func(_ *record.Call, c record.Change) {
						if c.After == nil || c.After.State != record.Running {
							return
						}
						leave()
						_, err := e.Change(context.Background(), c.ID, ann, c.After.Epoch, func(*record.Call, time.Time) []record.Event {
							return []record.Event{record.Finished{Result: done.Result}}
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
				const id = "call"
				var waited <-chan *record.Call
				s.onLoad = sync.OnceFunc(func() {
					var looked <-chan struct{}
					looked, waited = e.waitForEnd(t, id)
					<-looked
				})
				s.when = func() bool { return e.Live(id) != nil }
				r, err := start(ctx, e, id)
				if err != nil {
					t.Fatal(err)
				}
				r.Close()
				if waited == nil {
					t.Fatal("the run did not look once more")
				}
				if c := <-waited; c.State != record.Ended {
					t.Errorf("it waited its whole time, and was told that the call is %s", c.State)
				}
			})
		})
	}
}

// A call that comes into being as it begins to wait is answered before its run
// knows that it is made: what the run then says of the call tells the answer.
func TestAnAnswerToACallJustMadeIsKnownToItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t}
		b.e = newEngine(memory.New(memory.Options{}), func(_ context.Context, r *Run) End {
			ask(r, "q")
			return End{Pending: true}
		}, func(o *Options) {
			o.Committed = func(before *record.Call, c record.Change) {
				if before == nil {
					b.answer(c.ID, c.After.Questions[0].WireKey, record.Accept)
				}
			}
		})
		r := begin(t, b.e, Kept)
		r.Do()
		c, err := r.Put(context.Background(), &record.Paused{})
		if err != nil || c.Questions[0].State != record.Answered {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// waitForEnd awaits a call's end, and says when it has looked for the first time.
func (e *Engine) waitForEnd(t *testing.T, id string) (<-chan struct{}, <-chan *record.Call) {
	looked := make(chan struct{})
	waited := make(chan *record.Call, 1)
	first := sync.OnceFunc(func() { close(looked) })
	go func() {
		c, err := e.Await(context.Background(), id, 2*time.Second, func(c *record.Call) bool {
			first()
			return c.State == record.Ended
		})
		if err != nil {
			t.Error(err)
		}
		waited <- c
	}()
	return looked, waited
}

// lookedAt is a store that says when a call is loaded, if something is so.
type lookedAt struct {
	store.Store
	when   func() bool
	onLoad func()
}

func (s *lookedAt) Load(ctx context.Context, id string) (*record.Call, error) {
	if s.when() {
		s.onLoad()
	}
	return s.Store.Load(ctx, id)
}

// standsIn reports whether some goroutine is in that function.
func standsIn(function string) bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), function)
}
