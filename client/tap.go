package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A tapTransport lets a link share the SDK session's connection. The SDK's own
// methods drop what its types do not have (a task behind tools/call), so what
// belongs to calls is sent and read here, as it is; all else is the session's.
type tapTransport struct {
	inner mcp.Transport
	l     *link
}

func (t *tapTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.l.tap = &tap{
		Connection: conn, l: t.l, done: make(chan struct{}), more: make(chan jsonrpc.Message),
		read: make(chan message), waiting: map[string]*waiter{},
	}
	return t.l.tap, nil
}

// progress is a report on a request that is under way.
type progress struct {
	Done    float64 `json:"progress"`
	Total   float64 `json:"total"`
	Message string  `json:"message"`
}

// A waiter waits for the response to a request.
type waiter struct {
	response chan *jsonrpc.Response // capacity 1
	heard    func(progress)
	listen   *listen // of a subscriptions/listen
}

type message struct {
	msg jsonrpc.Message
	err error
}

// A tap is a connection from which the messages that belong to calls are taken
// out before the SDK's session reads the rest.
type tap struct {
	mcp.Connection
	l *link

	answered atomic.Bool // a response has come
	unasked  error       // of the latest server/discover; of the goroutine that connects

	start sync.Once
	read  chan message         // from the connection, in order
	more  chan jsonrpc.Message // from the stream of a 2025-era session over HTTP

	mu      sync.Mutex // guards what follows
	waiting map[string]*waiter

	failed sync.Once
	done   chan struct{} // closed when reading has failed
	err    error         // why; set before done is closed
}

func (t *tap) expect(id string, w *waiter) {
	t.mu.Lock()
	t.waiting[id] = w
	t.mu.Unlock()
}

func (t *tap) forget(id string) {
	t.mu.Lock()
	delete(t.waiting, id)
	t.mu.Unlock()
}

// waiter returns who waits for id; ids of ours are strings.
func (t *tap) waiter(id any) *waiter {
	name, ok := id.(string)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[name]
}

var errNoResponse = errors.New("the response has ended without one")

// undiscovered is why there is no connection to a server that has not answered.
type undiscovered struct{ err error }

func (u *undiscovered) Error() string { return "server/discover got no answer: " + u.err.Error() }
func (u *undiscovered) Unwrap() error { return u.err }

// Write sends a message of the SDK session's. After a server/discover that came
// to nothing, of whatever reason, that sends initialize; but only a server that
// has answered can be one of 2025. One that cannot answer just now would be
// taken for one, and have neither tasks nor rounds for this client.
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	r, ok := msg.(*jsonrpc.Request)
	x, connecting := ctx.Value(exchangeKey{}).(*exchange)
	if !ok || !connecting {
		return t.Connection.Write(ctx, msg)
	}
	switch r.Method {
	case "server/discover":
		t.unasked = t.Connection.Write(ctx, msg)
		return t.unasked
	case "initialize":
		if !x.refused(t.answered.Load()) {
			return &undiscovered{cmp.Or(t.unasked, x.problem(), errNoResponse)}
		}
	}
	return t.Connection.Write(ctx, msg)
}

// Read returns the next message that is the SDK session's. Only its reading
// goroutine calls it.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	t.start.Do(func() { go t.pump() })
	for {
		var msg jsonrpc.Message
		select {
		case m := <-t.read:
			if m.err != nil {
				return nil, t.fail(m.err)
			}
			msg = m.msg
		case msg = <-t.more:
		case <-ctx.Done():
			return nil, t.fail(ctx.Err())
		}
		if !t.take(msg) {
			return msg, nil
		}
	}
}

// fail tells everybody who waits that no more is read.
func (t *tap) fail(err error) error {
	t.failed.Do(func() {
		t.err = err
		close(t.done)
	})
	return t.err
}

// pump reads the connection to its end.
func (t *tap) pump() {
	for {
		msg, err := t.Connection.Read(context.Background()) // ends with the connection
		select {
		case t.read <- message{msg, err}:
		case <-t.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// take handles what belongs to calls. It does not block.
func (t *tap) take(msg jsonrpc.Message) bool {
	switch m := msg.(type) {
	case *jsonrpc.Response:
		if said := new(jsonrpc.Error); m.Error == nil || errors.As(m.Error, &said) { // and not the SDK's word that there is none
			t.answered.Store(true)
		}
		w := t.waiter(m.ID.Raw())
		if w != nil {
			select {
			case w.response <- m:
			default: // a second response to one request
			}
		}
		return w != nil
	case *jsonrpc.Request:
		if m.IsCall() {
			return t.l.live.take(m)
		}
		return t.notified(m)
	}
	return false
}

func (t *tap) notified(m *jsonrpc.Request) bool {
	var p struct {
		Token     any `json:"progressToken"`
		RequestID any `json:"requestId"`
		progress
		Meta struct {
			Subscription any `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	if err := unmarshal(m.Params, &p); err != nil {
		return false // the session's to refuse
	}
	switch m.Method {
	case "notifications/progress":
		w := t.waiter(p.Token)
		if w != nil && w.heard != nil {
			w.heard(p.progress)
		}
		return w != nil
	case "notifications/tasks", "notifications/subscriptions/acknowledged":
		w := t.waiter(p.Meta.Subscription)
		if w != nil && w.listen != nil {
			w.listen.notified(m.Method, m.Params)
		}
		return w != nil
	case "notifications/cancelled":
		if w := t.waiter(p.RequestID); w != nil { // of a listen: its result follows
			return true
		}
		return t.l.live.cancelled(p.RequestID)
	}
	return false
}
