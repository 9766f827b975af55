package tallysticktest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

// After a crash the tasks that waited for a subject are taken first, and have all
// workers. The call that has started the effect is run all the same.
func TestWaitersDoNotStarveWhomTheyWaitFor(t *testing.T) {
	far := &bank{}
	gate, started, dead := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var first sync.Once
	type in struct {
		Wait bool `json:"wait"`
	}
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "pay"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(ctx context.Context, call *tallystick.Call, in in) (*mcp.CallToolResult, any, error) {
				if in.Wait {
					select {
					case <-gate:
					case <-ctx.Done():
						return nil, nil, context.Cause(ctx)
					}
				}
				e := safely
				e.Name = "pay"
				_, err := tallystick.Once(ctx, call, e, func(ctx context.Context, key string) (string, error) {
					dies := false
					first.Do(func() { dies = true; close(started) })
					if dies {
						<-dead
						return "", errors.New("its process is dead")
					}
					return far.pay(key, 1), nil
				})
				return nil, nil, err
			})
	}, &tallystick.Options{Workers: 2, WorkersPerTenant: 2})
	var waiters []*tallysticktest.Result
	for range 2 {
		waiters = append(waiters, b.As(ann).Call("pay", map[string]any{"wait": true}))
	}
	inline := b.As(ann, tallysticktest.Form)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		inline.CallKeyed("k", "pay", map[string]any{"wait": false})
	}()
	<-started
	close(gate)
	time.AfterFunc(50*time.Millisecond, func() { close(dead) }) // Restart waits for that
	b.Restart()
	<-lost
	for _, r := range waiters {
		r.Await("completed")
	}
	if far.count() != 1 {
		t.Errorf("%d payments\n%s", far.count(), b.Trail())
	}
}
