package interop

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connect connects with the SDK's own client, which answers what it is asked,
// by its message.
func connect(t *testing.T, tr mcp.Transport, revision string, answers map[string]*mcp.ElicitResult) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c := mcp.NewClient(&mcp.Implementation{Name: "smoke", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if a := answers[r.Params.Message]; a != nil {
				return a, nil
			}
			t.Errorf("asked %q, which nobody expected", r.Params.Message)
			return &mcp.ElicitResult{Action: "cancel"}, nil
		},
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}},
	})
	s, err := c.Connect(ctx, tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if got := s.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("the revision is %s, want %s", got, revision)
	}
	return s
}

func accept(content map[string]any) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "accept", Content: content}
}

// text calls a tool and returns the texts of its result.
func text(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	if args == nil {
		args = map[string]any{} // a nil map is sent as null, which both servers refuse
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	res, err := s.CallTool(context.Background(), params)
	for err == nil && res.NeedsInput() && len(res.InputRequests) == 0 { // such a round the SDK's client hands back
		params.RequestState = res.RequestState
		res, err = s.CallTool(context.Background(), params)
	}
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	var b strings.Builder
	for _, c := range res.Content {
		if said, ok := c.(*mcp.TextContent); ok {
			b.WriteString(said.Text)
		}
	}
	if res.IsError {
		b.WriteString(" (isError)")
	}
	return b.String()
}

func TestTheMRTRServerAsks(t *testing.T) {
	answers := map[string]*mcp.ElicitResult{
		"Do it?": accept(map[string]any{"ok": true}), "Do that?": {Action: "decline"},
		"Your name?": accept(map[string]any{"name": "Ann"}), "Your colour, Ann?": accept(map[string]any{"colour": "blue"}),
		"Which street?": accept(map[string]any{"street": "Main"}), "Which floor?": accept(map[string]any{"floor": 3}),
		"Is there a lift?": {Action: "decline"}, "What about?": accept(map[string]any{"subject": "rain"}),
		"Open the page": {Action: "accept"},
	}
	for name, tr := range map[string]mcp.Transport{
		"http":  &mcp.StreamableClientTransport{Endpoint: StartMRTRServer(t)},
		"stdio": &mcp.CommandTransport{Command: MRTRServerCommand(t)},
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, tr, "2026-07-28", answers)
			for _, c := range []struct {
				tool string
				args map[string]any
				want string
			}{
				{"confirm", map[string]any{"what": "it"}, "it: true"},
				{"confirm", map[string]any{"what": "that"}, "that: decline"},
				{"two_rounds", nil, "Ann likes blue"},
				{"several", nil, `{"street":"Main"} {"floor":3} decline`},
				{"later", nil, "called 2 times again"},
				{"visit", nil, "the page: accept"},
				{"plain", map[string]any{"a": 1, "b": 2}, "3"},
				{"broken", nil, "it is broken (isError)"},
			} {
				if got := text(t, s, c.tool, c.args); got != c.want {
					t.Errorf("%s: %q, want %q", c.tool, got, c.want)
				}
			}
			p, err := s.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "letter"})
			if err != nil || len(p.Messages) != 1 || p.Messages[0].Content.(*mcp.TextContent).Text != "a letter about rain" {
				t.Errorf("the prompt: %+v, %v", p, err)
			}
			r, err := s.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "mrtr://note"})
			if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != "a note about rain" {
				t.Errorf("the resource: %+v, %v", r, err)
			}
		})
	}
}

func TestTheEverythingServerAsksLive(t *testing.T) {
	answers := map[string]*mcp.ElicitResult{
		"Please provide inputs for the following fields:": accept(map[string]any{"name": "Ann", "check": true}),
	}
	for name, tr := range map[string]mcp.Transport{
		"http":  &mcp.StreamableClientTransport{Endpoint: StartEverything(t)},
		"stdio": &mcp.CommandTransport{Command: EverythingCommand(t)},
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, tr, "2025-11-25", answers)
			if got := text(t, s, "echo", map[string]any{"message": "hello"}); got != "Echo: hello" {
				t.Errorf("echo: %q", got)
			}
			waitForTool(t, s, "trigger-elicitation-request")
			got := text(t, s, "trigger-elicitation-request", nil)
			if !strings.Contains(got, "- Name: Ann") || !strings.Contains(got, "- Agreed to terms: true") {
				t.Errorf("elicitation: %q", got)
			}
		})
	}
}

// waitForTool waits until a server that adds some tools once its client has said
// that it is initialized lists one.
func waitForTool(t *testing.T, s *mcp.ClientSession, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		list, err := s.ListTools(ctx, nil)
		if err != nil {
			t.Fatalf("waiting for the tool %s: %v", name, err)
		}
		if slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name }) {
			return
		}
	}
}
