package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
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
		next string // in what comes next; empty: nothing does
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
		e := endOf(nil, tt.err)
		next := strings.Join(e.next("desk"), "\n")
		if e.code != tt.want || (next == "") != (tt.next == "") || !strings.Contains(next, tt.next) {
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
		if e := endOf(&tt.result, nil); e.code != tt.want {
			t.Errorf("%+v: %s, want %s", tt.result, e.code.Name(), tt.want.Name())
		}
	}
}

func TestWhatIsShownCanBeTypedAgain(t *testing.T) {
	for arg, want := range map[string]string{
		"approve~2": "approve~2", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "a\x1b[2K": `'a\x1b[2K'`,
	} {
		if got := quoted(arg); got != want {
			t.Errorf("%q is shown as %s, want %s", arg, got, want)
		}
	}
}
