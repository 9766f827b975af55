package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
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
	m := &respondent{replies: []*reply{{flag: "--yes", key: "sure"}}, keep: (&app{opened: openMemoryOf(t, s)}).keep, tell: func(client.Question, client.Answer, string) { t.Error("the answer of the losing side is told of") }}
	f := &follower{app: &app{}, answers: m}
	q := client.Question{ID: "nosuch", Call: h.ID(), Name: "wipe", Key: "sure", Kind: client.Form, Schema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)}
	lost := make(chan string, 1)
	f.answerAway(t.Context(), q, lost)
	if got := strings.Join(m.unused(), "\n"); <-lost != "nosuch" || !strings.Contains(got, "--yes sure was not taken: ") {
		t.Errorf("of the flags it says %q", got)
	}
}

// What is on disk when an answer is told of is that answer.
func TestAnAnswerIsToldOnceItIsOnDisk(t *testing.T) {
	t.Parallel()
	s := served{env: home(t)}
	m := openMemoryOf(t, s)
	told := 0
	a := &app{opened: m}
	d := &respondent{replies: []*reply{{flag: "--yes", key: "sure"}}, keep: a.keep, kinds: []client.Kind{client.Form}}
	d.tell = func(q client.Question, _ client.Answer, _ string) {
		told++
		if st, err := m.Status(t.Context(), q.Call); err != nil || len(st.Open) > 0 {
			t.Errorf("%+v, %v: the answer is told of and the question is open", st, err)
		}
	}
	c, err := client.New(client.Options{Memory: m, Server: `["far"]`, Answerer: d,
		Transport: func() (mcp.Transport, error) { return &mcp.CommandTransport{Command: exec.Command("far")}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h, err := c.Start(t.Context(), "wipe", json.RawMessage("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Wait(t.Context())
	if err != nil || told != 1 || !strings.Contains(string(r.Raw), "delete_all") {
		t.Errorf("%+v, %v, told %d times", r, err, told)
	}
}

// An answer that could not be kept is not told of; the client has it, and says
// what is wrong with it.
func TestAnAnswerThatIsNotKeptIsNotToldOf(t *testing.T) {
	d := &respondent{replies: []*reply{{flag: "--yes", key: "sure"}}}
	d.keep = func(context.Context, client.Question, client.Answer) error {
		return &notTaken{errors.New("the disk is full")}
	}
	d.tell = func(client.Question, client.Answer, string) { t.Error("it is told of") }
	q := client.Question{ID: "1", Key: "sure", Kind: client.Form, Schema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)}
	if a, err := d.Answer(t.Context(), q); err != nil || a.Action != "accept" {
		t.Errorf("%+v, %v", a, err)
	}
	if got := d.unused(); len(got) != 1 || got[0] != "--yes sure was not taken: the disk is full" {
		t.Errorf("%q", got)
	}
}

// None is forgotten if one cannot be; and if that is only seen when it is too
// late, it says which were.
func TestForgetSaysExactlyWhatIsForgotten(t *testing.T) {
	t.Parallel()
	s, h := heldCall(t)
	r := s.start(t, "", "call", "a", "--json", "--", "odd", `{"resultType":"complete","content":[]}`)
	if code, said := r.end(t); code != 0 {
		t.Fatalf("exit code %d; it said\n%s", code, said)
	}
	var ended struct{ ID string }
	if err := json.Unmarshal(r.out.Bytes(), &ended); err != nil {
		t.Fatal(err)
	}
	r = s.start(t, "", "forget", "--force", "--json", ended.ID, h.ID())
	if code, said := r.end(t); code != 2 || !strings.Contains(said, " is at "+h.ID()+": cancel it") || strings.Contains(r.out.String(), "forgotten") {
		t.Errorf("exit code %d, %s; it said\n%s", code, r.out.String(), said)
	}
	r = s.start(t, "", "forget", "--json", ended.ID, ended.ID)
	if code, said := r.end(t); code != 0 || r.out.String() != `{"forgotten":["`+ended.ID+`"]}`+"\n" {
		t.Errorf("exit code %d, %s; it said\n%s", code, r.out.String(), said)
	}
	busy := &client.Error{ID: "b", Kind: client.ErrBusy}
	for i, want := range []string{"none was forgotten; not forgotten: a, b, c: ", "forgotten: a; not forgotten: b, c: "} {
		if e := endOf("", nil, notForgotten([]string{"a", "b", "c"}, i, busy)); e.code != exit.Usage || !strings.HasPrefix(e.text, want) {
			t.Errorf("%s: %s", e.code.Name(), e.text)
		}
	}
	var out bytes.Buffer
	a := &app{common: common{json: true}, out: &out, screen: terminal.NewScreen(os.Stderr)}
	var told *told
	if err := a.fail(failure{Forgotten: []string{"a"}}, "", notForgotten([]string{"a", "b"}, 1, busy)); !errors.As(err, &told) || told.code != exit.Usage {
		t.Error(err)
	}
	if !strings.HasPrefix(out.String(), `{"forgotten":["a"],"outcome":"usage","exit":2,"error":{"message":"forgotten: a; not forgotten: b: `) {
		t.Error(out.String())
	}
}
