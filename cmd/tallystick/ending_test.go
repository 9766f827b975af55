package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin"
)

func TestEveryErrorOfACallHasItsCode(t *testing.T) {
	of := func(kind error) *client.Error { return &client.Error{ID: "abc", Kind: kind} }
	said := func(outcome string) *client.Error {
		return &client.Error{ID: "abc", Kind: client.ErrFailed, Outcome: outcome}
	}
	for _, tt := range []struct {
		err  error
		want exit.Code
		next string // the end of a command that comes next; empty: none does
	}{
		{of(client.ErrFailed), exit.Failed, ""},
		{said("expired"), exit.Expired, ""},
		{said("unknown"), exit.Held, ""},
		{said("held"), exit.Held, ""},
		{said("declined"), exit.Declined, ""},
		{said("crash_loop"), exit.Failed, ""},
		{of(client.ErrExpired), exit.Expired, ""},
		{of(client.ErrCancelled), exit.Cancelled, ""},
		{of(client.ErrUnknown), exit.Failed, "resume --again abc"},
		{of(client.ErrInvalidResponse), exit.Failed, ""},
		{of(client.ErrNeedsInput), exit.NeedsInput, "resume abc"},
		{of(client.ErrRounds), exit.Detached, "resume abc"},
		{of(client.ErrUnreachable), exit.Unreachable, "resume abc"},
		{of(client.ErrUnauthorized), exit.Auth, "resume abc"},
		{&client.Error{ID: "abc", Kind: client.ErrUnauthorized, Err: signin.ErrSignIn}, exit.Auth, "servers login desk"},
		{of(client.ErrBusy), exit.Detached, "watch abc"},
		{of(client.ErrDetached), exit.Detached, "resume abc"},
		{of(client.ErrNotFound), exit.Usage, "tallystick tasks"},
		{of(client.ErrClosed), exit.Failed, ""},
		{fmt.Errorf("settings: %w", &settings.Problem{Text: "no"}), exit.Usage, ""},
		{context.DeadlineExceeded, exit.Detached, ""},
		{errors.New("anything else"), exit.Failed, ""},
	} {
		e := endOf("", nil, tt.err)
		next := commands((&app{}).next(e, "desk"))
		if e.code != tt.want || (len(next) == 0) != (tt.next == "") || tt.next != "" && !strings.HasSuffix(next[0], tt.next) {
			t.Errorf("%v: %s, next %q; want %s, %q", tt.err, e.code.Name(), next, tt.want.Name(), tt.next)
		}
		if e.text == "" || strings.Contains(e.text, "client: ") {
			t.Errorf("%v: it says %q", tt.err, e.text)
		}
	}
}

func TestEveryResultHasItsCode(t *testing.T) {
	for _, tt := range []struct {
		result client.Result
		want   exit.Code
	}{
		{client.Result{}, exit.Completed},
		{client.Result{IsError: true}, exit.ToolError},
		{client.Result{IsError: true, Outcome: "declined"}, exit.Declined},
		{client.Result{IsError: true, Outcome: "dismissed"}, exit.Dismissed},
		{client.Result{IsError: true, Outcome: "expired"}, exit.Expired},
		{client.Result{IsError: true, Outcome: "held"}, exit.Held},
		{client.Result{Outcome: "pending"}, exit.NeedsInput},
		{client.Result{IsError: true, Outcome: "already_done"}, exit.ToolError},
		{client.Result{Outcome: "of tomorrow"}, exit.Completed},
	} {
		if e := endOf("tools/call", &tt.result, nil); e.code != tt.want {
			t.Errorf("%+v: %s, want %s", tt.result, e.code.Name(), tt.want.Name())
		}
	}
}

// What a server of others means by such a code in an error of a tool is its own.
func TestErrorsOfPromptsAndResourcesSayHowTheyEnded(t *testing.T) {
	for code, want := range map[int64]exit.Code{
		1001: exit.Declined, 1002: exit.Dismissed, 1003: exit.Expired, 1004: exit.NeedsInput, 1005: exit.Held, 1006: exit.Failed, 1007: exit.Failed, -32603: exit.Failed,
	} {
		err := &client.Error{ID: "abc", Kind: client.ErrFailed, Code: code}
		for method, want := range map[string]exit.Code{"prompts/get": want, "resources/read": want, "tools/call": exit.Failed} {
			e := endOf(method, nil, err)
			if said := e.document().Outcome; e.code != want || (said != "") != (method != "tools/call" && code >= 1001 && code <= 1006) {
				t.Errorf("%s, %d: %s, %q; want %s", method, code, e.code.Name(), said, want.Name())
			}
		}
	}
	err := &client.Error{ID: "abc", Kind: client.ErrFailed, Code: 1001, Outcome: "held"}
	if e := endOf("prompts/get", nil, err); e.code != exit.Held {
		t.Errorf("%s: what it says is not what counts", e.code.Name())
	}
}

func TestWhatIsShownCanBeTypedAgain(t *testing.T) {
	for arg, want := range map[string]string{
		"approve~2": "approve~2", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "a\x1b[2K": `$'a\033[2K'`,
		"~kim": "'~kim'", "-x": "'-x'", "%1": "'%1'", "@a": "'@a'", "+a": "'+a'", "!!": "'!!'", "a=b": "'a=b'", `\x1b`: `'\x1b'`,
		"é": "'é'", "\u202e'!\\": `$'\342\200\256\047\041\134'`,
	} {
		if got := quoted(arg); got != want {
			t.Errorf("%q is shown as %s, want %s", arg, got, want)
		}
	}
}

// What is suggested gives a shell, and then the flags, the very key.
func TestASuggestionNamesTheVeryKey(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED: that a shell takes what is suggested as it is meant, which is for those of other systems: run this on another system")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("bash is missing")
		}
		t.Skip("NOT TESTED: that a shell takes what is suggested as it is meant, as bash is missing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"", "a", "Z", "0", "=", "={}", `={"a":"`, `"}`, "~", "-", "--", "%", "@", "+", "!", "!!", "!a", "'", "\"", "`", "$", "$(id)", "${HOME}", "\\", `\n`, `\'`,
		"\n", "\r", "\t", "\x1b", "\x01", "\x7f", " ", "*", "?", "[a]", "{a,b}", "#", "&", ";", "|", "<", ">", "(", ")", "^", "é", "\u202e", "\u200b", "\u0085", "😀", "\ue000", "\xff", "e\u0301\u0301\u0301\u0301\u0301"}
	var keys []string
	script := "set -o history -o histexpand\n"
	for range 2000 {
		var key string
		for range 1 + random.IntN(5) {
			key += parts[random.IntN(len(parts))]
		}
		keys = append(keys, key)
		next := answers("id", []client.Question{
			{Key: key, Kind: client.Form, Schema: []byte(`{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}`)},
			{Key: key, Kind: client.Form, Schema: []byte(`{"type":"object","properties":{"a":{"type":"string"}}}`)},
		})
		if len(next) != 5 {
			t.Fatalf("%q: %q", key, next)
		}
		for _, line := range commands(next[1:]) {
			if safetext.Line(line) != line {
				t.Fatalf("%q drives a terminal", line)
			}
			script += `printf '%s\0' ` + strings.Replace(strings.TrimPrefix(line, "tallystick answer id "), "{…}", `{"b=":"={}"}`, 1) + "\n"
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile")
	bash.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
	bash.Stdin = strings.NewReader(script)
	out, err := bash.Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(string(out), "\x00")
	if len(words) != 8*len(keys)+1 {
		t.Fatalf("%d words of %d keys", len(words), len(keys))
	}
	for i, key := range keys {
		w := words[8*i : 8*i+8]
		for _, flags := range []answering{{yes: w[1:2]}, {decline: w[3:4]}, {answers: w[5:6]}, {decline: w[7:8]}} {
			replies, err := flags.replies()
			if err != nil || replies[0].key != key {
				t.Fatalf("%q became %q, %v", key, w, err)
			}
		}
	}
	if got := toAnswer(""); got != "'={…}'" {
		t.Errorf("%s: zsh takes a bare = for the path of a command", got)
	}
	if next := answers("id", []client.Question{{Key: "a\x00b", Kind: client.Form}}); len(next) != 1 || next[0].remark != "on a terminal" {
		t.Errorf("of a key that is in no argument: %q", next)
	}
}
