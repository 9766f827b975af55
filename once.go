package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// An Effect is named work that must not happen twice.
type Effect struct {
	// Name of the work: "charge", "delete".
	Name string
	// Subject is what it is done to: "order 1234". The effect then happens once
	// per tenant and subject over all calls, and that is remembered for ever.
	// Empty: once in this call.
	Subject string
	// Repeatable: the far side honours the key, so that an attempt of unknown
	// end may be made again. Otherwise it is held for a person.
	Repeatable bool
	// AfterNo: it may start though a question of this run was declined,
	// dismissed or has expired. Otherwise Once returns that no, so that a
	// handler that forgot to look at the error of Confirm does no harm.
	AfterNo bool
}

// Once does f once. f gets a key that is the same for every attempt, to hand to
// the far side; its context carries ctx's values and ends with the run's lease,
// not with the client's connection.
//
// It returns f's result, or the one recorded when it was done before, decoded
// from JSON. It does not start f while a question of this run is pending
// (ErrPending), after a no in this run (see AfterNo), after a cancel, past the deadline, or when the caller may no
// longer. ErrDone: it was done for another owner of the subject. ErrBusy:
// another call has started it and waits for a person. ErrHeld: it started and nobody knows whether it
// happened; return, and the call goes on when a person has resolved it.
//
// If f fails, the end is unknown (held, or tried again if Repeatable) unless it
// returned [NotDone]. A result that JSON cannot hold, or that is over
// Limits.ResultBytes, is held: it happened, and a person says what came of it.
func Once[R any](ctx context.Context, c *Call, e Effect, f func(ctx context.Context, key string) (R, error)) (R, error) {
	var result, zero R
	if e.Name == "" || len(e.Name) > 128 || len(e.Subject) > 512 {
		return zero, fmt.Errorf("effect %q: the name takes 1 to 128 bytes, the subject at most 512", e.Name)
	}
	if _, err := json.Marshal(zero); err != nil {
		return zero, fmt.Errorf("effect %q: what it returns cannot be put on record: %w", e.Name, err)
	}
	if e.Subject == "" && !c.journal.Carried() {
		c.s.warnNoSubject(c.f.name, e.Name)
	}
	c.s.learnShape(effectOf{c.f.name, e.Name}, func(raw []byte) error {
		var r R
		return strictDecode(raw, &r, jsonv2.RejectUnknownMembers(true))
	})
	raw, err := c.journal.Once(ctx, engine.Effect{
		Name: e.Name, Subject: e.Subject, Repeatable: e.Repeatable, May: func() error { return c.mayBegin(e) },
		Fits: func(raw []byte) error {
			var r R
			return readResult(raw, &r)
		},
		Do: func(ctx context.Context, key string) ([]byte, error) {
			r, err := f(ctx, key)
			if err != nil {
				return nil, err
			}
			raw, err := json.Marshal(r)
			if err == nil && len(raw) > c.s.limits.ResultBytes {
				err = limitError("ResultBytes", len(raw), c.s.limits.ResultBytes)
			}
			if err != nil {
				return nil, &engine.Unkept{Err: err}
			}
			return raw, nil
		},
	})
	if err != nil {
		return zero, c.s.effectError(err, e.Name)
	}
	if err := readResult(raw, &result); err != nil {
		return zero, c.s.effectError(&engine.Unfit{Call: c.ID(), Err: err}, e.Name)
	}
	return result, nil
}

// readResult reads what is on record of an effect; nothing is the zero value.
func readResult(raw []byte, result any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, result)
}

// effectOf names an effect of a tool.
type effectOf struct{ tool, effect string }

// maxShapes bounds how many are remembered: effects may have any names.
const maxShapes = 4096

// learnShape remembers what an effect returns, for a person who says what one
// has returned that is held.
func (s *Server) learnShape(of effectOf, fits func(result []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shapes[of] == nil && len(s.shapes) < maxShapes {
		s.shapes[of] = fits
	}
}

// checkResult says why an effect's result is none that Once can return, as far
// as this process knows: it learns what an effect returns when a handler gets
// to it.
func (s *Server) checkResult(of effectOf, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	if !jsontext.Value(raw).IsValid() {
		return errors.New("the result is no JSON, or has a name twice, or text that is not UTF-8")
	}
	s.mu.Lock()
	fits := s.shapes[of]
	s.mu.Unlock()
	if fits == nil {
		return nil
	}
	if err := fits(raw); err != nil {
		return fmt.Errorf("the result does not fit what the function of effect %q returns (leave it out for the zero value): %w", of.effect, err)
	}
	return nil
}

// NotDone says of an effect that failed with err that it certainly did not
// happen, by this attempt or an earlier one: nothing is held, and it may be
// tried again. Return it from Once's f.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &engine.Undone{Err: err}
}

// effectError turns the law's refusals into the errors of this package. What the
// store says is for the log: a handler's error may reach its caller.
func (s *Server) effectError(err error, effect string) error {
	var refused *record.Refusal
	var undone *engine.Undone
	var unfit *engine.Unfit
	switch {
	case errors.Is(err, engine.ErrPending):
		return ErrPending
	case errors.As(err, &unfit):
		return fmt.Errorf("effect %q was done, and is not done again; but its result, which call %s has on record, does not fit what its function returns: return the type that was recorded, or, if a person gave it, have them give another: %w", effect, unfit.Call, unfit.Err)
	case errors.As(err, &undone):
		return undone.Err
	case errors.Is(err, store.ErrQuota):
		return fmt.Errorf("effect %q: %w (LiveCalls %d)", effect, store.ErrQuota, s.limits.LiveCalls)
	case errors.As(err, &refused):
	case outcome(err) != "" || slices.ContainsFunc(engine.Told, func(t error) bool { return errors.Is(err, t) }):
		return err
	default:
		id := newID()
		s.log.Error("an effect could not be started", "effect", effect, "correlation", id, "err", err)
		return fmt.Errorf("internal error (correlation id %s)", id)
	}
	switch refused.Reason {
	case record.ReasonHeld:
		return fmt.Errorf("%w: %s", ErrHeld, refused.Key)
	case record.ReasonDoneByOther:
		return fmt.Errorf("%w: %s", ErrDone, refused.Key)
	case record.ReasonBusy, record.ReasonInFlight:
		return fmt.Errorf("%w: %s", ErrBusy, refused.Key)
	case record.ReasonCancelled:
		return ErrCancelled
	case record.ReasonDeadline:
		return ErrExpired
	}
	return err
}

// warnNoSubject says once per tool that two calls can do its effects twice.
func (s *Server) warnNoSubject(tool, effect string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.warned[tool] {
		s.warned[tool] = true
		s.log.Warn("an effect without Subject happens once per call, not once per thing: a second call does it again", "tool", tool, "effect", effect)
	}
}
