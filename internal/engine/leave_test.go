package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

// The client leaves while the write that starts an effect is under way, and the
// write fails: so no effect has begun, and the handler is told that the client
// is gone. Otherwise it would go on for nobody, and hold the call from whoever
// sends the request again.
func TestLeavingDuringAStartThatFailsIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		r := begin(t, newEngine(s, nil), Kept)
		defer r.Close()
		if err := r.Keep(context.Background()); err != nil {
			t.Fatal(err)
		}
		full := errors.New("the disk is full")
		s.onCommit(func(record.Change) error {
			r.Leave()
			if r.HasLeft() {
				t.Error("the run is left while nobody knows whether its effect begins")
			}
			return full
		})
		do := func(context.Context, string) ([]byte, error) { panic("it started") }
		if _, err := r.Once(r.Context(), Effect{Name: "e", Do: do}); !errors.Is(err, full) {
			t.Fatalf("the effect: %v", err)
		}
		if !r.HasLeft() || !errors.Is(context.Cause(r.Context()), ErrLeft) {
			t.Errorf("left: %v, the handler's context: %v", r.HasLeft(), context.Cause(r.Context()))
		}
	})
}

// Of two effects that start at once one fails to, and so does a later one: the
// other has begun all the same, and the client's leaving ends nothing.
func TestAStartThatFailsDoesNotUnsayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memory.New(memory.Options{})}
		r := begin(t, newEngine(s, nil), Kept)
		defer r.Close()
		if err := r.Keep(context.Background()); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		full := errors.New("the disk is full")
		s.onCommit(func(record.Change) error {
			s.onCommit(nil)
			go func() {
				_, err := r.Once(r.Context(), Effect{Name: "second", Do: func(context.Context, string) ([]byte, error) {
					r.Leave()
					return nil, context.Cause(r.Context())
				}})
				second <- err
			}()
			synctest.Wait() // until it waits for this write
			return full
		})
		if _, err := r.Once(r.Context(), Effect{Name: "first"}); !errors.Is(err, full) {
			t.Fatalf("the first: %v", err)
		}
		if err := <-second; err != nil || r.HasLeft() {
			t.Errorf("the second: %v, left: %v", err, r.HasLeft())
		}
		s.onCommit(func(record.Change) error { return full })
		if _, err := r.Once(r.Context(), Effect{Name: "third"}); !errors.Is(err, full) || r.HasLeft() {
			t.Errorf("the third: %v, left: %v", err, r.HasLeft())
		}
	})
}
