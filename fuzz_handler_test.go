//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/wire/shape"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// A counter is a server that fuzzers talk to, past the network: everything that
// can be asked and called is behind it.
type counter struct {
	srv  *Server
	http http.Handler
	stop func()
	// paid counts the effects of "pay", each of which needs a yes.
	mu   sync.Mutex
	paid map[string]int
	log  bytes.Buffer // of errors

	session, state, look, task string
}

func newCounter(t testing.TB) *counter {
	ks, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	sdk := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	c := &counter{paid: map[string]int{}}
	srv, err := New(sdk, &Options{
		Store: memory.New(memory.Options{}), Keys: ks.AEAD(), Log: slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelError})),
		Limits: Limits{InlineWait: time.Millisecond, Sessions: 50, BodyBytes: 64 << 10, ArgumentsBytes: 32 << 10, ResultBytes: 64 << 10, LiveCalls: 500, Drain: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.srv = srv
	c.add()
	c.http = srv.Handler(nil)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- srv.Run(ctx) }()
	c.stop = func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
	<-srv.ready
	w := c.send(httptest.NewRequest("POST", "http://counter.example/", nil), request{body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, flags: inPlain})
	c.session = w.Header().Get("Mcp-Session-Id")
	c.state = c.field(t, `"name":"pay","arguments":{"orderId":"1"}`, "requestState")
	c.look = c.field(t, `"name":"look","arguments":{"orderId":"1"}`, "requestState")
	c.task = c.field(t, `"name":"job"`, "taskId")
	return c
}

// Write takes a line of the log.
func (c *counter) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(line)
}

// panicked returns what was logged since it was last asked, if that tells of a
// panic.
func (c *counter) panicked() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.log.String()
	c.log.Reset()
	if strings.Contains(said, "panic") {
		return said
	}
	return ""
}

func (c *counter) field(t testing.TB, params, name string) string {
	w := c.send(httptest.NewRequest("POST", "http://counter.example/", nil), request{body: fuzzCall("tools/call", params), flags: right})
	var m struct{ Result map[string]any }
	_ = json.Unmarshal(w.Body.Bytes(), &m)
	text, _ := m.Result[name].(string)
	if text == "" {
		t.Fatalf("no %s in %s", name, w.Body)
	}
	return text
}

type order struct {
	OrderID string `json:"orderId"`
}

func (c *counter) add() {
	s := c.srv
	AddTool(s, &mcp.Tool{Name: "pay"}, nil, func(ctx context.Context, call *Call, in order) (*mcp.CallToolResult, any, error) {
		if err := call.Confirm(Question{Key: "approve", Message: "Pay?", Facts: in.OrderID}); err != nil {
			return nil, nil, err
		}
		_, err := Once(ctx, call, Effect{Name: "pay", Subject: call.ID()}, func(context.Context, string) (int, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.paid[call.ID()]++
			return c.paid[call.ID()], nil
		})
		return nil, nil, err
	})
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	AddTool(s, &mcp.Tool{Name: "look", Annotations: readOnly}, nil, func(_ context.Context, call *Call, in order) (*mcp.CallToolResult, any, error) {
		for _, ask := range []mcp.InputRequest{
			&mcp.ElicitParams{Message: "Which?", RequestedSchema: &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"n": {Type: "integer"}}}},
			&mcp.ListRootsParams{},
		} {
			if _, err := call.Input(Question{Key: fmt.Sprintf("%T", ask)[5:]}, ask); err != nil && !errors.Is(err, ErrPending) {
				return nil, nil, err
			}
		}
		return nil, nil, call.Confirm(Question{Key: "sure", Message: "Sure?"})
	})
	AddTool(s, &mcp.Tool{Name: "job"}, &ToolOptions{Task: TaskRequired}, func(_ context.Context, call *Call, _ map[string]any) (*mcp.CallToolResult, any, error) {
		return nil, nil, call.Confirm(Question{Key: "go", Message: "Go?"})
	})
	routed := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`)
	AddTool(s, &mcp.Tool{Name: "routed", InputSchema: routed}, nil, func(_ context.Context, _ *Call, in map[string]any) (*mcp.CallToolResult, any, error) {
		return nil, in, nil
	})
	AddPrompt(s, &mcp.Prompt{Name: "letter", Arguments: []*mcp.PromptArgument{{Name: "to", Required: true}}}, func(_ context.Context, call *Call, args map[string]string) (*mcp.GetPromptResult, error) {
		if err := call.Confirm(Question{Key: "sure", Message: args["to"]}); err != nil {
			return nil, err
		}
		return &mcp.GetPromptResult{Description: args["to"]}, nil
	})
	read := func(_ context.Context, _ *Call, uri string) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: uri}}}, nil
	}
	AddResource(s, &mcp.Resource{URI: "order://all", Name: "all"}, read)
	AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "order://{id}", Name: "one"}, read)
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "plain"}, func(context.Context, *mcp.CallToolRequest, order) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
}

// What a request has before its own headers are set.
const (
	right     = 1 << iota // what the body says, as headers
	inSession             // of the 2025 era
	inPlain               // Content-Type and Accept alone
	anonymous             // no token
	byGet                 // else POST
	byDelete
)

type request struct {
	head, body string
	flags      uint8
}

const fuzzMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func fuzzCall(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,%s}}`, method, params, fuzzMeta)
}

// send gives a request to the handler, with $STATE, $LOOK, $TASK and $SESSION
// for what is there.
func (c *counter) send(r *http.Request, q request) *httptest.ResponseRecorder {
	fill := strings.NewReplacer("$STATE", c.state, "$LOOK", c.look, "$TASK", c.task, "$SESSION", c.session).Replace
	body := fill(q.body)
	r.Body = http.NoBody
	if body != "" {
		r.Body = &manyCloses{bytes.NewReader([]byte(body))}
	}
	r.ContentLength = int64(len(body))
	if q.flags&(right|inSession|inPlain) != 0 {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	switch {
	case q.flags&inSession != 0:
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	case q.flags&right != 0:
		var m struct {
			Method string
			Params struct{ Name, URI, TaskID string }
		}
		_ = json.Unmarshal([]byte(body), &m)
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", m.Method)
		r.Header.Set("Mcp-Name", m.Params.Name+m.Params.URI+m.Params.TaskID)
	}
	if head, err := textproto.NewReader(bufio.NewReader(strings.NewReader(fill(q.head) + "\r\n\r\n"))).ReadMIMEHeader(); err == nil {
		for name, values := range head {
			r.Header[name] = values
		}
	}
	if q.flags&anonymous == 0 {
		verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
			return &auth.TokenInfo{UserID: "ann", Expiration: time.Now().Add(time.Hour), Extra: map[string]any{"iss": "i", "tenant": "acme"}}, nil
		}
		r.Header.Set("Authorization", "Bearer ann")
		w := httptest.NewRecorder()
		auth.RequireBearerToken(verify, nil)(c.http).ServeHTTP(w, r)
		return w
	}
	w := httptest.NewRecorder()
	c.http.ServeHTTP(w, r)
	return w
}

// manyCloses is a body that can be closed twice.
type manyCloses struct{ *bytes.Reader }

func (*manyCloses) Close() error { return nil }

var fuzzRequests = []request{
	{"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1"}`), right},
	{"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1"},"requestState":"$STATE","inputResponses":{"approve":{"action":"accept","content":{"confirm":true}}}`), right},
	{"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"2"},"requestState":"$STATE","inputResponses":{"approve":{"action":"accept","content":{"confirm":true}}}`), right},
	{"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1"},"requestState":"$STATEx"`), right},
	{"", fuzzCall("tools/call", `"name":"look","arguments":{"orderId":"1"},"requestState":"$LOOK","inputResponses":{"ElicitParams":{"action":"accept","content":{"n":7}},"ListRootsParams":{"roots":[{"uri":"file:///a"}]},"sure":{"action":"accept","content":{"confirm":true}}}`), right},
	{"", fuzzCall("tools/call", `"name":"look","arguments":{"orderId":"1"},"requestState":"$LOOK","inputResponses":{"ListRootsParams":{"roots":[],"Roots":[{"uri":"https://evil"}]}}`), right},
	{"", fuzzCall("tools/call", `"name":"job"`), right},
	{"Mcp-Param-Region: =?base64?ZXU=?=\r\nMcp-Param-N: 7", fuzzCall("tools/call", `"name":"routed","arguments":{"region":"eu","n":7}`), right},
	{"Mcp-Param-Region: us\r\nMcp-Param-N: 9007199254740992", fuzzCall("tools/call", `"name":"routed","arguments":{"region":"eu","n":9007199254740993}`), right},
	{"", fuzzCall("tools/call", `"name":"plain","arguments":{"orderId":"1"}`), right},
	{"", fuzzCall("tools/call", `"name":"call_status","arguments":{"callId":"$TASK"}`), right},
	{"", fuzzCall("prompts/get", `"name":"letter","arguments":{"to":"x"}`), right},
	{"", fuzzCall("resources/read", `"uri":"order://all"`), right},
	{"", fuzzCall("resources/read", `"uri":"order://7%00"`), right},
	{"", fuzzCall("resources/read", `"uri":"order:\u0000"`), right},
	{"", fuzzCall("tasks/get", `"taskId":"$TASK"`), right},
	{"", fuzzCall("tasks/update", `"taskId":"$TASK","inputResponses":{"go":{"action":"accept","content":{"confirm":1}}}`), right},
	{"", fuzzCall("tasks/cancel", `"taskId":"none"`), right},
	{"", fuzzCall("subscriptions/listen", `"notifications":{"taskIds":["$TASK","none"],"toolsListChanged":true}`), right},
	{"", fuzzCall("subscriptions/listen", `"notifications":{"TaskIds":["$TASK"],"resourceSubscriptions":[1]}`), right},
	{"", fuzzCall("server/discover", `"x":1`), right}, {"", fuzzCall("tools/list", `"cursor":"x"`), right}, {"", fuzzCall("ping", `"x":1`), right}, {"", fuzzCall("notifications/cancelled", `"requestId":1`), right}, {"", fuzzCall("completion/complete", `"ref":{"type":"ref/prompt","name":"letter"},"argument":{"name":"to","value":""}`), right},
	{"", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"orderId":"1"}}}`, inSession}, {"", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, inSession}, {"", `{"jsonrpc":"2.0","id":1,"result":{}}`, inSession}, {"", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"letter","arguments":{"to":"x"}}}`, inSession},
	{"", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0","capabilities":{"roots":1}}}`, inPlain}, {"Mcp-Session-Id: none", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, inPlain}, {"", "", inSession | byGet}, {"Mcp-Session-Id: none", "", byDelete}, {"Last-Event-Id: 7", "", inSession | byGet},
	{"Last-Event-Id: 1\r\nOrigin: https://counter.example", fuzzCall("tools/list", `"x":1`), right}, {"Origin: null", "", 0}, {"Accept: text/*, application/*\r\nContent-Type: application/json; charset=x", fuzzCall("tools/list", `"x":1`), right}, {"Mcp-Name: =?base64?cGF5?=", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1"}`), right | anonymous},
	{"Mcp-Name: pay\r\nMcp-Name: pay", fuzzCall("tools/call", `"name":"pay"`), right}, {"", "[" + fuzzCall("tools/list", `"x":1`) + "]", right}, {"", "\xef\xbb\xbf" + fuzzCall("tools/list", `"x":1`), right}, {"", fuzzCall("tools/list", `"x":1`) + "\x00", right}, {"", "", right},
	{"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1","OrderId":"2"}`), right}, {"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"1","order\u0049d":"2"}`), right}, {"", fuzzCall("tools/call", `"name":"pay\u0000","arguments":{"orderId":"1\u0000"}`), right}, {"", fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"\ud800"}`), right},
	{"", fuzzCall("tools/call", `"name":"job","arguments":{"a":1e24,"b":1000000000000000000000000,"c":9007199254740993,"d":-0,"e":1e400}`), right}, {"", fuzzCall("tools/call", `"name":"job","arguments":{"a":`+strings.Repeat("[", 61)+strings.Repeat("]", 61)+`}`), right}, {"", fuzzCall("tools/call", `"name":"job","arguments":{"a":`+strings.Repeat("[", 62)+strings.Repeat("]", 62)+`}`), right},
	{"", strings.Repeat("[", 60_000), right}, {"", fuzzCall("tools/call", `"name":"pay","arguments":{"`+strings.Repeat("k", 2000)+`":1}`), right}, {"", strings.Replace(fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"k"}`), `"_meta":{`, `"_meta":{"tallystick/idempotencyKey":"k","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","progressToken":1,`, 1), right},
	{"", strings.Replace(fuzzCall("tools/call", `"name":"pay","arguments":{"orderId":"k"}`), `"_meta":{`, `"_meta":{"tallystick/idempotencyKey":"`+strings.Repeat("k", 257)+`",`, 1), right}, {"", fuzzCall("tools/call", `"name":"pay","arguments":null,"requestState":null,"inputResponses":null`), right},
}

// FuzzHandler: whatever headers and body come over HTTP, the answer has the
// shape and the status that the protocol gives it, is none of a failure of ours,
// and no call's effect happens twice.
func FuzzHandler(f *testing.F) {
	for _, q := range fuzzRequests {
		f.Add(q.head, []byte(q.body), q.flags)
	}
	judge, err := shape.FromEnvironment()
	if err != nil {
		f.Fatal(err)
	}
	c, served := newCounter(f), 0
	f.Cleanup(func() { c.stop() })
	f.Fuzz(func(t *testing.T, head string, body []byte, flags uint8) {
		if served++; served%2000 == 0 { // what is kept must not slow the rest down
			c.stop()
			c = newCounter(t)
		}
		c.check(t, judge, request{head, string(body), flags})
	})
}

func (c *counter) check(t *testing.T, judge *shape.Judge, q request) {
	t.Helper()
	method := http.MethodPost
	switch {
	case q.flags&byGet != 0:
		method = http.MethodGet
	case q.flags&byDelete != 0 && q.flags&inSession == 0: // the session is the next one's too
		method = http.MethodDelete
	}
	patience := 20 * time.Second
	if endless := method == http.MethodGet || strings.Contains(q.body, "listen"); endless {
		patience = 10 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "http://counter.example/", nil)
	w := c.send(r, q)
	if patience > time.Second && ctx.Err() != nil {
		t.Fatalf("no answer to %q", q)
	}
	answer := w.Body.Bytes()
	tell := func(what any) { t.Fatalf("%v: %d %.1000s to %.2000q", what, w.Code, answer, q) }
	if trace := c.panicked(); trace != "" {
		tell(trace)
	}
	busy := bytes.Contains(answer, []byte("too many sessions")) || bytes.Contains(answer, []byte("still being worked on"))
	if w.Code >= 500 && !busy && ctx.Err() == nil {
		tell("a failure of ours")
	}
	sent := strings.NewReplacer("$STATE", c.state, "$LOOK", c.look, "$TASK", c.task, "$SESSION", c.session).Replace(q.body)
	if method == http.MethodPost && saysModern(r, sent) {
		if err := judge.Response([]byte(sent), w.Code, w.Header().Get("Content-Type"), answer); err != nil && ctx.Err() == nil {
			tell(err)
		}
	}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(answer) {
		tell("no JSON")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.paid {
		if n > 1 {
			t.Fatalf("call %s has paid %d times", id, n)
		}
	}
}

// saysModern says whether a request is of revision 2026-07-28, by its header or
// by a _meta that is one to every reader.
func saysModern(r *http.Request, body string) bool {
	var m struct {
		Params struct {
			Meta map[string]any `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal([]byte(body), &m)
	_, inBody := m.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	return inBody || r.Header.Get("Mcp-Protocol-Version") == "2026-07-28"
}
