package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestForeignOriginsAndHostsAreRefused(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.AllowedOrigins = []string{"https://app.example"} })
	for _, c := range []struct {
		origin, host string
		status       int
	}{
		{"", "", 200},
		{"http://evil.example", "", 403},
		{"null", "", 403},
		{"https://app.example", "", 200},
		{"https://app.example.evil.example", "", 403},
		{"http://localhost:6274", "", 200},
		{"http://127.0.0.1.evil.example", "", 403},
		{"", "evil.example", 403},
		{"", "localhost", 200},
		{"http://evil.example", "evil.example", 403},
		{"file:///etc", "", 403},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			req := newPost(t, server.URL, call("1", "echo", "{}"))
			req.Method = method
			if c.origin != "" {
				req.Header.Set("Origin", c.origin)
			}
			if c.host != "" {
				req.Host = c.host
			}
			status, _ := send(t, server, req)
			want := c.status
			if method == http.MethodGet && want == 200 {
				want = http.StatusMethodNotAllowed
			}
			if status != want {
				t.Errorf("%s Origin %q Host %q: status %d, want %d", method, c.origin, c.host, status, want)
			}
		}
	}
}

func TestSameHostIsNoForeignOriginOffLoopback(t *testing.T) {
	front := NewHTTP(newFake(), HTTPOptions{Server: newSDKServer()})
	for origin, want := range map[string]int{
		"https://mcp.example": 200, "https://MCP.example:443": 200, "https://mcp.example:8443": 403, "http://localhost": 403,
	} {
		req := newPost(t, "https://mcp.example/mcp", call("1", "echo", "{}"))
		req.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		front.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("Origin %s: status %d, want %d", origin, w.Code, want)
		}
	}
}

func TestWhatIsNoMessageIsRefusedBeforeItIsParsed(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"text":              {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"no content type":   {func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		"charset":           {func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }, 200},
		"json only":         {func(r *http.Request) { r.Header.Set("Accept", "application/json") }, 400},
		"anything accepted": {func(r *http.Request) { r.Header.Set("Accept", "*/*") }, 200},
		"with parameters":   {func(r *http.Request) { r.Header.Set("Accept", "application/json;q=1, text/event-stream;q=0.5") }, 200},
		"PUT":               {func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"GET":               {func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"DELETE":            {func(r *http.Request) { r.Method = http.MethodDelete }, 405},
	} {
		req := newPost(t, server.URL, call("1", "echo", "{}"))
		c.change(req)
		if status, _ := send(t, server, req); status != c.status {
			t.Errorf("%s: status %d, want %d", name, status, c.status)
		}
	}
}

func TestRepeatedHeadersAreRefused(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	for _, name := range []string{headerVersion, headerMethod, headerName, "Mcp-Param-Region"} {
		req := newPost(t, server.URL, call("1", "routed", `{"region":"eu"}`))
		req.Header.Set("Mcp-Param-Region", "eu")
		req.Header.Add(name, req.Header.Get(name))
		status, messages := send(t, server, req)
		if status != 400 || !strings.Contains(messages[0], "-32020") {
			t.Errorf("two %s: %d %s", name, status, messages)
		}
	}
}

// endless is a body without end, which counts what was taken of it.
type endless struct{ n atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.n.Add(int64(len(p)))
	return len(p), nil
}

// case S106
func TestAnEndlessBodyIsRefusedAtTheLimit(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	body := &endless{}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.LimitReader(body, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = newPost(t, server.URL, "{}").Header
	status, messages := send(t, server, req)
	if status != 413 || !strings.Contains(messages[0], "Limits.BodyBytes") {
		t.Errorf("got %d %s", status, messages)
	}
	if n := body.n.Load(); n > 64<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// case S106
func TestAnAnnouncedLargeBodyIsRefusedUnread(t *testing.T) {
	front := NewHTTP(newFake(), HTTPOptions{Server: newSDKServer()})
	req := newPost(t, "http://mcp.example", "{}")
	body := &endless{}
	req.Body, req.ContentLength = io.NopCloser(body), 1<<30
	w := httptest.NewRecorder()
	front.ServeHTTP(w, req)
	if n := body.n.Load(); w.Code != 413 || n != 0 {
		t.Errorf("status %d after %d bytes", w.Code, n)
	}
}

func TestPartsOverTheirLimitNameIt(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) {
		o.Limits = Limits{ArgumentsBytes: 100, AnswerBytes: 50, StateBytes: 20, Nesting: 5}
	})
	for field, c := range map[string]struct {
		params string
		status int
	}{
		"ArgumentsBytes": {`"arguments":{"a":"` + strings.Repeat("x", 100) + `"}`, 413},
		"AnswerBytes":    {`"inputResponses":{"k":{"a":"` + strings.Repeat("x", 50) + `"}}`, 413},
		"StateBytes":     {`"requestState":"` + strings.Repeat("x", 21) + `"`, 413},
		"Nesting":        {`"arguments":{"a":[[[]]]}`, 400},
	} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",%s,%s}}`, c.params, modernMeta)
		status, messages := send(t, server, newPost(t, server.URL, body))
		if status != c.status || !strings.Contains(messages[0], "Limits."+field) || !strings.Contains(messages[0], `"id":1`) {
			t.Errorf("%s: %d %s", field, status, messages)
		}
	}
}

func TestManyNestedArraysFailFast(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	deep := strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)
	for _, body := range []string{
		deep, call("1", "echo", `{"a":`+deep+`}`), call("1", "sdk_tool", `{"a":`+deep+`}`), strings.Repeat(`{"a":`, 200_000),
	} {
		start := time.Now()
		if status, _ := send(t, server, newPost(t, server.URL, body)); status != 400 {
			t.Errorf("status %d", status)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
	}
}

func TestInvalidUTF8IsRefused(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	for _, body := range []string{call("1", "echo", "{\"a\":\"\xff\"}"), call("1", "echo", "{\"\xc0\xaf\":1}"), call("\"\xed\xa0\x80\"", "echo", "{}")} {
		if status, messages := send(t, server, newPost(t, server.URL, body)); status != 400 || !strings.Contains(messages[0], "-32700") {
			t.Errorf("got %d %s", status, messages)
		}
	}
}

// withToken puts facts about a token into requests as the SDK's own middleware
// would, from the headers Test-User and Test-Tenant.
func withToken(next http.Handler, expires time.Time) http.Handler {
	verify := func(_ context.Context, token string, r *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: expires, Extra: map[string]any{"tenant": r.Header.Get("Test-Tenant")}}, nil
	}
	return auth.RequireBearerToken(verify, nil)(next)
}

func TestTheTokenReachesTheHandlerUntilItExpires(t *testing.T) {
	now := time.Now()
	fake := newFake()
	front := NewHTTP(fake, HTTPOptions{Server: newSDKServer(), ServerInfo: json.RawMessage(serverInfo), Now: func() time.Time { return now }})
	server := httptest.NewServer(withToken(front, now.Add(time.Hour)))
	defer server.Close()
	post := func() (int, []string) {
		req := newPost(t, server.URL, call("1", "block", "{}"))
		req.Header.Set("Authorization", "Bearer ann")
		return send(t, server, req)
	}
	close(fake.release)
	if status, messages := post(); status != 200 {
		t.Fatalf("got %d %s", status, messages)
	}
	r := <-fake.entered
	if r.Token() == nil || r.Token().UserID != "ann" || r.Header().Get(headerName) != "block" {
		t.Errorf("token %v, header %v", r.Token(), r.Header())
	}
	now = now.Add(time.Hour)
	if status, _ := post(); status != 401 {
		t.Errorf("status %d with an expired token", status)
	}
}

func TestNotReadyIs503(t *testing.T) {
	ready := false
	front, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.Ready = func() bool { return ready } })
	get := func() *http.Response {
		resp, err := server.Client().Do(newPost(t, server.URL, call("1", "echo", "{}")))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := get(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("before it is ready: %d", resp.StatusCode)
	}
	ready = true
	if resp := get(); resp.StatusCode != 200 {
		t.Errorf("when it is ready: %d", resp.StatusCode)
	}
	if err := front.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resp := get(); resp.StatusCode != 503 {
		t.Errorf("after Shutdown: %d", resp.StatusCode)
	}
}

func TestADroppedConnectionEndsTheHandlersContext(t *testing.T) {
	fake := newFake()
	_, server := newHTTPServer(t, fake, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := server.Client().Do(newPost(t, server.URL, call("1", "block", "{}")).WithContext(ctx))
		done <- err
	}()
	<-fake.entered
	hangUp()
	<-done
	if err := <-fake.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cause %v", err)
	}
}

func TestABodyThatDoesNotEndIsGivenUp(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.BodyTimeout = 20 * time.Millisecond })
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 100\r\n\r\n{")
	answer, err := io.ReadAll(conn) // and the connection is closed
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestTheTimeForTheBodyIsNotTheHandlers(t *testing.T) {
	fake := newFake()
	_, server := newHTTPServer(t, fake, func(o *HTTPOptions) { o.BodyTimeout, o.KeepAlive = 20*time.Millisecond, 60*time.Millisecond })
	resp, err := server.Client().Do(newPost(t, server.URL, call("1", "block", "{}")))
	if err != nil {
		t.Fatal(err) // the first comment has come: BodyTimeout is over
	}
	defer resp.Body.Close()
	select {
	case cause := <-fake.ended:
		t.Fatalf("the handler's context ended: %v", cause)
	default:
	}
	close(fake.release)
	if rest, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(rest, []byte(`"result"`)) {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestAClientThatDoesNotReadHoldsNoHandler(t *testing.T) {
	fake := newFake()
	_, server := newHTTPServer(t, fake, func(o *HTTPOptions) { o.WriteTimeout = 50 * time.Millisecond })
	resp, err := server.Client().Do(newPost(t, server.URL, call("1", "flood", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := <-fake.ended; err == nil {
		t.Error("no error")
	}
}

// What the SDK answers is written as patiently, in either era.
func TestAClientThatDoesNotReadHoldsNoHandlerOfTheSDKs(t *testing.T) {
	sdk := newSDKServer()
	sdk.AddTool(&mcp.Tool{Name: "unknown", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 5<<20)}}}, nil
		})
	front, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.Server, o.WriteTimeout = sdk, 300*time.Millisecond })
	running := func() int {
		front.life.state.mu.Lock()
		defer front.life.state.mu.Unlock()
		return front.life.state.running
	}
	session := legacyClient{server: server}.open(t)
	for era, req := range map[string]*http.Request{
		"modern": newPost(t, server.URL, call("1", "unknown", "{}")),
		"legacy": session.request(t, http.MethodPost, strings.Replace(legacyCall, "sdk_tool", "unknown", 1)),
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); running() > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the request is still held", era)
			}
		}
	}
}

// A body that comes on and on, if slowly, is given up as one that does not, and
// holds nobody up meanwhile.
func TestABodyThatDribblesIsGivenUp(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.BodyTimeout = 200 * time.Millisecond })
	ended := make(chan string, 8)
	for range cap(ended) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nTransfer-Encoding: chunked\r\n\r\n")
		go func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := io.WriteString(conn, "1\r\n \r\n"); err != nil {
					return // closed
				}
			}
		}()
		go func() {
			defer conn.Close()
			answer, _ := io.ReadAll(conn)
			ended <- string(answer)
		}()
	}
	if status, messages := send(t, server, newPost(t, server.URL, call("1", "echo", "{}"))); status != 200 {
		t.Errorf("meanwhile: %d %s", status, messages)
	}
	for range cap(ended) {
		if answer := <-ended; !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
			t.Errorf("got %q", answer)
		}
	}
}

// case S97: what keeps a long call's connection is no progress report.
func TestSilenceIsBrokenByComments(t *testing.T) {
	fake := newFake()
	_, server := newHTTPServer(t, fake, func(o *HTTPOptions) { o.KeepAlive = time.Millisecond })
	resp, err := server.Client().Do(newPost(t, server.URL, call("1", "block", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	comment := make([]byte, len(": keep-alive\n\n"))
	if _, err := io.ReadFull(resp.Body, comment); err != nil || string(comment) != ": keep-alive\n\n" {
		t.Fatalf("got %q, %v", comment, err)
	}
	close(fake.release)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(rest, []byte(`data: {"jsonrpc":"2.0","id":1,"result":`)) {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestNotifyAfterTheAnswerIsAnError(t *testing.T) {
	fake := newFake()
	_, server := newHTTPServer(t, fake, nil)
	close(fake.release)
	send(t, server, newPost(t, server.URL, call("1", "block", "{}")))
	r := <-fake.entered
	if err := r.Notify(t.Context(), "notifications/progress", nil); err == nil {
		t.Error("no error")
	}
}

// A logBuffer is written by the server and read by the test.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was written and forgets it.
func (l *logBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

func TestLogsHaveTheDetailAndResponsesTheCorrelation(t *testing.T) {
	var log logBuffer
	_, server := newHTTPServer(t, newFake(), func(o *HTTPOptions) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for _, tool := range []string{"panic", "fails"} {
		_, messages := send(t, server, newPost(t, server.URL, call("1", tool, `{"password":"swordfish"}`)))
		var m struct {
			Error struct {
				Data struct{ CorrelationID string }
			}
		}
		if err := json.Unmarshal([]byte(messages[0]), &m); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(messages[0], "hunter2") || m.Error.Data.CorrelationID == "" {
			t.Errorf("response %s", messages[0])
		}
		logged := log.take()
		if !strings.Contains(logged, "hunter2") || !strings.Contains(logged, m.Error.Data.CorrelationID) || strings.Contains(logged, "swordfish") {
			t.Errorf("log %s", logged)
		}
	}
}

func TestTheSDKsOwnClientIsServed(t *testing.T) {
	_, server := newHTTPServer(t, newFake(), nil)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: server.Client()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for tool, want := range map[string]string{"sdk_type": "hello", "sdk_tool": "from the SDK {}"} {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if text, ok := res.Content[0].(*mcp.TextContent); !ok || text.Text != want {
			t.Errorf("%s: %v", tool, res.Content)
		}
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestAListenAtTheSDKEndsWithItsClientAndWithTheServer(t *testing.T) {
	for _, how := range []string{"client", "server"} {
		t.Run(how, func(t *testing.T) {
			front, server := newHTTPServer(t, newFake(), nil)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			body := `{"jsonrpc":"2.0","id":1000000000000000000000001,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
			resp, err := server.Client().Do(newPost(t, server.URL, body).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, 300)
			n, _ := resp.Body.Read(first)
			if got := string(first[:n]); !strings.Contains(got, "acknowledged") || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":1000000000000000000000001`) {
				t.Fatalf("got %q", got)
			}
			if how == "client" {
				hangUp()
			} else if err := front.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body) // ends
		})
	}
}
