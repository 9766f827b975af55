package client

import (
	"encoding/json"
	"errors"
	"fmt"
)

// What an [Error] is for errors.Is. The first five are ends; after the others
// the call is still on disk, and [Client.Attach] goes on with it.
var (
	ErrFailed    = errors.New("client: the call failed")
	ErrExpired   = errors.New("client: the call has expired")
	ErrCancelled = errors.New("client: the call was cancelled")
	// ErrUnknown: the request may have reached the server, and what became of it
	// cannot be known. Look at what it was to do before you make it again, or
	// send it once more with [Handle.Again].
	ErrUnknown = errors.New("client: whether the call was done is unknown")
	// ErrInvalidResponse: the server broke the protocol.
	ErrInvalidResponse = errors.New("client: invalid response")

	// ErrNeedsInput: questions are open that nobody here can answer.
	ErrNeedsInput = errors.New("client: the call needs an answer")
	// ErrRounds: Limits.Rounds or Limits.Work is used up. Attaching gives the
	// call as much again.
	ErrRounds = errors.New("client: the call takes too many rounds")
	// ErrUnreachable: the server could not be reached, or had no time. The
	// request has not been done, unless Error.MaybeDone.
	ErrUnreachable = errors.New("client: the server cannot be reached")
	// ErrUnauthorized: the server wants other credentials.
	ErrUnauthorized = errors.New("client: not authorised")
	// ErrBusy: another process drives this call at the moment.
	ErrBusy = errors.New("client: another process is at it")
	// ErrDetached: the context or the client has ended, and not the call.
	ErrDetached = errors.New("client: detached")

	// ErrNotFound: there is no such handle, or it was forgotten.
	ErrNotFound = errors.New("client: no such call")
	// ErrClosed: the client or its memory is closed.
	ErrClosed = errors.New("client: closed")
)

// An Error says how a call ended without a result, or why it cannot go on now.
// It wraps one of the errors above, and the cause if there is one.
type Error struct {
	ID     string // of the handle
	Kind   error  // ErrFailed, …
	Reason string // for people; what to do next, if there is something to do

	// Code and Data are those of the server's JSON-RPC error, if it sent one.
	Code int64
	Data json.RawMessage
	// Outcome is what a tallystick server says of a task that failed:
	// "expired", "unknown", "crash_loop", ….
	Outcome string
	// MaybeDone: the call can go on, and an attempt of its last request may have
	// been done already.
	MaybeDone bool

	// State, with ErrRounds and ErrNeedsInput: the requestState of the open
	// round; nil if the server sent none.
	State *string
	// Questions that are open.
	Questions []Question

	Err error
}

func (e *Error) Error() string {
	s := e.Kind.Error()
	if e.ID != "" {
		s += " (" + e.ID + ")"
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.MaybeDone {
		s += "; it may have been done already"
	}
	return s
}

// Unwrap returns Kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidResponse, fmt.Errorf(format, args...))
}
