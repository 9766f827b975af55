package wire

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrShutdown is the cause of contexts that end because the endpoint does.
var ErrShutdown = errors.New("the server is shutting down")

// A lifetime counts the requests of an endpoint and ends them.
type lifetime struct {
	state *lifetimeState
	// streams ends those that would never end themselves, at the beginning of a
	// shutdown; all ends everything, when its time is up.
	streams, all       context.Context
	endStreams, endAll context.CancelCauseFunc
}

type lifetimeState struct {
	mu      sync.Mutex
	running int
	closing bool
	idle    chan struct{} // closed when closing and nothing runs
}

func newLifetime() lifetime {
	all, endAll := context.WithCancelCause(context.Background())
	streams, endStreams := context.WithCancelCause(all)
	return lifetime{&lifetimeState{idle: make(chan struct{})}, streams, all, endStreams, endAll}
}

// enter counts a request in, unless the endpoint is closing.
func (l lifetime) enter() bool {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if l.state.closing {
		return false
	}
	l.state.running++
	return true
}

func (l lifetime) leave() {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if l.state.running--; l.state.running == 0 && l.state.closing {
		close(l.state.idle)
	}
}

// close lets no request in any more.
func (l lifetime) close() {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if l.state.closing {
		return
	}
	l.state.closing = true
	if l.state.running == 0 {
		close(l.state.idle)
	}
}

// bind makes ctx end with the endpoint too.
func (l lifetime) bind(ctx context.Context, stream bool) (context.Context, context.CancelFunc) {
	end := l.all
	if stream {
		end = l.streams
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// Shutdown refuses new requests with 503, ends the streams that only wait (GET,
// and subscriptions/listen, whose context ends with the cause [ErrShutdown]),
// waits for the running requests, and closes the 2025-era sessions.
//
// When ctx ends first, the contexts of running requests are cancelled and
// ctx's error is returned once they end, or after a second. A tool of a session
// that ignores its context is left running.
func (h *HTTP) Shutdown(ctx context.Context) error {
	h.life.close()
	h.life.endStreams(ErrShutdown)
	defer h.life.endAll(ErrShutdown)

	var err error
	select {
	case <-h.life.state.idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
		h.life.endAll(ErrShutdown)
		h.waitAtMost(h.life.state.idle, time.Second)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		h.closeSessions()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		if err == nil {
			err = context.Cause(ctx)
		}
		h.waitAtMost(closed, time.Second)
	}
	return err
}

func (h *HTTP) waitAtMost(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		h.log.Error("requests still running at the end of the shutdown")
	}
}

func (h *HTTP) closeSessions() {
	var all sync.WaitGroup
	for _, session := range h.sessions.live() {
		all.Go(func() { closeSession(session) })
	}
	all.Wait()
}

func closeSession(s *mcp.ServerSession) { _ = s.Close() }

// Harden gives a server the bounds that a public endpoint needs against slow
// clients, where it has none: 10 s to send headers, 2 min idle, 64 KiB of
// headers. ReadTimeout and WriteTimeout stay zero, for they would cut off
// streams; bodies and writes are bounded per request.
func Harden(s *http.Server) {
	if s.ReadHeaderTimeout == 0 {
		s.ReadHeaderTimeout = 10 * time.Second
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = 2 * time.Minute
	}
	if s.MaxHeaderBytes == 0 {
		s.MaxHeaderBytes = 64 << 10
	}
}
