package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerName    = "Mcp-Name"

	maxErrorBody = 64 << 10        // of a response that is no success
	maxWait      = 5 * time.Minute // of what a Retry-After may ask
	maxNesting   = 512             // arrays and objects inside one another
)

// An exchange is what becomes known of one request beneath the SDK's transport.
// It travels in the request's context; other transports leave it empty.
type exchange struct {
	name    string            // Mcp-Name: the SDK sets none, or as it is
	headers map[string]string // Mcp-Param-…

	// stays: the transport says that it has no connection yet, so that nothing
	// can have left. One that tells nothing of its connections may have sent it.
	stays atomic.Bool

	mu     sync.Mutex // guards what follows
	sent   bool       // a transport was given it
	status int
	after  time.Duration
	body   []byte // of a response that is no success
	broken error  // why the response cannot be read
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func (x *exchange) statusCode() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status
}

func (x *exchange) retryAfter() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.after
}

// left reports whether the server may have got some of it.
func (x *exchange) left() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent && (x.status != 0 || !x.stays.Load())
}

func (x *exchange) broke(err error) {
	x.mu.Lock()
	x.broken = err
	x.mu.Unlock()
}

func (x *exchange) problem() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.broken
}

// refused reports whether the server has said that it does not do what it was
// asked for, which is another thing than that it cannot just now, or not for
// this client. answered: a JSON-RPC response has come.
func (x *exchange) refused(answered bool) bool {
	switch status := x.statusCode(); {
	case status < http.StatusMultipleChoices: // 0: not HTTP
		return answered
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired,
		status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return false
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return true
	}
	said := x.rpcError()
	return said != nil && said.Code == codeMethodNotFound
}

// rpcError is the JSON-RPC error that came with an HTTP status, if one did.
func (x *exchange) rpcError() *serverError {
	x.mu.Lock()
	defer x.mu.Unlock()
	var m struct {
		Error *struct {
			Code    int64           `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if !isObject(x.body) || unmarshal(x.body, &m) != nil || m.Error == nil || m.Error.Code == 0 {
		return nil
	}
	return &serverError{Code: m.Error.Code, Message: m.Error.Message, Data: m.Error.Data}
}

// A web is what lies beneath the SDK's Streamable HTTP transport: it bounds what
// is read, adds headers that the SDK does not know of, and notes what becomes
// of each request.
type web struct {
	t     *mcp.StreamableClientTransport // with this web beneath
	next  http.RoundTripper
	limit int
	gone  func() // the server knows the session no more

	version atomic.Pointer[string] // of a 2025-era session
}

func newWeb(t *mcp.StreamableClientTransport, limit int, gone func()) *web {
	own := *t
	w := &web{t: &own, limit: limit, gone: gone}
	user := http.Client{}
	if t.HTTPClient != nil {
		user = *t.HTTPClient
	}
	if w.next = user.Transport; w.next == nil {
		w.next = http.DefaultTransport
	}
	user.Transport = w
	if user.CheckRedirect == nil {
		user.CheckRedirect = sameOrigin
	}
	own.HTTPClient = &user
	if own.MaxEventSize == 0 {
		own.MaxEventSize = limit
	}
	return w
}

// sameOrigin keeps a server from sending arguments and answers elsewhere.
func sameOrigin(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		return fmt.Errorf("the server sends its requests on to %s://%s: if that is right, use that URL", r.URL.Scheme, r.URL.Host)
	}
	if len(via) >= 10 {
		return errors.New("the server sends the request round and round")
	}
	return nil
}

func (w *web) isHTTP() bool                              { return w != nil }
func (w *web) transport() *mcp.StreamableClientTransport { return w.t }
func (w *web) legacy(version string)                     { w.version.Store(&version) }

// RoundTrip implements [http.RoundTripper].
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		x = new(exchange)
	}
	x.mu.Lock()
	first := !x.sent
	x.sent = true
	// Of what came before (a 401, a redirect) nothing is true of this sending.
	x.status, x.after, x.body = 0, 0, nil
	x.mu.Unlock()
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) {
			if first {
				first = false
				x.stays.Store(true)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { x.stays.Store(false) },
	})
	r = r.Clone(ctx)
	if v := w.version.Load(); v != nil && r.Header.Get(headerVersion) == "" {
		r.Header.Set(headerVersion, *v)
	}
	if x.name != "" {
		r.Header.Set(headerName, encodeHeader(x.name))
	}
	for name, value := range x.headers {
		r.Header.Set(name, value)
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.status, x.after, x.body = resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now()), nil
	x.mu.Unlock()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		body, err := readBody(resp, maxErrorBody)
		if err != nil && !errors.Is(err, errTooLarge) {
			return nil, err
		}
		x.mu.Lock()
		x.body = body
		x.mu.Unlock()
		if r.Method == http.MethodPost && !isRPC(body) {
			putBody(resp, []byte(rejected)) // it costs this request only
			if resp.StatusCode == http.StatusNotFound && r.Header.Get(headerSession) != "" {
				w.gone()
			}
		}
	case kind == "text/event-stream" && r.Method == http.MethodPost:
		resp.Body = newSieve(resp.Body, w.limit, x.broke)
	case kind == "application/json":
		// Read here, so that a body that breaks off or is no message costs this
		// request only and not the SDK's session.
		body, err := readBody(resp, w.limit)
		switch {
		case err == nil && !shallow(body):
			err = invalid("over the limit nesting %d", maxNesting)
		case err == nil && !isRPC(body):
			err = errors.New("the response is no JSON-RPC message")
			resp.Header.Del("Content-Type") // nothing reads it then
			x.broke(err)
			return resp, nil
		}
		if err != nil {
			x.broke(err)
			return nil, err
		}
	}
	return resp, nil
}

// rejected stands for a response that says no by its HTTP status alone. The SDK
// gives up its session otherwise, and with it all that is under way.
const rejected = `{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"see the HTTP status"}}`

func isRPC(body []byte) bool {
	if !shallow(body) {
		return false
	}
	_, err := jsonrpc.DecodeMessage(body)
	return err == nil
}

// CloseIdleConnections lets http.Client's reach the transport beneath.
func (w *web) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

var errTooLarge = errors.New("too large")

// readBody reads a body and puts it back.
func readBody(resp *http.Response, limit int) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if len(body) > limit {
		body = body[:limit]
		err = fmt.Errorf("%w: the response is %w, over the limit of %d bytes: raise Limits.Message", ErrInvalidResponse, errTooLarge, limit)
	}
	putBody(resp, body)
	return body, err
}

func putBody(resp *http.Response, body []byte) {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// shallow reports whether b is not nested too deep for readers that recur.
func shallow(b []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if v == "" {
		return 0
	}
	wait := time.Duration(0)
	if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
		wait = time.Duration(min(n, int(maxWait/time.Second))) * time.Second
	} else if t, err := http.ParseTime(v); err == nil {
		wait = t.Sub(now)
	}
	return max(0, min(wait, maxWait))
}

// listen reads the stream on which a 2025-era server sends what belongs to no
// request, until ctx ends. Servers need not have one. The SDK opens it only
// when it knows its own connection, and not through a tap.
func (w *web) listen(ctx context.Context, session string, t *tap) {
	last := ""
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		began := time.Now()
		served, err := w.stream(ctx, session, &last, t)
		if !served || ctx.Err() != nil {
			return
		}
		t.l.c.log.Debug("the server's own stream has ended", "err", err)
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		case <-t.done:
			return
		}
	}
}

// stream reads one such stream to its end. It reports whether the server has
// one at all.
func (w *web) stream(ctx context.Context, session string, last *string, t *tap) (served bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.t.Endpoint, nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if session != "" {
		r.Header.Set(headerSession, session)
	}
	if *last != "" {
		r.Header.Set("Last-Event-ID", *last)
	}
	if h := w.t.OAuthHandler; h != nil {
		if source, err := h.TokenSource(ctx); err == nil && source != nil {
			if token, err := source.Token(); err == nil {
				token.SetAuthHeader(r)
			}
		}
	}
	resp, err := w.t.HTTPClient.Do(r)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return resp.StatusCode >= 500, fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return true, events(resp.Body, w.limit, func(id string, data []byte) error {
		if id != "" {
			*last = id
		}
		if len(data) == 0 {
			return nil
		}
		if !shallow(data) {
			return invalid("over the limit nesting %d", maxNesting)
		}
		msg, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			return err
		}
		select {
		case t.more <- msg:
			return nil
		case <-t.done:
			return t.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// events reads a stream of server-sent events, each of at most limit bytes.
func events(r io.Reader, limit int, f func(id string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, limit)
	var id string
	var data []byte
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if err := f(id, data); err != nil {
				return err
			}
			data = nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			id = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			if data = append(data, value...); len(data) > limit {
				return errTooLarge
			}
		}
	}
	return lines.Err()
}
