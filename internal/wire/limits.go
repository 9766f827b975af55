package wire

import (
	"fmt"
	"net/http"
)

// Limits bound what one peer can make this process hold. A zero field means
// its default; there is no way to switch a limit off, only to raise it. The
// error for each names the field, so that whoever meets it knows what to set.
type Limits struct {
	// BodyBytes of one HTTP request body. Default 2 MiB: arguments and as many
	// answers again.
	BodyBytes int64
	// Nesting of objects and arrays, the message itself being 1. Default 64.
	Nesting int
	// ArgumentsBytes of a call's arguments. Default 1 MiB.
	ArgumentsBytes int
	// AnswerBytes of each member of inputResponses. Default 64 KiB.
	AnswerBytes int
	// StateBytes of requestState. Default 16 KiB.
	StateBytes int
	// ResultBytes of a result, as JSON. Default 4 MiB.
	ResultBytes int
	// Sessions of the 2025 era open at once, over all principals. Default 10,000.
	Sessions int
	// SessionsPerPrincipal of the 2025 era open at once. Default 1,000.
	SessionsPerPrincipal int
	// InFlight requests of ours on one connection of [NewTransport]. Default 1,024.
	InFlight int
}

func (l Limits) withDefaults() Limits {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	if l.BodyBytes <= 0 {
		l.BodyBytes = 2 << 20
	}
	def(&l.Nesting, 64)
	def(&l.ArgumentsBytes, 1<<20)
	def(&l.AnswerBytes, 64<<10)
	def(&l.StateBytes, 16<<10)
	def(&l.ResultBytes, 4<<20)
	def(&l.Sessions, 10_000)
	def(&l.SessionsPerPrincipal, 1_000)
	def(&l.InFlight, 1_024)
	return l
}

// tooLarge is the error for a part of a request beyond its limit. It travels
// with 413, so that a caller can tell "smaller" from "otherwise".
func tooLarge(code int64, what, field string, limit int64) *Error {
	return &Error{
		Code:    code,
		Message: fmt.Sprintf("%s is over the limit of %d bytes (Limits.%s)", what, limit, field),
		Data:    map[string]any{"limit": field, "bytes": limit},
		Status:  http.StatusRequestEntityTooLarge,
	}
}
