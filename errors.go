package tallystick

import (
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/wire"
)

// What became of a question or an effect. Handlers get them from [Ask],
// [Call.Confirm], [Call.Input] and [Once]; return them, wrapped or not, and the
// caller is told which it was.
var (
	// ErrPending: nobody has answered yet. Return it (or nil).
	ErrPending = engine.ErrPending
	// ErrDeclined: a person said no.
	ErrDeclined = errors.New("declined: the person who was asked said no")
	// ErrDismissed: a person closed the question without an answer.
	ErrDismissed = errors.New("dismissed: the question was closed without an answer; calling again asks again")
	// ErrExpired: nobody answered in time; calling again asks again.
	ErrExpired = errors.New("expired: nobody answered in time; calling again asks again")
	// ErrDone: the effect was done before, for another owner of its subject.
	ErrDone = errors.New("already done, by another call that is not yours")
	// ErrBusy: another call has started the effect and is not at it: it waits for a person.
	ErrBusy = errors.New("another call is doing it; call again later")
	// ErrHeld: an effect started and nobody knows whether it happened.
	ErrHeld = errors.New("held: it is not known whether it happened; a person has to find out, do not try it again")
	// ErrCancelled: the call was asked to stop.
	ErrCancelled = engine.ErrCancelled
)

var errNotAllowed = errors.New("not allowed")

// outcome names err for machines, in _meta tallystick/outcome; empty if it is
// none of ours.
func outcome(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{ErrDeclined, "declined"}, {ErrDismissed, "dismissed"}, {ErrExpired, "expired"}, {ErrPending, "pending"},
		{ErrHeld, "held"}, {ErrDone, "already_done"}, {ErrBusy, "busy"}, {ErrCancelled, "cancelled"},
		{engine.ErrTimeout, "timeout"}, {errNotAllowed, "not_allowed"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return ""
}

// Codes of JSON-RPC errors by which prompts/get and resources/read say what
// tools say in a result. The protocol leaves positive codes to applications.
const (
	CodeDeclined   = 1001
	CodeDismissed  = 1002
	CodeExpired    = 1003
	CodePending    = 1004
	CodeHeld       = 1005
	CodeNotAllowed = 1006
)

// outcomeCode is the code of an outcome where there is no tool result.
func outcomeCode(name string) int64 {
	switch name {
	case "declined":
		return CodeDeclined
	case "dismissed":
		return CodeDismissed
	case "expired":
		return CodeExpired
	case "pending":
		return CodePending
	case "held":
		return CodeHeld
	case "not_allowed":
		return CodeNotAllowed
	}
	return wire.CodeInternal
}

// errState is the one answer to every state that does not open or fit, or was
// used with other answers: why is in the log, and on record.
func errState() error {
	return &wire.Error{
		Code: wire.CodeInvalidParams, Message: "the request state is not valid for this request; start the call again without it",
		Data: map[string]any{"reason": "invalid_request_state"},
	}
}

// errInFlight is the answer to a request whose like is being worked on for
// longer than a request waits.
func errInFlight() error {
	return &wire.Error{Code: wire.CodeInternal, Message: "the same request is still being worked on; send it again later", Status: 503}
}

// errNoTask is the one answer for tasks that are absent, purged or foreign.
var errNoTask error = wire.Errorf(wire.CodeInvalidParams, "no such task")

func limitError(name string, got, limit int) error {
	return fmt.Errorf("%d is over the limit %s (%d)", got, name, limit)
}
