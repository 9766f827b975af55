package wire

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// legacySession is an SDK client and server of the 2025 era, in memory; h runs
// as the tool "t", the prompt "p" and the resource "mem://r".
func legacySession(t *testing.T, h func(context.Context, *Request, error)) *mcp.ClientSession {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{"2025-11-25"}})
	s.AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := FromToolCall(req, Limits{})
		h(ctx, r, err)
		return &mcp.CallToolResult{}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p"}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		r, err := FromPrompt(req, Limits{})
		h(ctx, r, err)
		return &mcp.GetPromptResult{}, nil
	})
	s.AddResource(&mcp.Resource{Name: "r", URI: "mem://r"}, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		r, err := FromResource(req)
		h(ctx, r, err)
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem://r", Text: "x"}}}, nil
	})
	ours, theirs := mcp.NewInMemoryTransports()
	server, err := s.Connect(context.Background(), NewTransport(ours, newFake(), TransportOptions{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	progress := make(chan string, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "7"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { progress <- req.Params.Message },
	})
	session, err := client.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		_ = server.Wait()
	})
	return session
}

func TestALegacyToolCallBecomesARequest(t *testing.T) {
	var got *Request
	session := legacySession(t, func(ctx context.Context, r *Request, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		got = r
		if err := r.Notify(ctx, "notifications/progress", map[string]any{"progressToken": "tok", "progress": 1, "message": "half"}); err != nil {
			t.Error(err)
		}
		if err := r.Notify(ctx, "notifications/other", nil); err == nil {
			t.Error("an unknown notification was sent")
		}
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
		if err != nil || res.Action != "accept" {
			t.Errorf("Elicit: %v %v", res, err)
		}
	})
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "t", Arguments: json.RawMessage(`{"n":9007199254740993}`), Meta: mcp.Meta{"progressToken": "tok"}})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Legacy || got.Method != MethodCallTool || got.Name != "t" || string(got.Arguments) != `{"n":9007199254740993}` {
		t.Errorf("got %+v", got)
	}
	if got.Capabilities.Elicitation == nil || got.ClientInfo.Version != "7" || string(got.Meta["progressToken"]) != `"tok"` || got.Extra == nil {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(string(got.Params), `"name":"t"`) {
		t.Errorf("params %s", got.Params)
	}
}

func TestLegacyPromptsAndResourcesBecomeRequests(t *testing.T) {
	var got *Request
	session := legacySession(t, func(_ context.Context, r *Request, err error) {
		if err != nil {
			t.Error(err)
		}
		got = r
	})
	if err := session.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "p", Arguments: map[string]string{"a": "<b>"}}); err != nil {
		t.Fatal(err)
	}
	if got.Method != MethodGetPrompt || got.Name != "p" || string(got.Arguments) != `{"a":"<b>"}` {
		t.Errorf("got %+v", got)
	}
	if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "mem://r"}); err != nil {
		t.Fatal(err)
	}
	if got.Method != MethodReadResource || got.Name != "mem://r" || got.Arguments != nil {
		t.Errorf("got %+v", got)
	}
}

func TestLegacyArgumentsAreStrictEvenWithoutOurTransport(t *testing.T) {
	for _, args := range []string{`{"a":1,"a":2}`, `[]`, strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70), `{"a":"` + strings.Repeat("x", 1<<20) + `"}`} {
		req := &mcp.CallToolRequest{Extra: &mcp.RequestExtra{}, Params: &mcp.CallToolParamsRaw{Name: "t", Arguments: json.RawMessage(args)}}
		if _, err := FromToolCall(req, Limits{}); err == nil {
			t.Errorf("%.40s was taken", args)
		}
	}
	for _, args := range []string{``, `null`} {
		r, err := FromToolCall(&mcp.CallToolRequest{Extra: &mcp.RequestExtra{}, Params: &mcp.CallToolParamsRaw{Name: "t", Arguments: json.RawMessage(args)}}, Limits{})
		if err != nil || r.Arguments != nil {
			t.Errorf("%q: %v %v", args, r, err)
		}
	}
}

// Nobody vouches for the sender of such a request, nor says that it is local.
func TestARequestOfAnUnknownTransportIsRefused(t *testing.T) {
	if _, err := FromToolCall(&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t"}}, Limits{}); err == nil {
		t.Error("no error")
	}
}

func TestAModernRequestIsNotTakenForALegacyOne(t *testing.T) {
	req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t", Meta: mcp.Meta{mcp.MetaKeyProtocolVersion: Version}}}
	if _, err := FromToolCall(req, Limits{}); err == nil {
		t.Error("no error")
	}
}
