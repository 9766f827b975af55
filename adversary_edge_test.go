package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store/memory"
)

// Who comes in by a handler of the SDK's own, past ours, is nobody we can name,
// and least of all the user of the operating system.
func TestForeignTransportsAreRefused(t *testing.T) {
	var ran atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("pay", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			ran.Add(1)
			return call.Owner().Subject, nil
		})
	}})
	web := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return d.sdk }, nil))
	defer web.Close()
	cs := legacyClient(t, &mcp.SSEClientTransport{Endpoint: web.URL}, nil)
	defer cs.Close()
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "pay"})
	if err == nil || ran.Load() != 0 {
		t.Fatalf("%+v", res)
	}
}

// What a form accepts, its struct can hold.
func TestAcceptedFormsFitTheirStruct(t *testing.T) {
	type form struct {
		Small uint8     `json:"small,omitempty"`
		Count int       `json:"count,omitempty"`
		When  time.Time `json:"when,omitzero"`
	}
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			f, err := tallystick.Ask[form](call, tallystick.Question{Key: "q", Message: "?"})
			if err != nil {
				return "", err
			}
			if f.Count == 5 {
				return "five", nil
			}
			return "fits", nil
		})
	}})
	ann := d.as("ann/acme", capsForm)
	for content, want := range map[string]string{
		`{"small":300}`:                   "",
		`{"small":-1}`:                    "",
		`{"count":1e30}`:                  "",
		`{"when":"tomorrow"}`:             "",
		`{"when":"2026-07-28T00:00:00Z"}`: "fits",
		`{"small":200}`:                   "fits",
		`{"count":5.0}`:                   "five",
	} {
		state := ann.call("ask", nil).state()
		answer := map[string]any{"action": "accept", "content": json.RawMessage(content)}
		r := ann.retry("ask", nil, state, map[string]any{"q": answer})
		if want == "" && (r.err == nil || r.err.Data["reason"] != "invalid_answer") || want != "" && r.text() != want {
			t.Errorf("%s: %s", content, r.raw)
		}
	}
}

// A question that cannot come to an answer is a mistake at once, not after its
// time is up.
func TestQuestionsThatNobodyCanSettle(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		for name, who := range map[string]tallystick.Who{
			"three of two":  {Subjects: []string{"eve", "bob"}, Count: 3},
			"two of me":     {Count: 2},
			"less than one": {Roles: []string{"finance"}, Count: -1},
			"not me":        {Subjects: []string{"ann"}, NotRequester: true},
		} {
			d.tool(name, nil, func(_ context.Context, call *tallystick.Call) (string, error) { return "", confirm(call, "q", who) })
		}
	}})
	ann := d.as("ann/acme", capsForm)
	for _, name := range []string{"three of two", "two of me", "less than one", "not me"} {
		if r := ann.call(name, nil); !r.isError() || r.outcome() == "pending" || r.typ() != "complete" {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
}

// An SDK server whose middleware refuses the probe is told what to do.
func TestMiddlewareThatRefusesTheProbe(t *testing.T) {
	sdk := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	sdk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return nil, errors.New("no token")
		}
	})
	srv, err := tallystick.New(sdk, &tallystick.Options{Store: memory.New(memory.Options{}), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	err = srv.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "middleware") || !strings.Contains(err.Error(), "server/discover") {
		t.Fatalf("%v", err)
	}
}

// A role that was taken away since the call was opened counts for nothing when
// an effect starts for a request that says so.
func TestActIsAskedWithWhatTheRequestSays(t *testing.T) {
	opts := tallystick.Options{Authorize: func(_ context.Context, a tallystick.Access) error {
		if a.Verb == tallystick.Act && (a.Stored || len(a.By.Roles) == 0) {
			return errors.New("only finance")
		}
		return nil
	}}
	d, sh := refundDesk(t, tallystick.Who{}, opts)
	r := d.as("ann/acme/finance", capsForm).call("refund", order1)
	demoted := d.as("ann/acme", capsForm).retry("refund", order1, r.state(), map[string]any{"approve": yes})
	if demoted.outcome() != "not_allowed" || sh.refunds.Load() != 0 {
		t.Fatalf("without the role: %s", demoted.raw)
	}
	r = d.as("ann/acme/finance", capsForm).call("refund", order1)
	if r = d.as("ann/acme/finance", capsForm).retry("refund", order1, r.state(), map[string]any{"approve": yes}); r.isError() {
		t.Fatalf("with it: %s", r.raw)
	}
}

type noTakeover struct{ *memory.Store }

func (noTakeover) Takeover(context.Context, string, string) error { return errors.New("disk on fire") }

// A server that cannot work says so and serves nothing; nothing of it is left.
func TestRunThatCannotWork(t *testing.T) {
	srv, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil), &tallystick.Options{
		Store: noTakeover{memory.New(memory.Options{})}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv.Handler(nil))
	defer web.Close()
	if err := srv.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Fatalf("%v", err)
	}
	waitFor(t, func() bool {
		resp, err := http.Get(web.URL)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	ours, theirs := mcp.NewInMemoryTransports()
	defer func() { _ = ours }()
	if _, err := srv.Transport(theirs).Connect(context.Background()); err == nil {
		t.Error("a connection to a server that does not work")
	}
}

// A server without a store drains too: what runs comes to its end first.
func TestReadOnlyServersDrain(t *testing.T) {
	srv, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil), &tallystick.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	var ended atomic.Bool
	tallystick.AddTool(srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
		func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
			close(began)
			time.Sleep(100 * time.Millisecond)
			ended.Store(true)
			return nil, nil, nil
		})
	d := &desk{t: t, srv: srv}
	d.serve()
	go func() { _, _ = d.as("", capsForm).try(context.Background(), "tools/call", "look", nil) }()
	<-began
	d.stop()
	if !ended.Load() {
		t.Error("Run returned while a tool ran")
	}
}
