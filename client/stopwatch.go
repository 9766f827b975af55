package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A stopwatch bounds one request: by how long its server is silent, by how long
// it works in all, and by the call's deadline. The first two stand still while
// people are at live questions.
type stopwatch struct {
	silence time.Duration
	cancel  context.CancelCauseFunc

	mu       sync.Mutex // guards what follows
	quiet    *time.Timer
	work     *time.Timer
	deadline *time.Timer
	left     time.Duration // of work, while it stands still
	since    time.Time     // when it was last started
	spent    time.Duration
	people   int
}

var errDeadline = errors.New("the deadline of the call has passed")

func startStopwatch(silence, work, deadline time.Duration, cancel context.CancelCauseFunc) *stopwatch {
	return &stopwatch{
		silence: silence, cancel: cancel, left: work, since: time.Now(),
		quiet:    time.AfterFunc(silence, func() { cancel(errSilent) }),
		work:     time.AfterFunc(work, func() { cancel(errWork) }),
		deadline: time.AfterFunc(deadline, func() { cancel(errDeadline) }),
	}
}

// heard starts the silence anew.
func (w *stopwatch) heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.people == 0 && w.quiet.Stop() {
		w.quiet.Reset(w.silence)
	}
}

// asked stops it: the server waits for people.
func (w *stopwatch) asked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.people++; w.people > 1 {
		return
	}
	w.quiet.Stop()
	w.work.Stop()
	took := time.Since(w.since)
	w.spent, w.left = w.spent+took, w.left-took
}

// answered lets it go on.
func (w *stopwatch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.people--; w.people > 0 {
		return
	}
	w.since = time.Now()
	w.quiet.Reset(w.silence)
	w.work.Reset(max(0, w.left))
}

// end stops it for good and returns what the server took.
func (w *stopwatch) end() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet.Stop()
	w.work.Stop()
	w.deadline.Stop()
	if w.people == 0 {
		w.spent += time.Since(w.since)
	}
	return w.spent
}
