package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// A fake is a server of revision 2026-07-28 that says what a test wants it to,
// over HTTP in memory: in a bubble of testing/synctest it has the bubble's time.
type fake struct {
	t        *testing.T
	discover string // the result of server/discover
	net      pipes

	mu   sync.Mutex // guards what follows
	says map[string]saying
	seen []request
}

// A saying answers a request.
type saying func(w http.ResponseWriter, r request)

// A request is one that the fake has got.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"` // of a response

	At     time.Time
	Header http.Header
	HTTP   *http.Request
}

// param is a member of the params.
func (r request) param(path ...string) string {
	v := r.Params
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(v, &object) != nil {
			return ""
		}
		v = object[name]
	}
	return string(v)
}

const (
	modernServer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{},` +
		`"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private"}`
	keepingServer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
		`"extensions":{"io.modelcontextprotocol/tasks":{},"tallystick/idempotencyKey":{"keptMs":3600000}}},"ttlMs":0,"cacheScope":"private"}`
	done = `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
)

// fakeServer starts a fake. It does not listen to tasks unless told to.
func fakeServer(t *testing.T, says map[string]saying) *fake {
	t.Helper()
	f := &fake{t: t, discover: modernServer, net: pipes{conns: make(chan net.Conn), closed: make(chan struct{})}, says: says}
	s := &http.Server{Handler: f}
	served := make(chan error, 1)
	go func() { served <- s.Serve(&f.net) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	body, err := io.ReadAll(h.Body)
	if err != nil {
		return
	}
	r := request{At: time.Now(), Header: h.Header, HTTP: h}
	if h.Method != http.MethodPost || json.Unmarshal(body, &r) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	f.mu.Lock()
	say := f.says[r.Method]
	discover := f.discover
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	switch {
	case say != nil:
		say(w, r)
	case r.Method == "server/discover":
		result(discover)(w, r)
	case len(r.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		refusal(-32601, "there is no "+r.Method, "")(w, r)
	}
}

// got are the requests of a method, in order.
func (f *fake) got(method string) []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.seen), func(r request) bool { return r.Method != method })
}

func (f *fake) transport() (mcp.Transport, error) {
	return &mcp.StreamableClientTransport{Endpoint: "http://fake.test/mcp", HTTPClient: &http.Client{Transport: f.net.roundTripper(f.t)}}, nil
}

// client is a client of the fake, with a memory of its own if opts have none.
func (f *fake) client(opts client.Options) *client.Client {
	f.t.Helper()
	if opts.Transport == nil {
		opts.Transport = f.transport
	}
	return newClient(f.t, opts)
}

// result answers with a result.
func result(raw string) saying {
	return func(w http.ResponseWriter, r request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, raw)
	}
}

// refusal answers with a JSON-RPC error.
func refusal(code int, message, data string) saying {
	return func(w http.ResponseWriter, r request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		more := ""
		if data != "" {
			more = `,"data":` + data
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, r.ID, code, message, more)
	}
}

// status answers with an HTTP status and headers, as proxies do.
func status(code int, headers ...string) saying {
	return func(w http.ResponseWriter, r request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		http.Error(w, http.StatusText(code), code)
	}
}

// hangUp closes the connection, after so much of a response.
func hangUp(part string) saying {
	return func(w http.ResponseWriter, r request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, part)
	}
}

// silence does not answer until the client is gone.
func silence(w http.ResponseWriter, r request) { <-r.HTTP.Context().Done() }

// stream answers with a stream of server-sent events, which are messages.
func stream(f func(send func(message string), r request)) saying {
	return func(w http.ResponseWriter, r request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		c := http.NewResponseController(w)
		_ = c.Flush()
		f(func(message string) {
			fmt.Fprintf(w, "data: %s\n\n", message)
			_ = c.Flush()
		}, r)
	}
}

// inTurn answers one request after another; the last one says the same again.
func inTurn(all ...saying) saying {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r request) {
		mu.Lock()
		say := all[min(n, len(all)-1)]
		n++
		mu.Unlock()
		say(w, r)
	}
}

// form is an inputRequests map with one form.
func form(key string) string {
	return fmt.Sprintf(`{%q:{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":`+
		`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}}}`, key)
}

func asking(requests, state string) saying {
	var parts []string
	if requests != "" {
		parts = append(parts, `"inputRequests":`+requests)
	}
	if state != "" {
		parts = append(parts, `"requestState":`+state)
	}
	return result(`{"resultType":"input_required",` + strings.Join(parts, ",") + `}`)
}

// task is a task as tasks/get gives it; CreateTaskResult with kind "task".
func task(kind, status, more string) saying {
	return result(taskJSON(kind, status, more))
}

func taskJSON(kind, status, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"resultType":%q,"taskId":"t-1","status":%q,"createdAt":"2026-11-30T10:00:00Z","lastUpdatedAt":"2026-11-30T10:00:00Z"%s}`, kind, status, more)
}

// pipes are connections in memory.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
	case <-ctx.Done():
	}
	ours.Close()
	theirs.Close()
	return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
}

func (p *pipes) roundTripper(t *testing.T) *http.Transport {
	next := &http.Transport{DialContext: p.dial}
	t.Cleanup(next.CloseIdleConnections)
	return next
}

// A line is a server over lines of JSON, as stdio's are.
type line struct {
	t *testing.T

	write sync.Mutex // one message at a time
	out   io.WriteCloser

	mu   sync.Mutex // guards what follows
	seen []request
}

// lineServer is a server of revision 2026-07-28 over lines.
func lineServer(t *testing.T, answer func(l *line, r request)) (*line, func() (mcp.Transport, error)) {
	return lines(t, func(l *line, r request) {
		if r.Method == "server/discover" {
			l.result(r, modernServer)
			return
		}
		answer(l, r)
	})
}

// oldLine is a server of the 2025 era over lines.
func oldLine(t *testing.T, answer func(l *line, r request)) (*line, func() (mcp.Transport, error)) {
	return lines(t, func(l *line, r request) {
		switch r.Method {
		case "server/discover":
			l.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, r.ID))
		case "initialize":
			l.result(r, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"o","version":"1"}}`)
		default:
			answer(l, r)
		}
	})
}

// lines answers each message of a client, in a goroutine of its own.
func lines(t *testing.T, answer func(l *line, r request)) (*line, func() (mcp.Transport, error)) {
	l := &line{t: t}
	return l, func() (mcp.Transport, error) {
		fromClient, toServer := io.Pipe()
		fromServer, toClient := io.Pipe()
		l.write.Lock()
		l.out = toClient
		l.write.Unlock()
		go func() {
			defer toClient.Close()
			var all sync.WaitGroup
			defer all.Wait()
			lines := bufio.NewReader(fromClient)
			for {
				b, err := lines.ReadBytes('\n')
				if err != nil {
					return
				}
				r := request{At: time.Now()}
				if json.Unmarshal(b, &r) != nil {
					t.Errorf("the client sent %q", b)
					return
				}
				l.mu.Lock()
				l.seen = append(l.seen, r)
				l.mu.Unlock()
				all.Go(func() { answer(l, r) })
			}
		}()
		return &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil
	}
}

func (l *line) send(message string) {
	l.write.Lock()
	defer l.write.Unlock()
	_, _ = io.WriteString(l.out, message+"\n") // the client may be gone
}

// hangUp ends the connection.
func (l *line) hangUp() {
	l.write.Lock()
	defer l.write.Unlock()
	_ = l.out.Close() // of a pipe, which always can be
}

func (l *line) result(r request, raw string) {
	l.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, raw))
}

func (l *line) got(method string) []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.seen), func(r request) bool { return r.Method != method })
}

// wants holds an error against what it should be.
func wants(t *testing.T, err error, kind error, words ...string) *client.Error {
	t.Helper()
	var known *client.Error
	if !errors.Is(err, kind) || !errors.As(err, &known) {
		t.Fatalf("the error is %v (%T), not %v", err, err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
	return known
}

// silent is who has no answer before the question is withdrawn.
func silent(ctx context.Context, _ client.Question) (client.Answer, error) {
	<-ctx.Done()
	return client.Answer{}, ctx.Err()
}
