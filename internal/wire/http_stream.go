package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A responder writes the answer to one request: a JSON object, or an SSE stream
// once there is anything before the answer to say.
type responder struct {
	id           json.RawMessage
	keepAlive    time.Duration
	writeTimeout atomic.Int64 // a time.Duration

	mu        sync.Mutex // guards all below; w is not used after done
	w         http.ResponseWriter
	streaming bool
	done      bool
	broken    error // the first failed write
	timer     *time.Timer
}

func newResponder(w http.ResponseWriter, id json.RawMessage, keepAlive, writeTimeout time.Duration) *responder {
	r := &responder{w: w, id: id, keepAlive: keepAlive}
	r.writeTimeout.Store(int64(writeTimeout))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(keepAlive, r.comment)
	return r
}

// notify sends a notification before the answer.
func (r *responder) notify(ctx context.Context, method string, params any) error {
	b, err := encodeNotification(method, params)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errors.New("the request has been answered")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.event(b)
}

// comment breaks a silence, so that neither end nor anything between takes the
// connection for dead.
func (r *responder) comment() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done && r.broken == nil {
		_ = r.write([]byte(": keep-alive\n\n"))
	}
}

// finish sends the answer. Nothing is written afterwards.
func (r *responder) finish(result json.RawMessage, failed *Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer.Stop()
	status, body := http.StatusOK, []byte(nil)
	if failed != nil {
		status, body = failed.status(), encodeError(r.id, failed)
	} else {
		body = encodeResponse(r.id, result)
	}
	if r.streaming {
		_ = r.event(body)
	} else {
		r.deadline()
		writeJSON(r.w, status, body)
	}
	r.done = true
	// The connection outlives the request and its deadline, so all of the answer
	// goes out before that is lifted.
	rc := http.NewResponseController(r.w)
	_ = rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{})
}

// The rest runs with r.mu held.

func (r *responder) event(data []byte) error {
	b := make([]byte, 0, len(data)+24)
	b = append(b, "event: message\ndata: "...)
	b = append(b, data...)
	return r.write(append(b, "\n\n"...))
}

func (r *responder) write(b []byte) error {
	if r.broken != nil {
		return r.broken
	}
	r.deadline()
	if !r.streaming {
		r.streaming = true
		head := r.w.Header()
		head.Set("Content-Type", "text/event-stream")
		head.Set("Cache-Control", "no-cache, no-store, no-transform")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Accel-Buffering", "no") // nginx would hold events back
		r.w.WriteHeader(http.StatusOK)
	}
	if _, r.broken = r.w.Write(b); r.broken == nil {
		// Without Flush, events come late and come all the same.
		if err := http.NewResponseController(r.w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			r.broken = err
		}
	}
	r.timer.Reset(r.keepAlive)
	return r.broken
}

// hurry bounds what is being written, and all that follows, by a second: a
// client that does not read must not hold up a shutdown.
func (r *responder) hurry() {
	r.writeTimeout.Store(int64(time.Second))
	// Without mu: whoever holds it may be writing.
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(time.Second))
}

// deadline bounds the next write: a client that does not read must not hold a
// handler for ever.
func (r *responder) deadline() {
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(time.Duration(r.writeTimeout.Load())))
}
