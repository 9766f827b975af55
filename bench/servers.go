package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

// roles are the servers that a process of ours can be. Each gives the MCP
// endpoint and what ends it.
var roles = map[string]func(folder string) (http.Handler, func() error, error){
	"tallystick": tallystickServer,
	"sdk":        sdkServer,
	"bare":       bareServer,
}

type greetArgs struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

type greeting struct {
	Greeting string `json:"greeting"`
}

func greetingFor(in greetArgs) greeting { return greeting{"Hello, " + in.Name + "!"} }

type approveArgs struct {
	Order string `json:"order"`
}

type receipt struct {
	Receipt string `json:"receipt"`
}

// shop is the far side of the effects: it does nothing but count.
type shop struct{ refunds atomic.Int64 }

func (s *shop) refund() receipt { return receipt{fmt.Sprintf("R-%d", s.refunds.Add(1))} }

func annotated(name string, readOnly bool) *mcp.Tool {
	return &mcp.Tool{Name: name, Description: "For measuring.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}
}

// bencher is who sends all requests.
var bencher = tallystick.Identity{Issuer: "bench", Tenant: "bench", Subject: "ann", Client: "bench"}

// tallystickServer serves everything, with the embedded store in folder.
func tallystickServer(folder string) (http.Handler, func() error, error) {
	sdk := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	s, err := embedded.Open(folder, sdk, &tallystick.Options{
		Identify: func(context.Context, *mcp.RequestExtra) (tallystick.Identity, error) { return bencher, nil },
		Limits:   tallystick.Limits{LiveCalls: 10_000_000, Drain: time.Second},
		Workers:  64, WorkersPerTenant: 64,
		Log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, nil, err
	}
	addTools(s.Server)
	ctx, cancel := context.WithCancel(context.Background())
	ran := inBackground(func() error { return s.Run(ctx) })
	stop := func() error {
		cancel()
		err := <-ran
		if closed := s.Close(); err == nil {
			err = closed
		}
		return err
	}
	return ready(s.Handler(nil)), stop, nil
}

// ready keeps the first requests waiting until the server works.
func ready(h http.Handler) http.Handler {
	for range 10_000 {
		w := &probe{header: http.Header{}}
		r, _ := http.NewRequest(http.MethodGet, "http://127.0.0.1/mcp", nil)
		r.RemoteAddr = "127.0.0.1:1"
		h.ServeHTTP(w, r)
		if w.status != http.StatusServiceUnavailable {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return h
}

type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }

func addTools(s *tallystick.Server) {
	far := &shop{}
	tallystick.AddTool(s, annotated("greet", true), nil, func(_ context.Context, _ *tallystick.Call, in greetArgs) (*mcp.CallToolResult, greeting, error) {
		return nil, greetingFor(in), nil
	})
	tallystick.AddTool(s, annotated("approve", false), nil, func(ctx context.Context, call *tallystick.Call, in approveArgs) (*mcp.CallToolResult, receipt, error) {
		if err := call.Confirm(tallystick.Question{Key: "approve", Message: "Refund " + in.Order + "?"}); err != nil {
			return nil, receipt{}, err
		}
		r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.Order, Repeatable: true},
			func(context.Context, string) (receipt, error) { return far.refund(), nil })
		return nil, r, err
	})
	tallystick.AddTool(s, annotated("job", false), &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, _ *tallystick.Call, in approveArgs) (*mcp.CallToolResult, receipt, error) {
		return nil, receipt{"R-" + in.Order}, nil
	})
	tallystick.AddTool(s, annotated("ask", false), &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call, in approveArgs) (*mcp.CallToolResult, receipt, error) {
		err := call.Confirm(tallystick.Question{Key: "approve", Message: "Refund " + in.Order + "?"})
		return nil, receipt{}, err
	})
	tallystick.AddTool(s, annotated("others", false), &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(_ context.Context, call *tallystick.Call, in approveArgs) (*mcp.CallToolResult, receipt, error) {
		err := call.Confirm(tallystick.Question{Key: "approve", Message: "Refund " + in.Order + "?", Who: tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, Within: time.Hour})
		return nil, receipt{}, err
	})
	tallystick.AddTool(s, annotated("long", false), &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, _ *tallystick.Call, in approveArgs) (*mcp.CallToolResult, receipt, error) {
		fmt.Println("running", in.Order)
		<-ctx.Done()
		return nil, receipt{}, context.Cause(ctx)
	})
}

// sdkServer is the official SDK alone, as it serves this revision: stateless,
// with JSON responses. Nothing that it hands out is protected, and nothing is
// kept.
func sdkServer(string) (http.Handler, func() error, error) {
	far := &shop{}
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(s, annotated("greet", true), func(_ context.Context, _ *mcp.CallToolRequest, in greetArgs) (*mcp.CallToolResult, greeting, error) {
		return nil, greetingFor(in), nil
	})
	yes := json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)
	mcp.AddTool(s, annotated("approve", false), func(_ context.Context, r *mcp.CallToolRequest, in approveArgs) (*mcp.CallToolResult, any, error) {
		answer, _ := r.Params.InputResponses["approve"].(*mcp.ElicitResult)
		if r.Params.RequestState != "order "+in.Order || answer == nil {
			return &mcp.CallToolResult{
				InputRequests: mcp.InputRequestMap{"approve": &mcp.ElicitParams{Mode: "form", Message: "Refund " + in.Order + "?", RequestedSchema: yes}},
				RequestState:  "order " + in.Order,
			}, nil, nil
		}
		if answer.Action != "accept" || answer.Content["confirm"] != true {
			return nil, nil, fmt.Errorf("not approved")
		}
		return nil, far.refund(), nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return h, func() error { return nil }, nil
}

// bareServer is what net/http and encoding/json take for the same answer, and
// no more than is decent: the content type, the headers that repeat the body,
// members that are unknown, the arguments' type, and nothing after the message.
func bareServer(string) (http.Handler, func() error, error) {
	return http.HandlerFunc(bareGreet), func() error { return nil }, nil
}

func bareGreet(w http.ResponseWriter, r *http.Request) {
	type request struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  struct {
			Meta      map[string]json.RawMessage `json:"_meta"`
			Name      string                     `json:"name"`
			Arguments greetArgs                  `json:"arguments"`
		} `json:"params"`
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type result struct {
		Meta       map[string]any `json:"_meta"`
		Content    []content      `json:"content"`
		Structured greeting       `json:"structuredContent"`
		ResultType string         `json:"resultType"`
	}
	type response struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  result          `json:"result"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	var in request
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err = d.Decode(&in); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("more after the message")
		}
	}
	var version string
	if err == nil {
		err = json.Unmarshal(in.Params.Meta["io.modelcontextprotocol/protocolVersion"], &version)
	}
	h := r.Header
	if err != nil || in.Version != "2.0" || len(in.ID) == 0 || in.Method != "tools/call" || in.Params.Name != "greet" ||
		h.Get("Mcp-Method") != in.Method || h.Get("Mcp-Name") != in.Params.Name || h.Get("Mcp-Protocol-Version") != version {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	out := greetingFor(in.Params.Arguments)
	text, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	answer, err := json.Marshal(response{"2.0", in.ID, result{
		Meta:    map[string]any{"io.modelcontextprotocol/serverInfo": map[string]string{"name": "bench", "version": "1"}},
		Content: []content{{"text", string(text)}}, Structured: out, ResultType: "complete",
	}})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a client that has gone has no use for the error
}
