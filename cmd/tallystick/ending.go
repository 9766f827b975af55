package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin"
)

// An end is how a call, or a command, ended.
type end struct {
	code   exit.Code
	text   string // safe; empty if there is a result and nothing to say of it
	result *client.Result
	err    error
	word   string // what a tallystick server says of an error
}

// errorInfo is an error in --json.
type errorInfo struct {
	Message string         `json:"message"`
	Code    int64          `json:"code,omitzero"`    // of the server's JSON-RPC error
	Data    jsontext.Value `json:"data,omitzero"`    // of the server's JSON-RPC error
	Outcome string         `json:"outcome,omitzero"` // what a tallystick server says of it
}

// codes are the words by which a tallystick server tells how a call ended that
// is no ordinary one.
var codes = map[string]exit.Code{
	"declined": exit.Declined, "dismissed": exit.Dismissed, "expired": exit.Expired,
	"held": exit.Held, "unknown": exit.Held, "pending": exit.NeedsInput, "cancelled": exit.Cancelled,
}

// words are the same, where there is no result of a tool to have them: by the
// codes of errors.
var words = map[int64]string{
	tallystick.CodeDeclined: "declined", tallystick.CodeDismissed: "dismissed", tallystick.CodeExpired: "expired",
	tallystick.CodePending: "pending", tallystick.CodeHeld: "held", tallystick.CodeNotAllowed: "not_allowed",
}

// endOf says how a call of this method ended that had this result, or error. The
// method is empty for what is no call.
func endOf(method string, r *client.Result, err error) end {
	e := end{result: r, err: err}
	switch {
	case err != nil:
		e.code, e.text = codeOf(err), textOf(err)
		var failed *client.Error
		if !errors.As(err, &failed) || !errors.Is(err, client.ErrFailed) {
			break
		}
		e.word = failed.Outcome
		if e.word == "" && (method == "prompts/get" || method == "resources/read") {
			e.word = words[failed.Code]
		}
		if code, ok := codes[e.word]; ok {
			e.code = code
		}
	case r == nil:
	default:
		code, ok := codes[r.Outcome]
		switch {
		case ok:
			e.code = code
		case r.IsError:
			e.code = exit.ToolError
		}
	}
	return e
}

func codeOf(err error) exit.Code {
	var problem *settings.Problem
	if errors.As(err, &problem) {
		return exit.Usage
	}
	var u *unwritten
	if errors.As(err, &u) {
		return exit.NotWritten
	}
	for _, known := range []struct {
		err  error
		code exit.Code
	}{
		{signin.ErrSignIn, exit.Auth}, {client.ErrUnauthorized, exit.Auth},
		{client.ErrNotFound, exit.Usage},
		{client.ErrExpired, exit.Expired}, {client.ErrCancelled, exit.Cancelled}, {client.ErrUnknown, exit.Failed},
		{client.ErrFailed, exit.Failed}, {client.ErrInvalidResponse, exit.Failed},
		{client.ErrNeedsInput, exit.NeedsInput}, {client.ErrUnreachable, exit.Unreachable},
		{client.ErrRounds, exit.Detached}, {client.ErrBusy, exit.Detached}, {client.ErrDetached, exit.Detached},
		{context.Canceled, exit.Detached}, {context.DeadlineExceeded, exit.Detached},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return exit.Failed
}

// textOf is what is said of an error. What comes from the server in it is cut,
// visibly, and escaped.
func textOf(err error) string {
	return safetext.Short(strings.ReplaceAll(err.Error(), "client: ", ""), 2000)
}

// id is the call's, if the error is of one that can be gone on with.
func (e end) id() string {
	var failed *client.Error
	if !errors.As(e.err, &failed) {
		return ""
	}
	return failed.ID
}

// A suggestion is a command that can come next.
type suggestion struct {
	command string
	remark  string // for people
}

func (s suggestion) String() string {
	if s.remark == "" {
		return s.command
	}
	return s.command + "  (" + s.remark + ")"
}

// next are commands that can come after e. server is the call's, if it is known.
func (a *app) next(e end, server string) []suggestion {
	all := e.next(server)
	for i := range all {
		all[i].command += a.given
	}
	return all
}

// commands are the suggestions as --json has them.
func commands(all []suggestion) (commands []string) {
	for _, s := range all {
		commands = append(commands, s.command)
	}
	return commands
}

// next is app.next, but for the flags that a suggestion has to repeat.
func (e end) next(server string) []suggestion {
	id := e.id()
	switch {
	case errors.Is(e.err, signin.ErrSignIn) && server != "":
		return []suggestion{{"tallystick servers login " + quoted(server), ""}}
	case errors.Is(e.err, client.ErrNotFound):
		return []suggestion{{"tallystick tasks", ""}}
	case id == "":
		return nil
	case errors.Is(e.err, client.ErrNeedsInput):
		var failed *client.Error
		errors.As(e.err, &failed)
		if len(failed.Questions) == 0 {
			return []suggestion{{"tallystick resume " + id, "on a terminal, or with --answer or --yes"}}
		}
		return answers(id, failed.Questions)
	case errors.Is(e.err, client.ErrUnknown):
		return []suggestion{{"tallystick resume --again " + id, "sends it once more: only if that does no harm"}}
	case errors.Is(e.err, client.ErrBusy):
		return []suggestion{{"tallystick watch " + id, ""}}
	case errors.Is(e.err, client.ErrDetached), errors.Is(e.err, client.ErrRounds), errors.Is(e.err, client.ErrUnreachable), errors.Is(e.err, client.ErrUnauthorized):
		return []suggestion{{"tallystick resume " + id, ""}, {"tallystick cancel " + id, ""}}
	}
	return nil
}

// answers are the commands that answer these questions.
func answers(id string, questions []client.Question) []suggestion {
	next := []suggestion{{"tallystick answer " + id, "on a terminal"}}
	for _, q := range questions {
		key := quoted(q.Key)
		if q.Kind != client.Form || strings.Contains(q.Key, "\x00") { // that is in no argument
			continue
		}
		accept := " --yes " + key
		if _, err := yes(q.Schema); err != nil {
			accept = " --answer " + toAnswer(q.Key)
		}
		next = append(next, suggestion{"tallystick answer " + id + accept, ""}, suggestion{"tallystick answer " + id + " --decline " + key, ""})
	}
	return next
}

// toAnswer is an argument of --answer whose content is to be written. A word may
// not begin with a bare "=" in zsh.
func toAnswer(key string) string {
	if key == "" {
		return "'={…}'"
	}
	return quoted(key) + "='{…}'"
}

// quoted is an argument as bash and zsh take it, so that they give exactly that
// to the command; but for NUL, which no argument can have. It is safe text.
func quoted(arg string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:"
	switch {
	case arg != "" && strings.Trim(arg, letters+"~-@%+") == "" && strings.Contains(letters, arg[:1]):
		return arg
	case safetext.Line(arg) == arg:
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(arg) {
		if c < ' ' || c > '~' || strings.IndexByte(`'\!`, c) >= 0 { // the last is for the history of bash
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

func (e end) document() *errorInfo {
	if e.err == nil {
		return nil
	}
	info := &errorInfo{Message: e.text}
	var failed *client.Error
	if errors.As(e.err, &failed) {
		info.Code, info.Outcome = failed.Code, cmp.Or(e.word, failed.Outcome)
		if v := jsontext.Value(failed.Data); v.IsValid() {
			info.Data = v
		}
	}
	return info
}

// plural writes "1 call", "2 calls".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
