package tallystick_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// middleware of an SDK server that lets nobody pass.
func closed(next mcp.MethodHandler) mcp.MethodHandler {
	return func(context.Context, string, mcp.Request) (mcp.Result, error) {
		return nil, errors.New("a token, please")
	}
}

func open(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		return next(ctx, method, r)
	}
}

// Middleware of the SDK server would not see this package's calls: a server
// that has some does not start, unless it is told that this is meant.
func TestSDKMiddlewareIsNotPassedByUnnoticed(t *testing.T) {
	for what, c := range map[string]struct {
		add   mcp.Middleware
		late  bool // added after New
		opts  tallystick.Options
		wants string // in the error; empty: it starts
	}{
		"none":                 {},
		"before New":           {add: open, wants: "Server.Use"},
		"after New":            {add: open, late: true, wants: "Server.Use"},
		"meant":                {add: open, opts: tallystick.Options{SkipSDKMiddleware: true}},
		"closed":               {add: closed, wants: "Options.Name"},
		"closed, and no name":  {add: closed, opts: tallystick.Options{SkipSDKMiddleware: true}, wants: "Options.Name"},
		"closed, meant, named": {add: closed, opts: tallystick.Options{SkipSDKMiddleware: true, Name: "desk"}},
	} {
		sdk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		if c.add != nil && !c.late {
			sdk.AddReceivingMiddleware(c.add)
		}
		s, err := tallystick.New(sdk, &c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if c.late {
			sdk.AddReceivingMiddleware(c.add)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		h := s.Handler(nil)
		if c.wants != "" {
			if err := <-ran; err == nil || !strings.Contains(err.Error(), c.wants) {
				t.Errorf("%s: %v", what, err)
			}
		} else {
			waitFor(t, func() bool { return statusOf(h) != http.StatusServiceUnavailable })
			cancel()
			if err := <-ran; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		cancel()
	}
}

type nowhere struct {
	http.ResponseWriter
	code int
	head http.Header
}

func (w *nowhere) Header() http.Header         { return w.head }
func (w *nowhere) WriteHeader(code int)        { w.code = code }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }

func statusOf(h http.Handler) int {
	w := &nowhere{head: http.Header{}}
	r, _ := http.NewRequest("PUT", "http://127.0.0.1/", nil)
	h.ServeHTTP(w, r)
	return w.code
}

// The name in what is sealed can be chosen: then it outlives a renaming of the
// SDK server, and states of another name mean nothing.
func TestTheNameInStates(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.New(memory.Options{})
	serve := func(sdkName, name string) *desk {
		sh := &shop{total: "1"}
		return newDesk(t, setup{
			sdk:   mcp.NewServer(&mcp.Implementation{Name: sdkName, Version: "1"}, nil),
			opts:  tallystick.Options{Store: mem, Keys: keys.AEAD(), Name: name},
			tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) },
		})
	}
	first := serve("desk", "shop")
	state := first.as("ann/acme", capsForm).call("refund", order1).state()
	first.stop()
	other := serve("desk", "")
	refusedState(t, "another name", other.as("ann/acme", capsForm).retry("refund", order1, state, map[string]any{"approve": yes}))
	other.stop()
	renamed := serve("counter", "shop")
	if r := renamed.as("ann/acme", capsForm).retry("refund", order1, state, map[string]any{"approve": yes}); r.isError() || r.err != nil {
		t.Errorf("the same name: %s", r.raw)
	}
}

func TestAllowedOrigins(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{AllowedOrigins: []string{"https://app.example"}}})
	for origin, want := range map[string]bool{"": true, "https://app.example": true, "https://evil.example": false, "null": false} {
		req, _ := http.NewRequest("POST", d.url, strings.NewReader("{}"))
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if (resp.StatusCode != http.StatusForbidden) != want {
			t.Errorf("Origin %q: %d", origin, resp.StatusCode)
		}
	}
}

// What cannot be honoured is an error when it is made, and not a surprise later.
// case S38
func TestOptionsThatCannotBeHonouredAreErrors(t *testing.T) {
	if _, err := tallystick.New(nil, nil); err == nil {
		t.Error("no SDK server was accepted")
	}
	sdk := func() *mcp.Server { return mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil) }
	if _, err := tallystick.New(sdk(), &tallystick.Options{Store: memory.New(memory.Options{Shared: true})}); err == nil || !strings.Contains(err.Error(), "Options.Keys") {
		t.Errorf("a shared store with a key of this process's own: %v", err)
	}
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	// A restart takes over what is its node's, and so no other's.
	for _, node := range []string{"", "rack/host"} {
		if _, err := tallystick.New(sdk(), &tallystick.Options{Store: memory.New(memory.Options{Shared: true}), Keys: keys.AEAD(), Node: node}); err == nil || !strings.Contains(err.Error(), "Options.Node") {
			t.Errorf("a shared store and the node %q: %v", node, err)
		}
	}
	h := func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	}
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	for what, add := range map[string]func(kept, bare *tallystick.Server){
		"effects without a store": func(_, bare *tallystick.Server) { tallystick.AddTool(bare, &mcp.Tool{Name: "t"}, nil, h) },
		"a read-only task": func(kept, _ *tallystick.Server) {
			tallystick.AddTool(kept, &mcp.Tool{Name: "t", Annotations: readOnly}, &tallystick.ToolOptions{Task: tallystick.TaskOptional}, h)
		},
		"AskFirst without a task": func(kept, _ *tallystick.Server) {
			tallystick.AddTool(kept, &mcp.Tool{Name: "t"}, &tallystick.ToolOptions{AskFirst: true}, h)
		},
		"unasked answers, effects": func(kept, _ *tallystick.Server) {
			tallystick.AddTool(kept, &mcp.Tool{Name: "t"}, &tallystick.ToolOptions{AcceptUnaskedAnswers: true}, h)
		},
		"one name twice": func(kept, _ *tallystick.Server) {
			tallystick.AddTool(kept, &mcp.Tool{Name: "t"}, nil, h)
			tallystick.AddTool(kept, &mcp.Tool{Name: "t"}, nil, h)
		},
	} {
		kept, err := tallystick.New(sdk(), &tallystick.Options{Store: memory.New(memory.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		bare, err := tallystick.New(sdk(), nil)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("%s: accepted", what)
				}
			}()
			add(kept, bare)
		}()
	}
}
