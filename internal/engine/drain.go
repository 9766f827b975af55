package engine

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tallystick/tallystick/record"
)

// drain lets runs come to their end for half of the drain time, then tells
// their handlers to stop, and hands back what does not finish by itself.
func (e *Engine) drain() {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	close(e.stopping)
	done := e.work.Empty()
	soft := time.NewTimer(e.Drain / 2)
	defer soft.Stop()
	hard := time.NewTimer(e.Drain)
	defer hard.Stop()
	for {
		select {
		case <-done:
			return
		case <-soft.C:
			e.hurry()
		case <-hard.C:
			for _, r := range e.live() {
				r.lose() // its lease lapses, and the next process takes it over
			}
			e.Log.Warn("drained with handlers still running; their calls go on elsewhere")
			return
		}
	}
}

func (e *Engine) live() []*Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	var runs []*Run
	for _, of := range e.runs {
		runs = append(runs, of...)
	}
	return runs
}

// hurry tells all runs to stop, those too that the store does not know of: their
// handlers, and what else goes on for them, such as a live question.
func (e *Engine) hurry() {
	e.mu.Lock()
	e.hurrying = true
	runs := slices.Collect(maps.Keys(e.going))
	e.mu.Unlock()
	for _, r := range runs {
		r.cancel(ErrDraining)
	}
}

// join registers a run until it is closed.
func (e *Engine) join(r *Run) {
	e.mu.Lock()
	e.going[r] = struct{}{}
	hurrying := e.hurrying
	e.mu.Unlock()
	if hurrying {
		r.cancel(ErrDraining)
	}
}

// Live returns the run that this process has of a call, or nil.
func (e *Engine) Live(id string) *Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.runs[id]; len(of) > 0 {
		return of[len(of)-1]
	}
	return nil
}

// Go runs f in a goroutine that a drain waits for. A panic of f is logged.
func (e *Engine) Go(f func()) {
	e.work.Go(func() {
		defer e.survive()
		f()
	})
}

// Here runs f in this goroutine. A drain waits for it, and a panic of f is logged.
func (e *Engine) Here(f func()) {
	e.work.enter()
	defer e.work.leave()
	defer e.survive()
	f()
}

// survive, deferred, keeps the process alive when something that the engine's
// owner gave it panics: it costs one run.
func (e *Engine) survive() {
	if p := recover(); p != nil {
		e.Log.Error("a callback panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// plain is an error for the log: a refusal's key can name the subject of an
// effect, which is an argument.
func plain(err error) any {
	var refused *record.Refusal
	if errors.As(err, &refused) {
		return "refused: " + string(refused.Reason)
	}
	return err
}

// ignore returns err unless it is one of those.
func ignore(err error, those ...error) error {
	for _, t := range those {
		if errors.Is(err, t) {
			return nil
		}
	}
	return err
}
