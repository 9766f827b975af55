package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// waiting says that it is asked, and never answers.
type waiting struct {
	asked chan client.Question
}

func (w waiting) Kinds() []client.Kind { return []client.Kind{client.Form} }

func (w waiting) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	select {
	case w.asked <- q:
	case <-ctx.Done():
		return client.Answer{}, ctx.Err()
	}
	<-ctx.Done()
	return client.Answer{}, ctx.Err()
}

// openMemoryOf opens the memory that the command has too.
func openMemoryOf(t *testing.T, s served) *client.Memory {
	t.Helper()
	folder := ""
	for _, v := range s.env {
		if path, ok := strings.CutPrefix(v, "XDG_STATE_HOME="); ok {
			folder = path
		}
	}
	m, err := client.OpenMemory(context.Background(), client.MemoryOptions{Path: filepath.Join(folder, "tallystick", "calls.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// heldCall is a call that asks, and that this process is at.
func heldCall(t *testing.T) (s served, h *client.Handle) {
	t.Helper()
	s.env = home(t)
	m := openMemoryOf(t, s)
	w := waiting{make(chan client.Question)}
	c, err := client.New(client.Options{Memory: m, Server: `["far"]`, Answerer: w,
		Transport: func() (mcp.Transport, error) { return &mcp.CommandTransport{Command: exec.Command("far")}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if h, err = c.Start(t.Context(), "wipe", json.RawMessage("{}")); err != nil {
		t.Fatal(err)
	}
	<-w.asked
	return s, h
}

// case S51: nobody here can answer, and another process is at the call.
func TestAnAnswerThatCannotBeGivenElsewhereEndsAtOnce(t *testing.T) {
	t.Parallel()
	s, h := heldCall(t)
	for _, tt := range []struct {
		flags []string
		code  int
		says  string
	}{
		{nil, 9, "Delete everything?"},
		{[]string{"--yes", "nosuch"}, 9, "--yes nosuch was for no question"},
		{[]string{"--answer", `sure={"delete_all":"perhaps"}`}, 2, "--answer sure: "},
	} {
		r := s.start(t, "", append([]string{"answer", h.ID()}, tt.flags...)...)
		if code, said := r.end(t); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%q: exit code %d; it said\n%s", tt.flags, code, said)
		}
	}
	r := s.start(t, "", "answer", h.ID(), "--yes", "sure")
	if code, said := r.end(t); code != 0 || !strings.Contains(said, `accepted with {"delete_all":true} by --yes sure`) {
		t.Errorf("exit code %d; it said\n%s", code, said)
	}
}

func TestTheLosingAnswerIsNotSaidToBeAccepted(t *testing.T) {
	t.Parallel()
	s, h := heldCall(t)
	r := s.start(t, "", "answer", h.ID(), "--yes", "sure", "--answer", `more={"x":1}`)
	code, said := r.end(t)
	if code != 2 || !strings.Contains(said, "--answer more was for no question") || !strings.Contains(r.out.String(), `"delete_all":true`) {
		t.Errorf("exit code %d, %s; it said\n%s", code, r.out.String(), said)
	}
	m := &respondent{replies: []*reply{{flag: "--yes", key: "sure"}}, tell: func(client.Question, client.Answer, string) { t.Error("the answer of the losing side is told of") }}
	f := &follower{app: &app{}, answers: m}
	q := client.Question{ID: "nosuch", Call: h.ID(), Key: "sure", Kind: client.Form, Schema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)}
	memory := openMemoryOf(t, s)
	lost := make(chan string, 1)
	f.answerAway(t.Context(), memory, q, lost)
	if got := strings.Join(m.unused(), "\n"); <-lost != "nosuch" || !strings.Contains(got, "--yes sure was not taken: ") {
		t.Errorf("of the flags it says %q", got)
	}
}
