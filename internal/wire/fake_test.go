package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// case S102: no goroutine outlives a server or its clients.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeHandler owns everything but the tool sdk_tool, and listens only if told.
type fakeHandler struct {
	// entered and ended, if set, are told when the tool "block" starts and why
	// its context ended.
	entered chan *Request
	ended   chan error
	release chan struct{}
	listens bool
}

func (f *fakeHandler) Owns(method, name string) bool {
	switch method {
	case MethodCallTool:
		return name != "sdk_tool" && name != "unknown"
	case MethodListen:
		return f.listens
	case MethodReadResource:
		return !strings.HasPrefix(name, "sdk:")
	}
	return true
}

func (f *fakeHandler) ParamHeaders(tool string) []ParamHeader {
	if tool != "routed" {
		return nil
	}
	return []ParamHeader{{Path: []string{"region"}, Header: "Region"}, {Path: []string{"deep", "n"}, Header: "N"}}
}

// seen is the request as the handler saw it, in what the tool "echo" and other
// methods answer.
func seen(r *Request) map[string]any {
	m := map[string]any{"id": r.ID, "method": r.Method, "name": r.Name}
	if r.Arguments != nil {
		m["arguments"] = string(r.Arguments)
	}
	if r.InputResponses != nil {
		m["inputResponses"] = r.InputResponses
	}
	if r.HasRequestState {
		m["requestState"] = r.RequestState
	}
	if r.DeclaresTasks() {
		m["tasks"] = true
	}
	return m
}

// answered is the result of a method other than tools/call. That of an update
// or a cancel is empty, but for _meta.
func answered(r *Request) *Response {
	result := map[string]any{"resultType": "complete", "seen": seen(r)}
	switch r.Method {
	case MethodGetPrompt:
		result["messages"] = []any{}
	case MethodReadResource:
		result["contents"], result["ttlMs"], result["cacheScope"] = []any{}, 0, "private"
	case MethodTaskGet:
		result["taskId"], result["status"], result["ttlMs"] = r.Name, "working", 1
		result["createdAt"], result["lastUpdatedAt"] = "2026-07-28T00:00:00Z", "2026-07-28T00:00:00Z"
	case MethodTaskUpdate, MethodTaskCancel:
		result = map[string]any{"resultType": "complete", "_meta": map[string]any{"seen": seen(r)}}
	}
	return &Response{Result: result}
}

func (f *fakeHandler) Handle(ctx context.Context, r *Request) (*Response, error) {
	text := map[string]any{"content": []any{}}
	switch {
	case r.Method == MethodTaskGet && r.Name != "t1":
		return nil, Errorf(CodeInvalidParams, "no such task")
	case r.Method != MethodCallTool:
		return answered(r), nil
	}
	switch r.Name {
	case "html":
		text["content"] = []any{map[string]any{"type": "text", "text": "<a & b>\u2028"}}
	case "sdk_type":
		return &Response{Result: &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}}, nil
	case "ask":
		return &Response{Result: json.RawMessage(`{"resultType":"input_required","requestState":"s","_meta":{"k":1}}`)}, nil
	case "forgetful":
		return &Response{Result: map[string]any{"requestState": "s"}}, nil
	case "array":
		return &Response{Result: []int{1}}, nil
	case "nothing":
		return nil, nil
	case "big":
		text["blob"] = strings.Repeat("x", 5<<20)
	case "panic":
		panic("hunter2 is in here")
	case "fails":
		return nil, errors.New("hunter2 is in here")
	case "gone":
		return nil, fmt.Errorf("wrapped: %w", &Error{Code: 4711, Message: "gone", Status: http.StatusGone, Data: map[string]any{"a": 1}})
	case "notify":
		for i := range 2 {
			if err := r.Notify(ctx, "notifications/progress", map[string]any{"progressToken": "p", "progress": i}); err != nil {
				return nil, err
			}
		}
	case "notify_fails":
		if err := r.Notify(ctx, "notifications/progress", map[string]any{"progressToken": "p", "progress": 1}); err != nil {
			return nil, err
		}
		return nil, Errorf(CodeInvalidParams, "no")
	case "flood":
		for {
			if err := r.Notify(ctx, "notifications/message", strings.Repeat("x", 1<<16)); err != nil {
				f.ended <- err
				return nil, err
			}
		}
	case "block":
		f.entered <- r
		select {
		case <-ctx.Done():
			f.ended <- context.Cause(ctx)
			return nil, ctx.Err()
		case <-f.release:
		}
	default:
		text["seen"] = seen(r)
	}
	return &Response{Result: text}, nil
}

func newFake() *fakeHandler {
	return &fakeHandler{entered: make(chan *Request, 8), ended: make(chan error, 8), release: make(chan struct{})}
}

// newSDKServer is the server behind: one tool, one resource, and one custom
// method.
func newSDKServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "sdk_tool", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "from the SDK " + string(req.Params.Arguments)}}}, nil
		})
	return s
}

const serverInfo = `{"name":"test","version":"0"}`

// newHTTPServer serves h on loopback until the test ends, and checks then that
// nothing is left running.
func newHTTPServer(t *testing.T, h Handler, change func(*HTTPOptions)) (*HTTP, *httptest.Server) {
	t.Helper()
	opts := HTTPOptions{Server: newSDKServer(), ServerInfo: json.RawMessage(serverInfo)}
	if change != nil {
		change(&opts)
	}
	front := NewHTTP(h, opts)
	server := httptest.NewServer(front)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := front.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		server.Close()
		server.Client().CloseIdleConnections()
	})
	return front, server
}

// modernMeta is the _meta of a client without capabilities, as JSON.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// call is the body of a modern tools/call.
func call(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, id, tool, arguments, modernMeta)
}
