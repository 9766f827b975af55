package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// scripted answers by the question's message, and counts.
type scripted struct {
	answers map[string]client.Answer

	mu    sync.Mutex
	asked []string
}

func (s *scripted) Kinds() []client.Kind { return []client.Kind{client.Form, client.URL} }

func (s *scripted) Answer(_ context.Context, q client.Question) (client.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, q.Message)
	a, ok := s.answers[q.Message]
	if !ok {
		return client.Answer{}, fmt.Errorf("asked %q, which nobody expected", q.Message)
	}
	return a, nil
}

// times says how often something was asked, since it was last asked for.
func (s *scripted) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.asked)
	s.asked = nil
	return n
}

func yes(content string) client.Answer {
	return client.Answer{Action: "accept", Content: json.RawMessage(content)}
}

// ours is package client, at a server of somebody else's.
func ours(t *testing.T, s *scripted, transport func() (mcp.Transport, error)) *client.Client {
	t.Helper()
	m, err := client.OpenMemory(t.Context(), client.MemoryOptions{Path: filepath.Join(t.TempDir(), "calls.db")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Memory: m, Server: "theirs", Transport: transport, Answerer: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// texts are the texts of a result.
func texts(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	if r.IsError {
		b.WriteString(" (isError)")
	}
	return b.String()
}

func TestOurClientIsAskedByTheMRTRServer(t *testing.T) {
	for name, transport := range map[string]func() (mcp.Transport, error){
		"http": func() func() (mcp.Transport, error) {
			url := StartMRTRServer(t)
			return func() (mcp.Transport, error) { return &mcp.StreamableClientTransport{Endpoint: url}, nil }
		}(),
		"stdio": func() (mcp.Transport, error) { return &mcp.CommandTransport{Command: MRTRServerCommand(t)}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{answers: map[string]client.Answer{
				"Do it?": yes(`{"ok":true}`), "Do that?": client.Decline(), "Do this?": client.Dismiss(),
				"Your name?": yes(`{"name":"Ann"}`), "Your colour, Ann?": yes(`{"colour":"blue"}`),
				"Which street?": yes(`{"street":"Main"}`), "Which floor?": yes(`{"floor":3}`),
				"Is there a lift?": client.Decline(), "What about?": yes(`{"subject":"rain"}`),
				"Open the page": {Action: "accept"},
			}}
			c, ctx := ours(t, s, transport), within(t)
			for _, one := range []struct {
				tool, args, want string
				asked            int
			}{
				{"confirm", `{"what":"it"}`, "it: true", 1},
				{"confirm", `{"what":"that"}`, "that: decline", 1},
				{"confirm", `{"what":"this"}`, "this: cancel", 1},
				{"two_rounds", `{}`, "Ann likes blue", 2},
				{"several", `{}`, `{"street":"Main"} {"floor":3} decline`, 3},
				{"later", `{}`, "called 2 times again", 0},
				{"visit", `{}`, "the page: accept", 1},
				{"plain", `{"a":1,"b":2}`, "3", 0},
				{"broken", `{}`, "it is broken (isError)", 0},
			} {
				r, err := c.Call(ctx, one.tool, json.RawMessage(one.args))
				if err != nil {
					t.Fatalf("%s: %v", one.tool, err)
				}
				if got, asked := texts(r), s.times(); got != one.want || asked != one.asked {
					t.Errorf("%s: %q, asked %d times; want %q, %d times", one.tool, got, asked, one.want, one.asked)
				}
			}
			p, err := c.GetPrompt(ctx, "letter", nil)
			if err != nil || len(p.Messages) != 1 || p.Messages[0].Content.(*mcp.TextContent).Text != "a letter about rain" {
				t.Errorf("the prompt: %+v, %v", p, err)
			}
			r, err := c.ReadResource(ctx, "mrtr://note")
			if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != "a note about rain" {
				t.Errorf("the resource: %+v, %v", r, err)
			}
		})
	}
}

// A person who takes their time answers in another process: the call is set
// aside, and goes on from where it was.
func TestOurClientGoesOnLaterWithTheMRTRServer(t *testing.T) {
	url := StartMRTRServer(t)
	s := &scripted{answers: map[string]client.Answer{"Your name?": yes(`{"name":"Ann"}`)}}
	c, ctx := ours(t, s, func() (mcp.Transport, error) { return &mcp.StreamableClientTransport{Endpoint: url}, nil }), within(t)
	h, err := c.Start(ctx, "two_rounds", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(ctx)
	var stopped *client.Error
	if !errors.As(err, &stopped) || !errors.Is(err, client.ErrNeedsInput) || len(stopped.Questions) != 1 || stopped.State == nil {
		t.Fatalf("the call ended with %v", err)
	}
	if err := h.Answer(ctx, stopped.Questions[0].Key, yes(`{"colour":"green"}`)); err != nil {
		t.Fatal(err)
	}
	if h, err = c.Attach(ctx, h.ID()); err != nil {
		t.Fatal(err)
	}
	r, err := h.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := r.Tool()
	if err != nil || texts(tool) != "Ann likes green" {
		t.Errorf("%+v, %v", tool, err)
	}
}

func TestOurClientIsAskedLiveByTheEverythingServer(t *testing.T) {
	for name, transport := range map[string]func() (mcp.Transport, error){
		"http": func() func() (mcp.Transport, error) {
			url := StartEverything(t)
			return func() (mcp.Transport, error) { return &mcp.StreamableClientTransport{Endpoint: url}, nil }
		}(),
		"stdio": func() (mcp.Transport, error) { return &mcp.CommandTransport{Command: EverythingCommand(t)}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			const form = "Please provide inputs for the following fields:"
			s := &scripted{answers: map[string]client.Answer{form: yes(`{"name":"Ann","check":true}`)}}
			c, ctx := ours(t, s, transport), within(t)
			if r, err := c.Call(ctx, "echo", map[string]string{"message": "hello"}); err != nil || texts(r) != "Echo: hello" {
				t.Fatalf("echo: %+v, %v", r, err)
			}
			session, err := c.Session(ctx)
			if err != nil {
				t.Fatal(err)
			}
			waitForTool(t, session, "trigger-elicitation-request")
			r, err := c.Call(ctx, "trigger-elicitation-request", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(r); !strings.Contains(got, "- Name: Ann") || !strings.Contains(got, "- Agreed to terms: true") || s.times() != 1 {
				t.Errorf("elicitation: %q", got)
			}
			s.answers[form] = client.Decline()
			if r, err = c.Call(ctx, "trigger-elicitation-request", nil); err != nil || !strings.Contains(texts(r), "declined") {
				t.Errorf("declined: %+v, %v", r, err)
			}
		})
	}
}
