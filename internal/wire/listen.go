package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Notifications of a subscriptions/listen stream.
const (
	NotifyAcknowledged = "notifications/subscriptions/acknowledged"
	NotifyCancelled    = methodCancelled
	NotifyTasks        = "notifications/tasks"
)

// A Filter is what a subscriptions/listen wants to be told.
type Filter struct {
	// TaskIDs whose tasks are to be watched, each once, in the order they came.
	TaskIDs []string
	// Others are the members other than taskIds: the SDK's to honour.
	Others map[string]json.RawMessage
}

var filterMembers = []string{"taskIds", "toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"}

// admitListen reads the filter. Its capability gate comes before anything could
// look a task up.
func (f *front) admitListen(r *Request, p params) *Error {
	v, ok := p.members["notifications"]
	if !ok {
		return Errorf(CodeInvalidParams, "params.notifications is missing")
	}
	others, err := object("params.notifications", v, filterMembers)
	if err != nil {
		return err
	}
	r.Filter = &Filter{Others: others}
	ids, ok := others["taskIds"]
	if !ok {
		return nil
	}
	delete(others, "taskIds")
	var all []string
	if ids[0] != '[' || json.Unmarshal(ids, &all) != nil || slices.Contains(all, "") {
		return Errorf(CodeInvalidParams, "params.notifications.taskIds must be an array of strings that are not empty")
	}
	if len(all) > 0 && !r.DeclaresTasks() {
		return missingTasks()
	}
	seen := map[string]bool{}
	for _, id := range all {
		if !seen[id] {
			seen[id] = true
			r.Filter.TaskIDs = append(r.Filter.TaskIDs, id)
		}
	}
	return nil
}

// A Relay is a listen at the SDK server, for what that tells of: its lists and
// resources. It never blocks the SDK: a change that the reader has not yet
// taken is not kept twice.
type Relay struct {
	// Honoured is the filter that the SDK acknowledged.
	Honoured map[string]json.RawMessage
	// C receives when there is something to [Relay.Take].
	C <-chan struct{}
	// Done is closed when the SDK has ended the listen.
	Done <-chan struct{}

	session *mcp.ServerSession
	conn    *relayConn
}

// A Notice is a notification of the SDK's, its params without subscriptionId,
// which is the relay's own.
type Notice struct {
	Method string
	Params map[string]json.RawMessage
}

// Subscribe listens at the SDK server for the filter's Others, as the sender of
// r. An [*Error] is the SDK's answer to that.
func Subscribe(ctx context.Context, server *mcp.Server, r *Request) (*Relay, error) {
	params := map[string]any{"notifications": r.Filter.Others, "_meta": r.Meta}
	raw, err := marshal(params)
	if err != nil {
		return nil, err
	}
	id, err := jsonrpc.MakeID(1.0)
	if err != nil {
		return nil, err
	}
	conn := &relayConn{
		listen:  &jsonrpc.Request{ID: id, Method: MethodListen, Params: raw, Extra: r.Extra},
		acked:   make(chan struct{}),
		changed: make(chan struct{}, 1),
		done:    make(chan struct{}),
		closed:  make(chan struct{}),
		answers: make(chan jsonrpc.Message, 1),
	}
	session, err := server.Connect(context.WithoutCancel(ctx), conn, nil)
	if err != nil {
		return nil, err
	}
	relay := &Relay{C: conn.changed, Done: conn.done, session: session, conn: conn}
	select {
	case <-conn.acked:
	case <-conn.done:
	case <-ctx.Done():
		relay.Close()
		return nil, context.Cause(ctx)
	}
	conn.mu.Lock()
	failed := conn.failed
	relay.Honoured = conn.honoured
	conn.mu.Unlock()
	if failed != nil {
		relay.Close() // without mu: it waits for the connection's writes
		return nil, failed
	}
	return relay, nil
}

// Take returns what has changed since the last Take.
func (r *Relay) Take() []Notice {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	notices := r.conn.notices
	r.conn.notices, r.conn.waiting = nil, nil
	return notices
}

// Close ends the listen at the SDK and waits for its goroutines.
func (r *Relay) Close() { _ = r.session.Close() }

// relayConn is a transport and connection on which one listen arrives.
type relayConn struct {
	acked   chan struct{} // closed once honoured is set
	changed chan struct{} // capacity 1
	done    chan struct{} // closed when the listen was answered, or the connection ended
	closed  chan struct{}
	answers chan jsonrpc.Message // capacity 1: to what the SDK asks, read by it

	mu       sync.Mutex
	listen   *jsonrpc.Request // nil once read
	honoured map[string]json.RawMessage
	failed   *Error
	notices  []Notice
	waiting  map[string]bool // of notices
	ended    bool            // done is closed
	shut     bool            // closed is closed
}

// Connect implements [mcp.Transport].
func (c *relayConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements [mcp.Connection].
func (c *relayConn) SessionID() string { return "" }

// Read implements [mcp.Connection]: the listen, and then nothing more.
func (c *relayConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	c.mu.Lock()
	listen := c.listen
	c.listen = nil
	c.mu.Unlock()
	if listen != nil {
		return listen, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case answer := <-c.answers:
		return answer, nil
	case <-c.closed:
		return nil, io.EOF
	}
}

// Write implements [mcp.Connection].
func (c *relayConn) Write(_ context.Context, msg jsonrpc.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		if msg.Error != nil {
			c.failed = Errorf(CodeInternal, "the listen failed")
			if known, ok := errors.AsType[*jsonrpc.Error](msg.Error); ok {
				c.failed = &Error{Code: known.Code, Message: known.Message}
				if len(known.Data) > 0 {
					c.failed.Data = known.Data
				}
			}
		}
		c.end()
	case *jsonrpc.Request:
		if msg.IsCall() { // a ping, by which the SDK finds out who is there
			select {
			case c.answers <- &jsonrpc.Response{ID: msg.ID, Result: json.RawMessage("{}")}:
			default:
			}
			return nil
		}
		return c.notice(msg)
	}
	return nil
}

// The rest runs with c.mu held.

func (c *relayConn) end() {
	if !c.ended {
		c.ended = true
		close(c.done)
	}
}

// notice keeps a notification. There are as many different ones as the filter
// has members and resources.
func (c *relayConn) notice(msg *jsonrpc.Request) error {
	params := map[string]json.RawMessage{}
	if err := json.Unmarshal(msg.Params, &params); err != nil {
		return err
	}
	meta, bad := object("_meta", params["_meta"], nil)
	if bad != nil || meta[mcp.MetaKeySubscriptionID] == nil {
		return nil // for sessions that never said what they want
	}
	delete(meta, mcp.MetaKeySubscriptionID)
	raw, err := marshal(meta)
	if err != nil {
		return err
	}
	params["_meta"] = raw
	if msg.Method == NotifyAcknowledged {
		honoured, bad := object("notifications", params["notifications"], nil)
		if bad != nil {
			return bad
		}
		if c.honoured == nil {
			c.honoured = honoured
			close(c.acked)
		}
		return nil
	}
	key := msg.Method + " " + string(params["uri"])
	if c.waiting[key] {
		return nil
	}
	if c.waiting == nil {
		c.waiting = map[string]bool{}
	}
	c.waiting[key] = true
	c.notices = append(c.notices, Notice{msg.Method, params})
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return nil
}

// Close implements [mcp.Connection].
func (c *relayConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.shut = true
		close(c.closed)
	}
	c.end()
	return nil
}
