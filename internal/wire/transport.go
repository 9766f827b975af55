package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TransportOptions configure [NewTransport]. The fields are those of
// [HTTPOptions] of the same names.
type TransportOptions struct {
	Limits            Limits
	Log               *slog.Logger
	ServerInfo        json.RawMessage
	SupportedVersions []string
}

// NewTransport wraps a transport of an SDK server, so that modern requests that
// h owns are answered by h and never reach the SDK. All else passes. The same
// checks apply, with the same errors, as over HTTP, headers apart.
//
// Each request runs in its own goroutine. notifications/cancelled ends its
// context, and no response is sent then; so does the end of the input.
// Connections wait for their requests, up to 10 s, before they report that end
// and before they close; listens end first, and say so.
func NewTransport(t mcp.Transport, h Handler, opts TransportOptions) mcp.Transport {
	return &transport{t, newFront(h, opts.Limits, opts.Log, opts.ServerInfo, opts.SupportedVersions)}
}

type transport struct {
	inner mcp.Transport
	*front
}

// Connect implements [mcp.Transport].
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// Not ctx: that is the caller's for connecting, and the connection stays.
	all, end := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &connection{
		Connection: inner, front: t.front, all: all, end: end,
		read:     make(chan received),
		calls:    map[jsonrpc.ID]*inFlight{},
		refusals: make(chan struct{}, t.limits.InFlight),
		farewell: farewell, leaving: leaving,
	}
	go c.pump()
	return c, nil
}

// received is what was read.
type received struct {
	msg jsonrpc.Message
	err error
}

// pump reads until the connection ends.
func (c *connection) pump() {
	for {
		msg, err := c.Connection.Read(c.all)
		select {
		case c.read <- received{msg, err}:
		case <-c.all.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// SupportsProtocolVersion implements [mcp.ProtocolVersionSupporter].
func (t *transport) SupportsProtocolVersion(version string) bool {
	if s, ok := t.inner.(mcp.ProtocolVersionSupporter); ok {
		return s.SupportsProtocolVersion(version)
	}
	return true
}

type connection struct {
	mcp.Connection // reads belong to the pump
	*front
	read    chan received // from the pump, and what is answered for the client
	all     context.Context
	end     context.CancelCauseFunc
	running sync.WaitGroup // the goroutines of calls and refusals
	listens sync.WaitGroup // of them, those of listens

	initialized atomic.Bool // the client has opened a session of the 2025 era

	refusals chan struct{} // a place for each refusal being written

	farewell, leaving time.Duration // as the constants

	writing sync.Mutex // held while a message is written

	mu    sync.Mutex               // guards calls and ended
	calls map[jsonrpc.ID]*inFlight // ours, until answered
	ended bool
}

// inFlight is one request that the handler is answering.
type inFlight struct {
	cancel    context.CancelCauseFunc
	listen    bool
	cancelled bool // by the client, which expects no response

	notifying sync.Mutex // held while a notification of it is written
	answered  bool       // guarded by notifying: none may follow
}

var errCancelled = errors.New("the client cancelled the request")

// Read implements [mcp.Connection]: it returns the next message for the SDK.
func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var r received
		select {
		case r = <-c.read:
		case <-ctx.Done():
			r.err = ctx.Err()
		case <-c.all.Done():
			r.err = io.EOF // closed here
		}
		msg, err := r.msg, r.err
		if err != nil {
			c.stop(err)
			return nil, err
		}
		req, ok := msg.(*jsonrpc.Request)
		if !ok {
			return msg, nil
		}
		if !c.intercept(req) {
			req.Extra = requestExtra(req) // by which fromSDK knows that it came this way
			return req, nil
		}
	}
}

// Write implements [mcp.Connection]. Requests of the server's, and notifications
// of changes that nobody has asked for, are the 2025 era's: the SDK takes every
// connection on which it has seen no request, since the requests were ours, for
// one of that era.
func (c *connection) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && !c.initialized.Load() {
		switch {
		case req.IsCall():
			go c.answerFor(req)
			return nil
		case isChange(req.Method):
			if p, bad := parseParams(req.Params, false, c.limits); bad != nil || p.meta[mcp.MetaKeySubscriptionID] == nil {
				return nil
			}
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.Connection.Write(ctx, msg)
}

// answerFor answers a request that the client is not sent: it has no such method.
func (c *connection) answerFor(req *jsonrpc.Request) {
	resp := &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: CodeMethodNotFound, Message: "revision " + Version + " has no requests to clients"}}
	select {
	case c.read <- received{msg: resp}:
	case <-c.all.Done():
	}
}

// isChange reports whether a notification tells of a change.
func isChange(method string) bool {
	return strings.HasSuffix(method, "/list_changed") || method == "notifications/resources/updated"
}

// Times that a closing connection gives to what is under way on it.
const (
	farewell = time.Second      // listens, to say that they end
	leaving  = 10 * time.Second // the rest, to end: a write that nobody reads never does
)

// Close implements [mcp.Connection].
func (c *connection) Close() error {
	c.mu.Lock()
	c.ended = true
	for _, call := range c.calls {
		if call.listen {
			call.cancel(ErrShutdown)
		}
	}
	c.mu.Unlock()
	wait(&c.listens, c.farewell)
	err := c.Connection.Close() // it unblocks writes of running calls, as a rule
	c.stop(mcp.ErrConnectionClosed)
	return err
}

// stop cancels the running calls, admits no more, and waits for them.
func (c *connection) stop(cause error) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.end(cause)
	if !wait(&c.running, c.leaving) {
		c.log.Error("requests are still running on a connection that was closed")
	}
}

// wait reports whether all have ended within that time. Nobody may join them any
// more.
func wait(all *sync.WaitGroup, atMost time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// intercept deals with a message that is not for the SDK, and reports whether
// it was one.
func (c *connection) intercept(req *jsonrpc.Request) bool {
	p, bad := parseParams(req.Params, false, c.limits)
	if req.Method == "initialize" {
		c.initialized.Store(true)
	}
	if req.Method == methodCancelled && !req.IsCall() {
		return bad != nil || c.cancelCall(p)
	}
	if !req.IsCall() {
		return bad != nil // a notification has no answer, not even an error
	}
	m := message{ID: rawID(req), Method: req.Method, Params: req.Params}
	if bad != nil {
		c.refuse(req.ID, bad)
		return true
	}
	if _, modern := p.meta[mcp.MetaKeyProtocolVersion]; !modern {
		return false
	}
	r, bad := c.admit(m, p)
	if bad != nil {
		c.refuse(req.ID, bad)
		return true
	}
	if !c.owns(r) {
		return false
	}
	if bad := c.start(req, r); bad != nil {
		c.refuse(req.ID, bad)
	}
	return true
}

// start runs the handler in a goroutine of its own.
func (c *connection) start(req *jsonrpc.Request, r *Request) *Error {
	r.Extra = requestExtra(req)
	ctx, cancel := context.WithCancelCause(c.all)
	call := &inFlight{cancel: cancel, listen: r.Method == MethodListen}

	c.mu.Lock()
	defer c.mu.Unlock()
	_, twice := c.calls[req.ID]
	switch {
	case c.ended:
		cancel(nil)
		return Errorf(CodeInternal, "the connection is closing")
	case twice:
		cancel(nil)
		return Errorf(CodeInvalidRequest, "a request with this id is running")
	case len(c.calls) >= c.limits.InFlight:
		cancel(nil)
		return Errorf(CodeInternal, "more than %d requests at once (Limits.InFlight)", c.limits.InFlight)
	}
	c.calls[req.ID] = call
	if call.listen {
		c.listens.Add(1)
	}
	c.running.Go(func() {
		if call.listen {
			defer c.listens.Done()
		}
		defer cancel(nil)
		r.Notify = c.notifier(call)
		result, failed := c.handle(ctx, r)
		call.notifying.Lock()
		call.answered = true
		call.notifying.Unlock()
		c.mu.Lock()
		silent := call.cancelled
		delete(c.calls, req.ID)
		c.mu.Unlock()
		if !silent {
			c.answer(req.ID, result, failed)
		}
	})
	return nil
}

// notifier returns the Notify of one call. The stream is the connection itself;
// which request a notification is for, it says itself by its token.
func (c *connection) notifier(call *inFlight) func(context.Context, string, any) error {
	return func(ctx context.Context, method string, params any) error {
		b, err := marshal(params)
		if err != nil {
			return err
		}
		call.notifying.Lock()
		defer call.notifying.Unlock()
		c.mu.Lock()
		cancelled := call.cancelled
		c.mu.Unlock()
		if cancelled {
			return errCancelled
		}
		if call.answered {
			return errors.New("the request has been answered")
		}
		return c.Write(ctx, &jsonrpc.Request{Method: method, Params: b})
	}
}

// cancelCall cancels one of our calls, and reports whether it was one.
func (c *connection) cancelCall(p params) bool {
	var v any
	if json.Unmarshal(p.members["requestId"], &v) != nil {
		return false
	}
	id, err := jsonrpc.MakeID(v)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[id]
	if ok {
		call.cancelled = true
		call.cancel(errCancelled)
	}
	return ok
}

// refuse answers without running anything, and without waiting for a client that
// sends before it reads, unless too many refusals wait already.
func (c *connection) refuse(id jsonrpc.ID, e *Error) {
	select {
	case c.refusals <- struct{}{}:
	default:
		c.answer(id, nil, e)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended { // nobody would wait for the goroutine
		<-c.refusals
		return
	}
	c.running.Go(func() {
		defer func() { <-c.refusals }()
		c.answer(id, nil, e)
	})
}

// answer writes a response. There is nobody to tell if that fails: the SDK sees
// the broken connection at its own next write or read.
func (c *connection) answer(id jsonrpc.ID, result json.RawMessage, failed *Error) {
	resp := &jsonrpc.Response{ID: id, Result: result}
	if failed != nil {
		resp.Result = nil
		resp.Error = &jsonrpc.Error{Code: failed.Code, Message: failed.Message, Data: failed.data()}
	}
	// The call's own context may have ended; its answer goes out all the same.
	if err := c.Write(context.WithoutCancel(c.all), resp); err != nil {
		c.log.Warn("response not written", "error", err)
	}
}

// rawID is the id as it came, if the transport kept it; [Stdio] does.
func rawID(req *jsonrpc.Request) json.RawMessage {
	if line, ok := req.Extra.(*stdioExtra); ok {
		return line.id
	}
	b, err := marshal(req.ID.Raw())
	if err != nil { // a string or an integer
		panic(err)
	}
	return b
}

func requestExtra(req *jsonrpc.Request) *mcp.RequestExtra {
	if e, ok := req.Extra.(*mcp.RequestExtra); ok && e != nil {
		return e
	}
	return &mcp.RequestExtra{}
}
