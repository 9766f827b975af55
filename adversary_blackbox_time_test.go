package tallystick_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/store/memory"
	"github.com/tallystick/tallystick/store/sqlite"
)

// The same crowd while the store's clock jumps to and fro.
func TestACrowdUnderAJumpingClock(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	c.Jumps = true
	cl := &clock{}
	path := filepath.Join(t.TempDir(), "bazaar.db")
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: path, Now: cl.Now})
	if err != nil {
		t.Fatal(err)
	}
	stop := c.serve(db, plainStore, path)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	jumps, ahead := 0, time.Duration(0)
	wg.Go(func() {
		r := rand.New(rand.NewPCG(seed, 4))
		for ; ctx.Err() == nil; jumps++ {
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			back := min(cl.skew, time.Duration(r.IntN(1200))*time.Second)
			if r.IntN(2) == 0 && cl.skew < 5*time.Hour {
				cl.Advance(time.Duration(r.IntN(1500)) * time.Second)
			} else {
				cl.Advance(-back)
			}
			ahead = max(ahead, cl.skew)
		}
	})
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	cancel()
	wg.Wait()
	t.Logf("%d jumps", jumps)
	// A run that lost its lease while the clock was ahead leaves one that lasts
	// until the clock is there again; and a clock that is set wakes nobody.
	cl.Advance(ahead - cl.skew + 2*time.Second)
	c.desk.as("ann/acme", capsTasks).call("export", map[string]any{"orderId": "kick"})
	c.check(db)
	stop()
}

// An answer at the very instant of expiry, and just beside it, either counts or
// has come too late, and nothing between.
func TestAnAnswerAtTheInstantOfExpiry(t *testing.T) {
	for _, by := range []time.Duration{-1, 0, 1} {
		for _, way := range []string{"round", "task", "decide"} {
			t.Run(fmt.Sprint(way, int(by)), func(t *testing.T) {
				var now atomic.Int64
				now.Store(time.Now().UnixNano())
				charges := 0
				st := memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, now.Load()) }})
				opts := map[string]*tallystick.ToolOptions{"task": {Task: tallystick.TaskRequired}}[way]
				var id string
				d := newDesk(t, setup{opts: tallystick.Options{Store: st}, tools: func(d *desk) {
					d.tool("pay", opts, func(ctx context.Context, call *tallystick.Call) (string, error) {
						if way != "task" {
							id = call.ID()
						}
						if err := confirm(call, "go", tallystick.Who{}); err != nil {
							return "", err
						}
						_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "charge"}, func(context.Context, string) (int, error) { charges++; return 0, nil })
						return "paid", err
					})
				}})
				ann := d.as("ann/acme", capsTasks)
				r := ann.call("pay", nil)
				state := r.state()
				if way == "task" {
					id = r.result["taskId"].(string)
					ann.await(id, status("input_required"))
				}
				call, err := st.Load(context.Background(), id)
				if err != nil {
					t.Fatal(err)
				}
				now.Store(call.Questions[0].Expires.Add(by).UnixNano())
				paid := false
				switch way {
				case "round":
					r = ann.retry("pay", nil, state, map[string]any{"go": yes})
					paid = !r.isError() && r.typ() == "complete"
					if !paid && r.outcome() != "expired" {
						t.Errorf("neither: %s", r.raw)
					}
				case "task":
					ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
					r = ann.await(id, status("completed"))
					paid = !strings.Contains(r.raw, `"isError":true`)
				case "decide":
					err := d.srv.Decide(context.Background(), tallystick.Identity{Issuer: "test", Subject: "ann", Tenant: "acme"}, tallystick.Decision{CallID: id, Key: "go", Accept: true})
					r = ann.retry("pay", nil, state, nil)
					paid = !r.isError() && r.typ() == "complete"
					if paid != (err == nil) {
						t.Errorf("Decide: %v; then %s", err, r.raw)
					}
				}
				if paid != (by < 0) || paid != (charges == 1) {
					t.Errorf("%v from expiry: paid %v, %d charges: %s", by, paid, charges, r.raw)
				}
			})
		}
	}
}

// The retention passes while a task is polled: it is there, and then it is not.
func TestRetentionPassesWhilePolling(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(context.Context, *tallystick.Call) (string, error) { return "done", nil })
	}})
	ann := d.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	ann.await(id, status("completed"))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			gone := false
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := ann.try(context.Background(), "tasks/get", id, nil)
				switch {
				case err != nil || r.status >= 500:
					t.Errorf("%v %s", err, r.raw)
				case r.result["status"] == "completed" && !gone:
				case r.err != nil && r.err.Code == -32602:
					gone = true
				default:
					t.Errorf("gone %v: %s", gone, r.raw)
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	d.clock.Advance(24*time.Hour + time.Second)
	bob := d.as("bob/acme", capsTasks)
	bob.call("job", nil) // the test's clock moves without waking anybody
	ann.await(id, func(r reply) bool { return r.err != nil })
	waitFor(t, func() bool {
		_, err := d.store.Load(context.Background(), id)
		return err != nil
	})
	close(stop)
	wg.Wait()
}
