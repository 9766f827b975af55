package engine

import (
	"errors"
	"time"
)

// drain lets runs come to their end for half of the drain time, then tells
// their handlers to stop, and hands back what does not finish by itself.
func (e *Engine) drain() {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	soft := time.NewTimer(e.Drain / 2)
	defer soft.Stop()
	hard := time.NewTimer(e.Drain)
	defer hard.Stop()
	for {
		select {
		case <-done:
			return
		case <-soft.C:
			for _, r := range e.live() {
				r.cancel(ErrDraining)
			}
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
	for r := range e.runs {
		runs = append(runs, r)
	}
	return runs
}

// Live returns the run that this process has of a call, or nil.
func (e *Engine) Live(id string) *Run {
	for _, r := range e.live() {
		if r.id == id {
			return r
		}
	}
	return nil
}

// Go runs f in a goroutine that a drain waits for.
func (e *Engine) Go(f func()) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		f()
	}()
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
