package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

type howOld struct {
	Age int `json:"age"`
}

// A tool, a prompt and a resource, each of which asks for an age.
func askingForAnAge(d *desk) {
	q := tallystick.Question{Key: "age", Message: "Age?"}
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "t"}, nil, func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
		_, err := tallystick.Ask[howOld](call, q)
		return said("thanks"), nil, err
	})
	tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "p"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
		_, err := tallystick.Ask[howOld](call, q)
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{}}, err
	})
	tallystick.AddResource(d.srv, &mcp.Resource{URI: "age://CANARY-uri", Name: "r"}, func(_ context.Context, call *tallystick.Call, _ string) (*mcp.ReadResourceResult, error) {
		_, err := tallystick.Ask[howOld](call, q)
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{}}, err
	})
}

// silent checks that nothing secret is in what operators are told.
func (w *overseen) silent() {
	w.t.Helper()
	for line := range strings.Lines(w.told()) {
		if strings.Contains(line, "CANARY") {
			w.t.Errorf("told: %s", line)
		}
	}
}

// A client of the 2025 era checks nothing of what it answers, and a person types
// passwords into the wrong field.
func TestABadAnswerOfASessionIsInNoLogLine(t *testing.T) {
	w := newOverseen(t, setup{tools: askingForAnAge, opts: tallystick.Options{AnonymousEffects: true, Limits: tallystick.Limits{AnswerBytes: 1000}}})
	l := w.line()
	read := func() jsonrpc.Message {
		t.Helper()
		m, err := l.conn.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	l.send("i", "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]any{"name": "c", "version": "1"},
	})
	read()
	l.send(nil, "notifications/initialized", map[string]any{})
	requests := []struct {
		method string
		params map[string]any
	}{
		{"tools/call", map[string]any{"name": "t"}},
		{"prompts/get", map[string]any{"name": "p"}},
		{"resources/read", map[string]any{"uri": "age://CANARY-uri"}},
	}
	n := 0
	for name, answer := range map[string]string{
		"a value of another type": `{"action":"accept","content":{"age":"CANARY-password"}}`,
		"another field":           `{"action":"accept","content":{"CANARY-field":1}}`,
		"no object":               `{"action":"accept","content":"CANARY-content"}`,
		"an unknown action":       `{"action":"CANARY-action"}`,
		"no result":               `"CANARY-result"`,
		"too much":                `{"action":"accept","content":{"age":"` + strings.Repeat("CANARY", 1000) + `"}}`,
		"an error":                "",
	} {
		for _, request := range requests {
			n++
			l.send(n, request.method, request.params)
			for answered := false; ; {
				m := read()
				if resp, ok := m.(*jsonrpc.Response); ok {
					failed := resp.Error != nil || strings.Contains(string(resp.Result), `"isError":true`)
					if !failed || !answered {
						t.Errorf("%s, %s: asked %v, %s", request.method, name, answered, resp.Result)
					}
					break
				}
				req := m.(*jsonrpc.Request)
				if req.Method != "elicitation/create" {
					continue
				}
				answered = true
				resp := &jsonrpc.Response{ID: req.ID, Result: json.RawMessage(answer)}
				if answer == "" {
					resp = &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: -32000, Message: "CANARY-error", Data: json.RawMessage(`"CANARY-data"`)}}
				}
				if err := l.conn.Write(context.Background(), resp); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w.stop()
	w.silent()
}

// A resource is registered under its URI, and that says what it is of.
func TestAFixedResourcesURIIsInNoLogLine(t *testing.T) {
	w := newOverseen(t, setup{tools: func(d *desk) {
		askingForAnAge(d)
		tallystick.AddResource(d.srv, &mcp.Resource{URI: "secret://CANARY-fails", Name: "fails"}, func(context.Context, *tallystick.Call, string) (*mcp.ReadResourceResult, error) {
			return nil, errors.New("no")
		})
		tallystick.AddResource(d.srv, &mcp.Resource{URI: "secret://CANARY-panics", Name: "panics"}, func(context.Context, *tallystick.Call, string) (*mcp.ReadResourceResult, error) {
			panic("no")
		})
	}})
	ann := w.as("ann/acme", capsForm)
	for _, uri := range []string{"secret://CANARY-fails", "secret://CANARY-panics"} {
		if r := ann.send("resources/read", uri, nil); r.err == nil {
			t.Errorf("%s: %s", uri, r.raw)
		}
	}
	r := ann.send("resources/read", "age://CANARY-uri", nil)
	ann.send("resources/read", "age://CANARY-uri", map[string]any{"requestState": r.state(), "inputResponses": map[string]any{"age": accept(map[string]any{"age": "old"})}})
	w.as("ann/acme", capsNone).send("resources/read", "age://CANARY-uri", nil)
	w.stop()
	w.silent()
}

// A callback of the server's owner panics: its request's span ends all the same.
func TestAPanicLeavesNoSpanOpen(t *testing.T) {
	var where string
	panics := func(here string) {
		if where == here {
			panic(errors.New("boom"))
		}
	}
	w := newOverseen(t, setup{
		opts: tallystick.Options{
			Authorize: func(context.Context, tallystick.Access) error { panics("Authorize"); return nil },
			Identify: func(context.Context, *mcp.RequestExtra) (tallystick.Identity, error) {
				panics("Identify")
				return tallystick.Identity{Tenant: "acme", Subject: "ann"}, nil
			},
		},
		tools: func(d *desk) {
			addJob(d, "job")
			d.srv.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler {
				return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
					panics("middleware")
					return next(ctx, r)
				}
			})
		},
	})
	ann := w.as("ann/acme", capsTasks)
	for _, where = range []string{"middleware", "Authorize", "Identify"} {
		refused := where == "Authorize" // a panic of which is a refusal
		if r := ann.call("job", nil); refused != (r.outcome() == "not_allowed") || !refused && (r.err == nil || r.err.Code != -32603) {
			t.Errorf("%s: %s", where, r.raw)
		}
		ended := w.spans.Ended()
		if n := len(w.spans.Started()); n == 0 || n != len(ended) {
			t.Fatalf("%s: %d spans were started, %d ended", where, n, len(ended))
		}
		if got := fmt.Sprint(ended[len(ended)-1].Attributes()); !refused && !strings.Contains(got, "-32603") {
			t.Errorf("%s: its span says %s", where, got)
		}
	}
}

// A client of the 2025 era can join the trace, too, whatever it has called.
func TestResultsOfSessionsCarryTheTrace(t *testing.T) {
	tools := func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "t"}, nil, func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Meta: mcp.Meta{"own": 1}, Content: []mcp.Content{}}, nil, nil
		})
		tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "p"}, func(context.Context, *tallystick.Call, map[string]string) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{}}, nil
		})
		tallystick.AddResource(d.srv, &mcp.Resource{URI: "r://", Name: "r"}, func(context.Context, *tallystick.Call, string) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{}}, nil
		})
	}
	metas := func(d *desk) map[string]mcp.Meta {
		ctx, cs := context.Background(), overHTTP(t, d, nil)
		tool, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "t"})
		if err != nil {
			t.Fatal(err)
		}
		prompt, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"})
		if err != nil {
			t.Fatal(err)
		}
		resource, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "r://"})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]mcp.Meta{"tool": tool.Meta, "prompt": prompt.Meta, "resource": resource.Meta}
	}
	w := newOverseen(t, setup{tools: tools})
	for what, meta := range metas(w.desk) {
		given, _ := meta["traceparent"].(string)
		found := false
		for _, s := range w.spans.Ended() {
			c := s.SpanContext()
			found = found || strings.HasPrefix(given, "00-"+c.TraceID().String()+"-"+c.SpanID().String()+"-")
		}
		if !found {
			t.Errorf("%s: %v is of no span", what, meta)
		}
		if what == "tool" && meta["own"] != 1.0 {
			t.Errorf("its own is gone: %v", meta)
		}
	}
	for what, meta := range metas(newDesk(t, setup{tools: tools})) {
		if meta["traceparent"] != nil {
			t.Errorf("%s: %v without a provider", what, meta)
		}
	}
}

// A call that ends because nobody can be asked has ended, kept or not.
func TestCallsThatNobodyCanAnswerAreCounted(t *testing.T) {
	w := newOverseen(t, setup{tools: func(d *desk) {
		for name, readOnly := range map[string]bool{"act": false, "look": true} {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}, nil,
				func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
					return nil, nil, call.Confirm(tallystick.Question{Key: "q", Message: strings.Repeat("Sure?", 8000)})
				})
		}
	}})
	counts := map[string]float64{}
	once := func(what, tool string, r reply) {
		t.Helper()
		counts["gen_ai.tool.name="+tool+",mcp.method.name=tools/call,tallystick.outcome=failed"]++
		if got := w.collect("tallystick.calls"); fmt.Sprint(got) != fmt.Sprint(counts) || r.err == nil {
			t.Errorf("%s:\n got %v\nwant %v\n%s", what, got, counts, r.raw)
		}
	}
	none := w.as("ann/acme", capsNone)
	once("not kept", "act", none.call("act", nil))
	once("carried", "look", none.call("look", nil))
	once("kept for its key", "act", none.send("tools/call", "act", map[string]any{"_meta": map[string]any{"tallystick/idempotencyKey": "k"}}))
	once("too much to be carried", "look", w.as("ann/acme", capsForm).call("look", nil))
}
