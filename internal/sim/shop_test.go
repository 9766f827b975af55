package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

const orders = 3

// A charge is what arrived at the far side.
type charge struct {
	at                                time.Time
	call, tenant, effect, subject, by string
	key                               string
	facts, saw                        int // what the yes was given for, and what its run saw
	honours                           bool
}

func (c charge) what() string { return c.tenant + ": " + c.effect + " [" + c.subject + "]" }

func (w *world) order(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.orders[id]
}

func (w *world) change(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders[id]++
	w.sayLocked("%s changes", id)
}

// book is what the far side does with a charge: once for one key, if it honours
// keys.
func (w *world) book(c charge) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, ok := w.byKey[c.key]; ok && c.honours {
		w.sayLocked("the far side knows the key of %s by %s", c.what(), name(c.call))
		return n
	}
	c.at = time.Now()
	w.ledger = append(w.ledger, c)
	w.byKey[c.key] = len(w.ledger)
	w.sayLocked("CHARGED %s by %s", c.what(), name(c.call))
	return len(w.ledger)
}

func (w *world) happened(tenant, effect, subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.ledger {
		if c.tenant == tenant && c.effect == effect && c.subject == subject {
			return true
		}
	}
	return false
}

// sent reports whether a charge with that key was ever sent, and notes that it is.
func (w *world) sent(key string, now bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.charged[key]
	w.charged[key] = before || now
	return before
}

// pay sends a charge to the far side, which may be slow, refuse, do nothing and
// say nothing, or do it and say nothing. A charge that was sent arrives, whatever
// becomes of the sender.
func (r *replica) pay(ctx context.Context, c charge) (int, error) {
	w := r.w
	what := "pay " + name(c.call) + c.effect
	if err := r.move(ctx, what); err != nil {
		return 0, err
	}
	chance := w.rand(what)
	mood, late := 1.0, time.Duration(0)
	if !w.calmNow() {
		mood = chance.Float64()
		if w.weather.slow && chance.IntN(6) == 0 {
			late = time.Duration(chance.Int64N(int64(farthest / 2)))
		}
	}
	arrived := make(chan int, 1)
	if mood < w.weather.moody/3 && !w.sent(c.key, false) { // of earlier attempts too
		return 0, tallystick.NotDone(errors.New("closed for lunch"))
	}
	if mood >= 2*w.weather.moody/3 {
		w.sent(c.key, true)
		time.AfterFunc(late+w.lagOf(chance), func() { arrived <- w.book(c) })
	}
	if mood < w.weather.moody {
		if err := rest(ctx, late+w.lagOf(chance)); err != nil {
			return 0, err
		}
		return 0, errors.New("no reply")
	}
	select {
	case n := <-arrived:
		return n, r.move(context.WithoutCancel(ctx), what+" paid")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A stall is a tool that charges: who has to approve, and how it is run.
type stall struct {
	opts    tallystick.ToolOptions
	who     tallystick.Who
	honours bool
	steps   []string
}

var stalls = map[string]stall{
	"pay":    {steps: []string{"pay"}},
	"gift":   {honours: true, steps: []string{"gift"}},
	"wire":   {who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true, Count: 2}, steps: []string{"wire"}},
	"batch":  {opts: tallystick.ToolOptions{Task: tallystick.TaskRequired}, steps: []string{"pick", "pack", "mail"}},
	"ship":   {opts: tallystick.ToolOptions{Task: tallystick.TaskRequired, AskFirst: true}, honours: true, steps: []string{"ship"}},
	"export": {opts: tallystick.ToolOptions{Task: tallystick.TaskRequired}, who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, steps: []string{"export"}},
	"parcel": {opts: tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 5 * time.Second}, steps: []string{"wrap", "post"}},
	"hasty":  {opts: tallystick.ToolOptions{Timeout: time.Second}, steps: []string{"hasty"}},
}

type orderArgs struct {
	Order string `json:"order"`
}

func (r *replica) addTools(s *tallystick.Server) {
	for name, st := range stalls {
		tallystick.AddTool(s, &mcp.Tool{Name: name}, &st.opts, func(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, any, error) {
			saw := r.w.order(in.Order)
			version := saw
			if err := call.Confirm(tallystick.Question{Key: "go", Message: name + " " + in.Order + " " + call.ID(), Facts: version, Who: st.who}); err != nil {
				return nil, nil, err
			}
			if err := call.Facts("go", &version); err != nil { // a yes that is spent was given for those of then
				return nil, nil, err
			}
			var receipts []int
			for i, step := range st.steps {
				call.Report(step, float64(i), float64(len(st.steps)))
				c := charge{call: call.ID(), tenant: call.Owner().Tenant, by: call.Owner().Subject, effect: step, subject: in.Order, facts: version, saw: saw, honours: st.honours}
				n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: step, Subject: in.Order, Repeatable: st.honours}, func(ctx context.Context, key string) (int, error) {
					c.key = key
					return r.pay(ctx, c)
				})
				if err != nil {
					return nil, nil, err
				}
				receipts = append(receipts, n)
			}
			return nil, map[string]any{"call": call.ID(), "receipts": receipts}, nil
		})
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
		func(_ context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, any, error) {
			version := r.w.order(in.Order)
			return nil, map[string]any{"saw": in.Order}, call.Confirm(tallystick.Question{Key: "go", Message: "look " + in.Order, Facts: version})
		})
	tallystick.AddTool(s, &mcp.Tool{Name: "form"}, nil, func(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, any, error) {
		size, one := tallystick.Ask[sizeForm](call, tallystick.Question{Key: "size", Message: "size " + call.ID()})
		color, two := tallystick.Ask[colorForm](call, tallystick.Question{Key: "color", Message: "color " + call.ID(), Facts: r.w.order(in.Order)})
		if err := errors.Join(one, two); err != nil {
			return nil, nil, err
		}
		return nil, map[string]any{"call": call.ID(), "made": fmt.Sprint(size.Size, color.Color)}, nil
	})
}

type sizeForm struct {
	Size int `json:"size" jsonschema:"from 1 to 9"`
}

type colorForm struct {
	Color string `json:"color"`
}
