package tallystick_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// count makes an effect that only counts.
func count(n *atomic.Int64) func(context.Context, string) (int, error) {
	return func(context.Context, string) (int, error) { return int(n.Add(1)), nil }
}

// A no that has led to an effect is spent on it, as a yes would be: later runs
// get it, though the effect itself has changed the facts.
func TestANoIsSpentToo(t *testing.T) {
	var version, closed, extended atomic.Int64
	facts := int64(-1)
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("renew", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			err := call.Confirm(tallystick.Question{Key: "renew", Message: "Renew it, or else close it?", Facts: version.Load()})
			switch {
			case errors.Is(err, tallystick.ErrDeclined):
				if err := call.Facts("renew", &facts); err != nil {
					return "", err
				}
				if _, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "close", AfterNo: true}, func(context.Context, string) (int, error) {
					version.Add(1)
					return int(closed.Add(1)), nil
				}); err != nil {
					return "", err
				}
				return "closed", confirm(call, "mail", tallystick.Who{})
			case err != nil:
				return "", err
			}
			_, err = tallystick.Once(ctx, call, tallystick.Effect{Name: "extend"}, count(&extended))
			return "extended", err
		})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("renew", nil)
	r = ann.retry("renew", nil, r.state(), map[string]any{"renew": map[string]any{"action": "decline"}})
	r = ann.retry("renew", nil, r.state(), map[string]any{"mail": yes})
	if r.text() != "closed" || closed.Load() != 1 || extended.Load() != 0 || facts != 0 {
		t.Errorf("closed %d times, extended %d times, for facts %d: %s", closed.Load(), extended.Load(), facts, r.raw)
	}
}

// What has happened is told as it happened, whatever a later run was told first.
func TestANoHidesNoEffectThatIsDone(t *testing.T) {
	var paid atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if paid.Load() > 0 { // it looks like a duplicate now
				if err := confirm(call, "again", tallystick.Who{}); errors.Is(err, tallystick.ErrPending) {
					return "", err
				}
			}
			n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: "1"}, count(&paid))
			if err != nil {
				return "", err
			}
			return fmt.Sprint("receipt ", n), confirm(call, "mail", tallystick.Who{})
		})
	}})
	ann := d.as("ann/acme", capsForm)
	r := ann.call("pay", nil)
	r = ann.retry("pay", nil, r.state(), map[string]any{"mail": yes})
	r = ann.retry("pay", nil, r.state(), map[string]any{"again": map[string]any{"action": "decline"}})
	if paid.Load() != 1 || r.text() != "receipt 1" {
		t.Errorf("paid %d times: %s", paid.Load(), r.raw)
	}
}

// What another goroutine of the handler asks, or is told, while an effect waits
// for its permission counts for its start.
func TestTheStartOfAnEffectSeesWhatWasAskedMeanwhile(t *testing.T) {
	for _, answered := range []bool{false, true} {
		var effects atomic.Int64
		var racing atomic.Bool
		acting, asked := make(chan struct{}), make(chan struct{})
		var once sync.Once
		authorize := func(_ context.Context, a tallystick.Access) error {
			if a.Verb == tallystick.Act {
				once.Do(func() { close(acting) })
				<-asked
			}
			return nil
		}
		d := newDesk(t, setup{opts: tallystick.Options{Authorize: authorize}, tools: func(d *desk) {
			d.tool("both", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
				if answered && !racing.Load() {
					return "", confirm(call, "sure", tallystick.Who{})
				}
				var wg sync.WaitGroup
				var e1, e2 error
				wg.Go(func() { _, e1 = tallystick.Once(ctx, call, tallystick.Effect{Name: "pay"}, count(&effects)) })
				wg.Go(func() {
					<-acting
					e2 = confirm(call, "sure", tallystick.Who{})
					close(asked)
				})
				wg.Wait()
				return "", errors.Join(e1, e2)
			})
		}})
		ann := d.as("ann/acme", capsForm)
		r := ann.call("both", nil)
		if answered {
			racing.Store(true)
			r = ann.retry("both", nil, r.state(), map[string]any{"sure": map[string]any{"action": "decline"}})
		}
		if effects.Load() != 0 || answered != (r.outcome() == "declined") {
			t.Errorf("answered %v: %d effects: %s", answered, effects.Load(), r.raw)
		}
	}
}

// A goroutine that a handler leaves behind cannot use its call, though the run
// goes on with the handler from the top, as for a client that is asked live.
func TestACallIsOfNoUseAfterItsHandler(t *testing.T) {
	var effects, runs atomic.Int64
	left := make(chan error, 1)
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("pay", nil, func(ctx context.Context, call *tallystick.Call) (string, error) {
			if runs.Add(1) == 1 {
				go func() {
					for {
						_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "pay"}, count(&effects))
						if !errors.Is(err, tallystick.ErrPending) {
							call.Report("left", 1, 1)
							left <- errors.Join(err, confirm(call, "other", tallystick.Who{}))
							return
						}
						time.Sleep(time.Millisecond)
					}
				}()
			} else if err := <-left; err == nil {
				t.Error("it could be used")
			}
			return "paid", confirm(call, "sure", tallystick.Who{})
		})
	}})
	cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "decline"}, nil
	}})
	if _, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "pay"}); err != nil {
		t.Error(err)
	}
	if effects.Load() != 0 || runs.Load() != 2 {
		t.Errorf("%d effects, %d runs", effects.Load(), runs.Load())
	}
}
