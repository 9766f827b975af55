package history

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// far is the far side, which remembers what was done there.
type far struct {
	mu      sync.Mutex
	deeds   []deed
	version int               // of what refunds rest on
	moods   map[string][]mood // by order: how the next attempts go
	gate    chan struct{}     // of the tools that wait; nil: they need not
	wrong   []string          // what must not be
}

// A deed is something that was done there.
type deed struct {
	effect, order, key string
	repeatable         bool
}

// A mood is how the far side takes an attempt.
type mood int

const (
	well    mood = iota
	lostAck      // it does it, and its answer is lost
	lostAsk      // it does not do it, and its answer is lost
	refuses      // it does not do it, and says so
	slow         // it does it, and takes half a minute, whatever its caller wants
)

type args struct {
	Order string `json:"order"`
}

// do is an attempt.
func (w *World) do(ctx context.Context, call *tallystick.Call, e tallystick.Effect, order, key string) (string, error) {
	// Before anything is done, its start is on record.
	if c, err := w.durable().Load(context.WithoutCancel(ctx), call.ID()); err == nil {
		if f := c.Effect(e.Name, e.Subject); f == nil || f.State != record.EffectStarted || f.Key != key {
			w.far.blame(e.Name + " of " + order + " was begun before its start was on record")
		}
	}
	w.far.mu.Lock()
	m := well
	if left := w.far.moods[order]; len(left) > 0 {
		m, w.far.moods[order] = left[0], left[1:]
	}
	if m != lostAsk && m != refuses {
		w.far.deeds = append(w.far.deeds, deed{e.Name, order, key, e.Repeatable})
	}
	w.far.mu.Unlock()
	switch m {
	case slow:
		time.Sleep(30 * time.Second)
	case lostAck, lostAsk:
		return "", errors.New("no answer")
	case refuses:
		return "", tallystick.NotDone(errors.New("not now"))
	}
	return "did " + order, nil
}

func (f *far) blame(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, what)
}

// did is how often an order was done. The same key again is the same deed to a
// far side that honours it.
func (f *far) did(order string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	once := map[deed]bool{}
	n := 0
	for _, d := range f.deeds {
		if d.order == order && !(d.repeatable && once[d]) {
			once[d] = true
			n++
		}
	}
	return n
}

// expect says how the next attempts of an order go.
func (f *far) expect(order string, moods ...mood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moods == nil {
		f.moods = map[string][]mood{}
	}
	f.moods[order] = moods
}

func (f *far) facts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

func (f *far) change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
}

// shut makes tools wait until the returned func is called.
func (f *far) shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gate == gate {
			close(gate)
			f.gate = nil
		}
	}
}

func (f *far) pass(ctx context.Context) error {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type handler = func(ctx context.Context, call *tallystick.Call, in args) error

// tools are those of the server.
func (w *World) tools(s *tallystick.Server) {
	add := func(name string, o *tallystick.ToolOptions, readOnly bool, h handler) {
		if !slices.Contains(w.called, name) {
			return
		}
		tallystick.AddTool(s, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}, o,
			func(ctx context.Context, call *tallystick.Call, in args) (*mcp.CallToolResult, any, error) {
				if err := h(ctx, call, in); err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
			})
	}
	once := func(ctx context.Context, call *tallystick.Call, in args, e tallystick.Effect) error {
		_, err := tallystick.Once(ctx, call, e, func(ctx context.Context, key string) (string, error) {
			return w.do(ctx, call, e, in.Order, key)
		})
		return err
	}
	ask := func(call *tallystick.Call, key string, who tallystick.Who) error {
		return call.Confirm(tallystick.Question{Key: key, Message: "Sure?", Who: who})
	}
	task := &tallystick.ToolOptions{Task: tallystick.TaskRequired}

	add("refund", nil, false, func(ctx context.Context, call *tallystick.Call, in args) error {
		err := call.Confirm(tallystick.Question{Key: "approve", Message: "Refund?", Facts: w.far.facts()})
		if err != nil {
			return err
		}
		return once(ctx, call, in, tallystick.Effect{Name: "refund", Subject: in.Order, Repeatable: true})
	})
	// wipe is done at most once, by whatever it takes.
	wipe := func(ctx context.Context, call *tallystick.Call, in args) error {
		if err := ask(call, "wipe", tallystick.Who{}); err != nil {
			return err
		}
		err := once(ctx, call, in, tallystick.Effect{Name: "wipe"})
		if err != nil && err.Error() == "not now" {
			err = once(ctx, call, in, tallystick.Effect{Name: "wipe"})
		}
		return err
	}
	add("wipe", nil, false, wipe)
	add("board", nil, false, func(ctx context.Context, call *tallystick.Call, in args) error {
		if err := ask(call, "go", tallystick.Who{Roles: []string{"finance"}, NotRequester: true, Count: 2}); err != nil {
			return err
		}
		return once(ctx, call, in, tallystick.Effect{Name: "board", Subject: in.Order})
	})
	// job reports, asks and does.
	job := func(ctx context.Context, call *tallystick.Call, in args) error {
		call.Report("begun", 1, 3)
		if err := ask(call, "go", tallystick.Who{}); err != nil {
			return err
		}
		if err := once(ctx, call, in, tallystick.Effect{Name: "job"}); err != nil {
			return err
		}
		call.Report("done", 3, 3)
		return nil
	}
	add("job", task, false, job)
	add("brief", &tallystick.ToolOptions{Task: tallystick.TaskRequired, Deadline: time.Hour}, false, func(_ context.Context, call *tallystick.Call, _ args) error {
		return call.Confirm(tallystick.Question{Key: "go", Message: "Sure?", Within: 10 * time.Hour})
	})
	add("first", &tallystick.ToolOptions{Task: tallystick.TaskRequired, MaxRuns: 1}, false, job)
	// long does something, waits to be let go on, and does another.
	long := func(ctx context.Context, call *tallystick.Call, in args) error {
		if err := once(ctx, call, in, tallystick.Effect{Name: "begin", Repeatable: true}); err != nil {
			return err
		}
		call.Report("begun", 1, 2)
		if err := w.far.pass(ctx); err != nil {
			return err
		}
		return once(ctx, call, in, tallystick.Effect{Name: "finish", Repeatable: true})
	}
	add("long", task, false, long)
	add("late", &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 2 * time.Second}, false, long)
	// shy waits before it does anything.
	add("shy", nil, false, func(ctx context.Context, call *tallystick.Call, in args) error {
		if err := ask(call, "go", tallystick.Who{}); err != nil {
			return err
		}
		if err := w.far.pass(ctx); err != nil {
			return err
		}
		return once(ctx, call, in, tallystick.Effect{Name: "shy", Subject: in.Order})
	})
	add("firm", &tallystick.ToolOptions{Task: tallystick.TaskRequired, AskFirst: true}, false, wipe)
	add("look", nil, true, func(_ context.Context, call *tallystick.Call, _ args) error {
		return ask(call, "look", tallystick.Who{})
	})
}

func isNot(err error) bool {
	return errors.Is(err, tallystick.ErrNoQuestion) || errors.Is(err, tallystick.ErrSettled)
}

func result(v string) json.RawMessage {
	raw, _ := json.Marshal(v) // a string always can be
	return raw
}
