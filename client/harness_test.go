package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// A desk is a tallystick server over HTTP, which counts what it has done.
type desk struct {
	url     string
	server  *tallystick.Server
	refunds atomic.Int64
	release chan struct{} // lets the job "work" go on
	front   atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
}

type order struct {
	Order string `json:"order"`
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{release: make(chan struct{})}
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	sdk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	d.server, err = tallystick.New(sdk, &tallystick.Options{Store: memory.New(memory.Options{}), Keys: keys.AEAD()})
	if err != nil {
		t.Fatal(err)
	}
	d.tools(t)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- d.server.Run(ctx) }()
	inner := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		if token == "bad" {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour), Extra: map[string]any{"iss": "test", "tenant": "acme"}}, nil
	}, nil)(d.server.Handler(nil))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := d.front.Load(); f != nil {
			(*f)(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	d.url = web.URL
	return d
}

func (d *desk) tools(t *testing.T) {
	tallystick.AddTool(d.server, &mcp.Tool{Name: "refund"}, nil,
		func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, order, error) {
			if err := call.Confirm(tallystick.Question{Key: "sure", Message: "Refund " + in.Order + "?"}); err != nil {
				return nil, order{}, err
			}
			out, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.Order}, func(context.Context, string) (order, error) {
				d.refunds.Add(1)
				return order{"R-" + in.Order}, nil
			})
			return nil, out, err
		})
	tallystick.AddTool(d.server, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
		func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, order, error) {
			call.Report("preparing", 1, 2)
			if err := call.Confirm(tallystick.Question{Key: "sure", Message: "Do " + in.Order + "?"}); err != nil {
				return nil, order{}, err
			}
			out, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "job", Subject: in.Order}, func(context.Context, string) (order, error) {
				d.refunds.Add(1)
				return order{"J-" + in.Order}, nil
			})
			return nil, out, err
		})
	tallystick.AddTool(d.server, &mcp.Tool{Name: "work"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
		func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, order, error) {
			select {
			case <-d.release:
				return nil, in, nil
			case <-ctx.Done():
				return nil, order{}, context.Cause(ctx)
			}
		})
}

// bearer adds a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// person answers with what it is given, and counts.
type person struct {
	kinds  []client.Kind
	answer func(context.Context, client.Question) (client.Answer, error)

	mu    sync.Mutex
	asked []client.Question
}

func (p *person) Kinds() []client.Kind {
	if p.kinds == nil {
		return []client.Kind{client.Form, client.URL}
	}
	return p.kinds
}

func (p *person) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	return p.answer(ctx, q)
}

func (p *person) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

func says(content any) *person {
	return &person{answer: func(context.Context, client.Question) (client.Answer, error) { return client.Accept(content) }}
}

func yes() *person { return says(map[string]any{"confirm": true}) }

func openMemory(t *testing.T, path string) *client.Memory { t.Helper(); return watched(t, path, nil) }

// watched opens a memory, with f called around each of its writes.
func watched(t *testing.T, path string, f func(statement string, done bool)) *client.Memory {
	t.Helper()
	opts := client.MemoryOptions{Path: path}
	opts.OnWrite(f)
	m, err := client.OpenMemory(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func memoryPath(t *testing.T) string { return filepath.Join(t.TempDir(), "state", "calls.db") }

func web(url, token string) func() (mcp.Transport, error) {
	next := &http.Transport{MaxIdleConnsPerHost: 16}
	return func() (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token, next}}}, nil
	}
}

func newClient(t *testing.T, opts client.Options) *client.Client {
	t.Helper()
	if opts.Memory == nil {
		opts.Memory = openMemory(t, memoryPath(t))
	}
	if opts.Server == "" {
		opts.Server = "desk"
	}
	c, err := client.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func structured(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if r.IsError {
		return "error: " + fmt.Sprint(r.Content[0].(*mcp.TextContent).Text)
	}
	return string(b)
}
