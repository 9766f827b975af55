package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
)

// retry serves a request that comes with a sealed state.
//
// Order: open, bind, authorise, validate the answers (which consumes nothing),
// commit the round claimed and the answers, run, commit the response.
func (x *exchange) retry(ctx context.Context) (json.RawMessage, error) {
	claims, err := x.s.sealer.Open(x.r.RequestState)
	if err != nil {
		x.s.log.Warn("a state does not open", "tool", x.f.name, "tenant", x.id.Tenant, "err", err)
		x.s.refused("state_does_not_open", x.id.Tenant)
		return nil, errState()
	}
	if reason := x.misbound(claims); reason != "" {
		return nil, x.refuseState(ctx, claims.Call, reason)
	}
	if x.f.readOnly {
		return x.carried(ctx, claims)
	}
	c, err := x.s.engine.Load(ctx, claims.Call)
	if errors.Is(err, store.ErrNotFound) {
		return nil, x.refuseState(ctx, "", x.gone(ctx, claims.Call))
	}
	if err != nil {
		return nil, err
	}
	if c.Owner != x.id.principal() || c.Action != x.action {
		return nil, x.refuseState(ctx, c.ID, "state_of_another_call")
	}
	observe.At(x.values).Of(c)
	if err := x.s.authorize(ctx, accessTo(c, Resume, x.id)); err != nil {
		return x.failure(err, c.ID)
	}
	return x.resume(ctx, c, claims.Round)
}

// gone says why a call that a genuine state names is not there.
func (x *exchange) gone(ctx context.Context, call string) record.Reason {
	_, err := x.s.store.Mark(ctx, record.MarkID{Kind: record.MarkGone, Tenant: x.id.Tenant, Name: call})
	if err == nil {
		return "call_purged"
	}
	return "call_unknown" // of another store, or a backup older than it
}

// misbound says why a genuine state is not one for this request, or nothing.
func (x *exchange) misbound(c seal.Claims) record.Reason {
	switch {
	case c.Principal != x.id.principal().Tag():
		return "state_of_another_principal"
	case c.Action != x.action.Digest():
		return "state_of_another_action"
	case (c.Call == "") != x.f.readOnly:
		return "state_of_another_keeping"
	}
	return ""
}

// refuseState puts on record why a state is refused, and tells nothing of it.
func (x *exchange) refuseState(ctx context.Context, call string, reason record.Reason) error {
	if call != "" {
		x.s.engine.Refuse(ctx, call, x.by, reason, "")
	} else {
		x.s.refused(reason, x.id.Tenant)
	}
	return errState()
}

// carried goes on with a call that its client carries.
func (x *exchange) carried(ctx context.Context, claims seal.Claims) (json.RawMessage, error) {
	now, err := x.s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if claims.PastDeadline(now) {
		return nil, x.refuseState(ctx, "", record.ReasonDeadline)
	}
	var c record.Call
	if err := json.Unmarshal(claims.Journal, &c); err != nil {
		return nil, x.refuseState(ctx, "", "journal_unreadable")
	}
	if !x.paused(&c, claims.Round) {
		return nil, x.refuseState(ctx, "", "journal_does_not_fit")
	}
	c.Args = x.r.Arguments
	observe.At(x.values).Of(&c)
	if err := x.s.authorize(ctx, x.access(&c, Resume)); err != nil {
		return x.failure(err, "")
	}
	got, err := x.read(ctx, &c)
	if err != nil {
		return nil, err
	}
	if len(got.events(&c, x, now)) == 0 && !x.news(&c, now) {
		return x.reissue(ctx, &c)
	}
	if err := x.s.mayReply(ctx, &c, x.access(&c, Reply), got.given); err != nil {
		return x.failure(err, "")
	}
	events := func(c *record.Call, now time.Time) []record.Event { return got.events(c, x, now) }
	run, ended, err := x.s.engine.Carry(ctx, &c, x.by, events, record.Retry{N: claims.Round, Answers: got.digest})
	if err != nil {
		return nil, x.refuseState(ctx, "", "journal_does_not_fit")
	}
	if run == nil {
		return x.status(ended)
	}
	return x.drive(ctx, run)
}

// paused reports whether a carried call is as it was when round n was closed.
// Only another release can have sealed what is not.
func (x *exchange) paused(c *record.Call, n int) bool {
	return c.State == record.Waiting && !c.Background && n > 0 && c.Round == n && len(c.Rounds) == n && c.Rounds[n-1].Closed &&
		c.Owner == x.id.principal() && c.Action == x.action &&
		!slices.ContainsFunc(c.Questions, func(q record.Question) bool { return q.State == record.Answered && len(q.Answers) == 0 })
}

// resume goes on with round n of a kept call.
func (x *exchange) resume(ctx context.Context, c *record.Call, n int) (json.RawMessage, error) {
	for range 3 { // each further time because another request was quicker
		got, err := x.read(ctx, c)
		if err != nil {
			return nil, err
		}
		if n != c.Round || c.State != record.Waiting || c.Background {
			return x.used(ctx, c, n, got.digest)
		}
		if last := c.Rounds[len(c.Rounds)-1]; !last.Closed && last.N == n && last.Answers != got.digest {
			return nil, x.refuseState(ctx, c.ID, record.ReasonRoundUsed)
		}
		now, err := x.s.store.Now(ctx)
		if err != nil {
			return nil, err
		}
		if len(got.events(c, x, now)) == 0 && !x.news(c, now) {
			if c, err = x.linger(ctx, c, got.consent); err != nil {
				return nil, err
			}
			if c.State == record.Waiting && !x.news(c, now) {
				return x.reissue(ctx, c)
			}
			continue
		}
		if err := x.s.mayReply(ctx, c, x.access(c, Reply), got.given); err != nil {
			return x.failure(err, c.ID)
		}
		for _, g := range got.given {
			if q := c.Question(g.WireKey); q != nil && q.State != record.Open {
				x.s.engine.Refuse(ctx, c.ID, x.by, record.ReasonNotOpen, g.WireKey)
			}
		}
		res, err := x.claim(ctx, c, n, got)
		var refused *record.Refusal
		if !errors.As(err, &refused) {
			return res, err
		}
		if c, err = x.s.engine.Load(ctx, c.ID); err != nil {
			return nil, err
		}
	}
	return nil, x.refuseState(ctx, c.ID, record.ReasonInFlight)
}

// claim takes the round, with the answers given to it, and runs the handler. Who
// brings none may have waited for what brings the call further, and is asked for
// once more.
func (x *exchange) claim(ctx context.Context, c *record.Call, n int, got *answers) (json.RawMessage, error) {
	if len(got.given) == 0 {
		if err := x.s.authorize(ctx, accessTo(c, Resume, x.id)); err != nil {
			return x.failure(err, c.ID)
		}
	}
	retry := record.Retry{N: n, Answers: got.digest}
	run, err := x.s.engine.Retry(ctx, c.ID, x.by, func(c *record.Call, now time.Time) []record.Event {
		return append([]record.Event{record.TimePassed{}}, got.events(c, x, now)...)
	}, retry)
	if err != nil {
		return nil, err
	}
	if run == nil {
		if c, err = x.s.engine.Load(ctx, c.ID); err != nil {
			return nil, err
		}
		return x.status(c)
	}
	run.AskFirst = x.f.AskFirst && x.r.DeclaresTasks()
	return x.drive(ctx, run)
}

// linger waits, bounded, when a retry brings nothing new but consent to open a
// URL, or while others are to answer: their answer may be about to come.
func (x *exchange) linger(ctx context.Context, c *record.Call, consent bool) (*record.Call, error) {
	if !consent {
		return c, nil
	}
	return x.s.engine.Await(ctx, c.ID, x.s.limits.InlineWait, func(c *record.Call) bool {
		return c.State != record.Waiting || x.news(c, c.CreatedAt)
	})
}

// news reports whether something became of what the last response asked, so
// that the handler gets further if it runs. That nothing of it is left for this
// requester is news too: the call then waits for others, and not for a client.
func (x *exchange) news(c *record.Call, now time.Time) bool {
	last := c.Rounds[len(c.Rounds)-1]
	if !last.Closed || len(last.Asked) == 0 || !x.asked(c) {
		return true
	}
	return slices.ContainsFunc(last.Asked, func(key string) bool {
		q := c.Question(key)
		return q == nil || q.State != record.Open || !now.Before(q.Expires)
	})
}

// asked reports whether an open question is this requester's to answer.
func (x *exchange) asked(c *record.Call) bool {
	return slices.ContainsFunc(c.Open(), func(q record.Question) bool { return q.MayAnswer(x.by, c.Owner) })
}

// used answers a retry of a round that was consumed, or of a call that is not
// waiting for one. The same answers get the recorded response, others are
// refused.
func (x *exchange) used(ctx context.Context, c *record.Call, n int, given string) (json.RawMessage, error) {
	if n > c.Round {
		return nil, x.refuseState(ctx, c.ID, record.ReasonRoundAhead)
	}
	if n >= len(c.Rounds) { // never consumed, and it is too late now
		x.s.engine.Refuse(ctx, c.ID, x.by, record.ReasonEnded, "")
		return x.status(c)
	}
	if c.Rounds[n].Answers != given {
		return nil, x.refuseState(ctx, c.ID, record.ReasonRoundUsed)
	}
	c, err := x.settled(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.State == record.Running && !c.Background {
		return nil, errInFlight()
	}
	round := c.Rounds[n]
	if !round.Closed && c.State == record.Waiting {
		return x.resume(ctx, c, n) // the run that had it is gone
	}
	if len(round.Asked) == 0 {
		return x.status(c)
	}
	var asked []record.Question
	for _, key := range round.Asked {
		if q := c.Question(key); q != nil && q.Who.Allows(x.by, c.Owner) {
			asked = append(asked, *q)
		}
	}
	return x.inputRequired(ctx, c, asked, n+1)
}

// answers are what a request brings in answer to questions.
type answers struct {
	given   []given
	consent bool
	digest  string // of all of it, known or not
}

// read validates what the request answers, by the kinds and forms that were
// asked. What answers no question of the call is left out. One misfit refuses
// it all, and consumes nothing.
func (x *exchange) read(ctx context.Context, c *record.Call) (*answers, error) {
	got := &answers{}
	var sum strings.Builder
	wrong := map[string]misfit{}
	for _, key := range slices.Sorted(maps.Keys(x.r.InputResponses)) {
		raw := x.r.InputResponses[key]
		digest, err := canon.Digest(raw)
		if err != nil {
			wrong[key] = misfit{"": "is not JSON that can be taken exactly"}
			continue
		}
		sum.WriteString(key + "\x00" + digest + "\x00")
		q := c.Question(key)
		if q == nil {
			continue
		}
		g, bad := readAnswer(q, raw)
		if bad != nil {
			wrong[key] = bad
			continue
		}
		got.consent = got.consent || g.consent
		got.given = append(got.given, g)
	}
	if len(wrong) > 0 {
		if !x.f.readOnly {
			x.s.engine.Refuse(ctx, c.ID, x.by, "answer_does_not_fit", "")
		}
		return nil, errMisfit(wrong)
	}
	if sum.Len() > 0 {
		var err error
		text, _ := json.Marshal(sum.String())
		if got.digest, err = canon.Digest(text); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// errMisfit names what does not fit, by question and field.
func errMisfit(wrong map[string]misfit) error {
	return &wire.Error{
		Code: wire.CodeInvalidParams, Message: "an answer does not fit its question; nothing was taken",
		Data: map[string]any{"reason": "invalid_answer", "fields": wrong},
	}
}

// events are the answers that can count for the call as it is now: to open
// questions that the sender may answer.
func (a *answers) events(c *record.Call, x *exchange, now time.Time) []record.Event {
	var events []record.Event
	for _, g := range a.given {
		q := c.Question(g.WireKey)
		if g.consent || q == nil || q.State != record.Open || !now.Before(q.Expires) || !q.MayAnswer(x.by, c.Owner) {
			continue
		}
		events = append(events, g.Responded)
	}
	return events
}
