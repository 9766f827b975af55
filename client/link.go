package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	modernVersion  = "2026-07-28"
	tasksExtension = "io.modelcontextprotocol/tasks"
	// keyMeta is the idempotency key of a first request, and in a server's
	// declaration (extensions, or experimental in the 2025 era) the name under
	// which it says for how long it keeps them.
	keyMeta = "tallystick/idempotencyKey"

	connectTimeout = 30 * time.Second
)

// links has the connection of a client, and makes a new one when that is lost.
type links struct {
	c *Client

	mu      sync.Mutex // guards what follows
	current *link
	making  *making // an attempt under way
	closed  bool
}

type making struct {
	done chan struct{}
	link *link
	err  error
}

// get returns the connection; whoever comes while one is being made waits for
// that one.
func (s *links) get(ctx context.Context) (*link, error) {
	l, m, err := s.begin()
	if l != nil || err != nil {
		return l, err
	}
	select {
	case <-m.done:
		return m.link, m.err
	case <-ctx.Done():
		return nil, &linkError{kind: notSent, err: ctx.Err()}
	}
}

// begin returns the connection, or one that is being made.
func (s *links) begin() (*link, *making, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &Error{Kind: ErrClosed}
	}
	if l := s.current; l != nil && l.alive() {
		return l, nil, nil
	}
	m := s.making
	if m == nil {
		m = &making{done: make(chan struct{})}
		s.making = m
		old := s.current
		s.current = nil
		s.c.wg.Go(func() { s.make(m, old) })
	}
	return nil, m, nil
}

// ready returns the connection if there is one; it makes none.
func (s *links) ready() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.current; l != nil && l.alive() {
		return l
	}
	return nil
}

func (s *links) make(m *making, old *link) {
	if old != nil {
		_ = old.hangUp()
		s.c.wg.Go(old.wg.Wait) // for whoever is asked over it, as long as that takes
	}
	m.link, m.err = s.c.connect()
	s.mu.Lock()
	s.making = nil
	if s.closed && m.link != nil {
		defer m.link.close()
		m.link, m.err = nil, &Error{Kind: ErrClosed}
	}
	s.current = m.link
	s.mu.Unlock()
	close(m.done)
}

func (s *links) close() error {
	s.mu.Lock()
	s.closed = true
	l := s.current
	s.current = nil
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.close()
}

// A link is one connection to the server, of either era.
type link struct {
	c       *Client
	session *mcp.ClientSession
	tap     *tap
	web     *web // of Streamable HTTP; nil for others
	modern  bool
	tasks   bool          // the server has the extension
	keys    time.Duration // how long it keeps idempotency keys; 0: it may not know them

	ctx  context.Context
	stop context.CancelFunc
	ids  atomic.Int64

	startMu sync.Mutex
	gone    bool           // nothing is started any more; guarded by startMu
	wg      sync.WaitGroup // what start has started

	live    live
	watcher *watcher

	toolsMu  sync.Mutex
	bindings map[string][]paramHeader // by tool; guarded by toolsMu
}

// connect makes a connection, and finds out what era the server is of.
func (c *Client) connect() (*link, error) {
	t, err := c.opts.Transport()
	if err != nil {
		return nil, &linkError{kind: notSent, err: err}
	}
	l := &link{c: c, bindings: map[string][]paramHeader{}}
	l.ctx, l.stop = context.WithCancel(c.ctx)
	l.live.l = l
	wrapped := &tapTransport{inner: t, l: l}
	if h, ok := t.(*mcp.StreamableClientTransport); ok {
		l.web = newWeb(h, c.opts.Limits.Message, l.stop)
		wrapped.inner = l.web.transport()
	}
	sdk := mcp.NewClient(c.opts.Info, &mcp.ClientOptions{
		Capabilities: c.capabilities("").sdk(), Logger: c.log,
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	x := new(exchange)
	slow := time.AfterFunc(connectTimeout, l.stop)
	l.session, err = sdk.Connect(withExchange(l.ctx, x), wrapped, nil)
	if !slow.Stop() && err == nil {
		err = errors.New("it took too long")
	}
	if err != nil {
		l.stop()
		if l.session != nil {
			_ = l.session.Close() // err counts
		}
		return nil, notConnected(x, err)
	}
	said := l.session.InitializeResult()
	l.modern = said.ProtocolVersion >= modernVersion
	l.keys = c.opts.KeysKept
	if l.keys == 0 {
		l.keys = keysKept(said.Capabilities)
	}
	if said.Capabilities != nil {
		_, l.tasks = said.Capabilities.Extensions[tasksExtension]
	}
	l.tasks = l.tasks && l.modern
	if !l.modern && l.web != nil {
		l.web.legacy(said.ProtocolVersion)
		l.start(func() { l.web.listen(l.ctx, l.session.ID(), l.tap) })
	}
	l.watcher = newWatcher(l)
	c.log.Debug("connected", "version", said.ProtocolVersion, "tasks", l.tasks)
	return l, nil
}

// notConnected says why there is no connection: nothing of a call has left.
func notConnected(x *exchange, err error) error {
	if unheard := new(undiscovered); errors.As(err, &unheard) {
		err = unheard // without what the SDK was about to do next
	}
	if status := x.statusCode(); status == http.StatusUnauthorized || status == http.StatusForbidden {
		return &linkError{kind: unauthorized, err: err}
	}
	return &linkError{kind: notSent, err: err, after: x.retryAfter()}
}

// keysKept is for how long a server says that it keeps idempotency keys.
func keysKept(caps *mcp.ServerCapabilities) time.Duration {
	if caps == nil {
		return 0
	}
	for _, declared := range []any{caps.Extensions[keyMeta], caps.Experimental[keyMeta]} {
		b, err := json.Marshal(declared)
		if err != nil {
			continue
		}
		var said struct {
			KeptMs int64 `json:"keptMs"`
		}
		if json.Unmarshal(b, &said) == nil && said.KeptMs > 0 {
			return milliseconds(said.KeptMs)
		}
	}
	return 0
}

func (l *link) alive() bool {
	select {
	case <-l.tap.done:
		return false
	case <-l.ctx.Done():
		return false
	default:
		return true
	}
}

// start runs f in a goroutine that close waits for. It reports whether it does:
// not once the connection has been ended.
func (l *link) start(f func()) bool {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	if !l.gone {
		l.wg.Go(f)
	}
	return !l.gone
}

// close ends the connection, and waits for all that goes on over it.
func (l *link) close() error {
	err := l.hangUp()
	l.wg.Wait()
	return err
}

func (l *link) hangUp() error {
	l.startMu.Lock()
	l.gone = true
	l.startMu.Unlock()
	l.stop()
	err := l.session.Close()
	if err != nil && !l.web.isHTTP() {
		return fmt.Errorf("client: closing the connection: %w", err)
	}
	return nil // a session that could not be deleted times out
}

// request sends one request and waits for its response. heard, if not nil, is
// called with each report of progress. Errors are *serverError, what the server
// said, or *linkError, what became of the connection.
func (l *link) request(ctx context.Context, x *exchange, o outgoing, heard func(progress)) (json.RawMessage, error) {
	name := fmt.Sprintf("ts-%d", l.ids.Add(1))
	id, err := jsonrpc.MakeID(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = withExchange(ctx, x)
	params, err := l.encode(o, name)
	if err != nil {
		return nil, err
	}
	w := &waiter{response: make(chan *jsonrpc.Response, 1), heard: heard, listen: o.listen}
	l.tap.expect(name, w)
	defer l.tap.forget(name)

	wrote := make(chan error, 1)
	if !l.start(func() {
		wrote <- l.tap.Connection.Write(ctx, &jsonrpc.Request{ID: id, Method: o.method, Params: params})
	}) {
		return nil, &linkError{kind: notSent, err: errors.New("the connection has been closed")}
	}
	for {
		select {
		case r := <-w.response:
			return l.read(x, r)
		case err := <-wrote:
			if err != nil {
				return nil, l.notWritten(ctx, x, err)
			}
			wrote = nil
		case <-l.tap.done:
			select {
			case r := <-w.response:
				return l.read(x, r)
			default:
			}
			return nil, l.lost(x, l.tap.err)
		case <-ctx.Done():
			select {
			case r := <-w.response: // it has come all the same
				return l.read(x, r)
			default:
			}
			if !l.web.isHTTP() || !l.modern { // an end of the connection is no cancel there
				l.start(func() { l.cancelled(name) })
			}
			if wrote != nil && !l.web.isHTTP() {
				l.start(func() {
					select {
					case <-wrote:
					case <-l.ctx.Done():
					case <-time.After(breath):
						l.stop() // nobody reads at the other end: another connection may serve
					}
				})
			}
			return nil, l.lost(x, context.Cause(ctx))
		}
	}
}

// outgoing is a request before it has an id.
type outgoing struct {
	method       string
	params       json.RawMessage            // an object without _meta
	more         map[string]json.RawMessage // further members of it
	capabilities capabilities
	key          string  // idempotency key
	listen       *listen // of a subscriptions/listen: who is told
}

// encode makes the params of a request. Its id is also its progress token: a
// server that reports keeps the request from being given up in silence.
func (l *link) encode(o outgoing, id string) (json.RawMessage, error) {
	meta := map[string]any{}
	if o.listen == nil {
		meta["progressToken"] = id
	}
	if l.modern {
		meta[mcp.MetaKeyProtocolVersion] = l.session.InitializeResult().ProtocolVersion
		meta[mcp.MetaKeyClientInfo] = l.c.opts.Info
		meta[mcp.MetaKeyClientCapabilities] = o.capabilities.wire()
	}
	if o.key != "" {
		meta[keyMeta] = o.key
	}
	b, err := marshal(meta)
	if err != nil {
		return nil, err
	}
	params := addMember(o.params, "_meta", b)
	for name, value := range o.more {
		params = addMember(params, name, value)
	}
	return params, nil
}

// cancelled tells a server over a shared connection that nobody waits any more.
func (l *link) cancelled(id string) {
	params, err := json.Marshal(map[string]string{"requestId": id, "reason": "the client has stopped waiting"})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Second)
	defer cancel()
	if err := l.tap.Connection.Write(ctx, &jsonrpc.Request{Method: "notifications/cancelled", Params: params}); err != nil {
		l.c.log.Debug("a request could not be cancelled", "err", err)
	}
}

func (l *link) read(x *exchange, r *jsonrpc.Response) (json.RawMessage, error) {
	if r.Error == nil {
		if most := l.c.opts.Limits.Message; len(r.Result) > most {
			return nil, invalid("a result of %d bytes, over Limits.Message %d", len(r.Result), most)
		}
		if !isObject(r.Result) {
			return nil, invalid("the result is not one JSON object without names that come twice")
		}
		return r.Result, nil
	}
	var said *jsonrpc.Error
	if errors.As(r.Error, &said) {
		return nil, &serverError{Code: said.Code, Message: said.Message, Data: said.Data}
	}
	return nil, l.lost(x, r.Error) // the response ended without one
}

// notWritten sorts what Write returned by what the request has met.
func (l *link) notWritten(ctx context.Context, x *exchange, err error) error {
	status := x.statusCode()
	switch {
	case status == 0: // lost says whether it is
		return l.lost(x, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &linkError{kind: unauthorized, err: fmt.Errorf("HTTP %d", status)}
	}
	if said := x.rpcError(); said != nil {
		return said
	}
	switch {
	case status == http.StatusNotFound && l.session.ID() != "":
		// The session is gone; nothing was done in it.
		return &linkError{kind: notSent, err: errors.New("the session has ended")}
	case status == http.StatusTooManyRequests:
		return &linkError{kind: refused, err: errors.New("HTTP 429: too many requests"), after: x.retryAfter()}
	case status >= 300 && status < 400: // sent elsewhere, and not followed
		return &serverError{Message: fmt.Sprintf("HTTP %d: %v", status, err), Status: status}
	case status >= 400 && status < 500:
		return &serverError{Message: fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)), Status: status}
	}
	if status < 300 {
		return l.lost(x, err)
	}
	return l.lost(x, fmt.Errorf("HTTP %d %s", status, http.StatusText(status)))
}

// lost is the error of a request that the server may have done.
func (l *link) lost(x *exchange, err error) error {
	if l.web.isHTTP() && !x.left() {
		return &linkError{kind: notSent, err: err}
	}
	if broken := x.problem(); broken != nil {
		err = broken
	}
	return &linkError{kind: lost, err: err, after: x.retryAfter()}
}

// fate is what became of a request that got no response.
type fate int

const (
	notSent      fate = iota // none of it has left
	refused                  // it was turned away before it was looked at
	unauthorized             // so it was, for its credentials
	lost                     // the server may have done it
)

// A linkError says what became of a request that got no response.
type linkError struct {
	kind  fate
	err   error
	after time.Duration // what the server asks to be waited
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// A serverError is the server's own word that there is no result.
type serverError struct {
	Code    int64
	Message string
	Data    json.RawMessage
	Status  int // of HTTP, if that is all there is
}

func (e *serverError) Error() string {
	if e.Status != 0 {
		return "the server answered " + e.Message
	}
	return "the server answered " + strconv.FormatInt(e.Code, 10) + ": " + e.Message
}

const (
	mostTools = 10_000
	mostPages = 100
)

// tools lists the server's tools and learns their headers.
func (l *link) tools(ctx context.Context) ([]*mcp.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.opts.Limits.Request)
	defer cancel()
	var all []*mcp.Tool
	params := new(mcp.ListToolsParams)
	for range mostPages {
		page, err := l.session.ListTools(ctx, params)
		if err != nil {
			return nil, fmt.Errorf("client: listing the tools: %w", err)
		}
		if all = append(all, page.Tools...); len(all) > mostTools {
			return nil, fmt.Errorf("client: listing the tools: %w", invalid("there are more than %d", mostTools))
		}
		if page.NextCursor == "" {
			l.know(all)
			return all, nil
		}
		if page.NextCursor == params.Cursor {
			return nil, fmt.Errorf("client: listing the tools: %w", invalid("a page is followed by itself"))
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("client: listing the tools: %w", invalid("there are more than %d pages", mostPages))
}

// know remembers which headers tools want.
func (l *link) know(all []*mcp.Tool) {
	l.toolsMu.Lock()
	defer l.toolsMu.Unlock()
	for _, t := range all {
		l.bindings[t.Name] = paramHeaders(t.InputSchema)
	}
}

// headersOf are the Mcp-Param headers of a call, if its tool is known.
func (l *link) headersOf(tool string, arguments json.RawMessage) (headers map[string]string, known bool) {
	l.toolsMu.Lock()
	b, known := l.bindings[tool]
	l.toolsMu.Unlock()
	return paramValues(b, arguments), known
}

// inHeaders reports whether arguments of this call may have to be in headers.
func (l *link) inHeaders(e *entry) bool {
	return l.web.isHTTP() && l.modern && e.Method == methodTool
}

// exchangeOf is a new exchange with the headers of a call.
func (l *link) exchangeOf(e *entry) *exchange {
	x := new(exchange)
	if l.web.isHTTP() && l.modern {
		x.name = e.Name
	}
	if l.inHeaders(e) {
		x.headers, _ = l.headersOf(e.Name, e.Arguments)
	}
	return x
}

// learn finds out about a tool whose headers are not known. It reports whether
// they are now.
func (l *link) learn(ctx context.Context, tool string) bool {
	if _, known := l.headersOf(tool, nil); known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, l.c.opts.Limits.Request)
	defer cancel()
	_, err := l.tools(ctx)
	return err == nil
}
