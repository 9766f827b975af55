package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// Waiting is a question, or a held effect, that a person may settle out of
// band: what an approval page shows.
type Waiting struct {
	CallID    string          `json:"callId"`
	Tool      string          `json:"tool"`
	Requester Principal       `json:"requester"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // in full: what is approved is all of it

	// Of a question. Digest names exactly what is asked; hand it to Decide.
	Key      string          `json:"key,omitempty"`
	Digest   string          `json:"digest,omitempty"`
	Kind     string          `json:"kind,omitempty"` // form, url, sampling or roots
	Message  string          `json:"message,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"` // with requestedSchema, for a form
	Facts    json.RawMessage `json:"facts,omitempty"`
	AskedAt  time.Time       `json:"askedAt,omitzero"`
	Expires  time.Time       `json:"expires,omitzero"`
	Accepted int             `json:"accepted,omitempty"` // people, of those Needed
	Needed   int             `json:"needed,omitempty"`

	// Of a held effect, instead.
	Effect    string            `json:"effect,omitempty"`
	Subject   string            `json:"subject,omitempty"`
	StartedAt time.Time         `json:"startedAt,omitzero"`
	Evidence  []record.Evidence `json:"evidence,omitempty"`
}

// maxWaiting bounds what one Waiting returns.
const maxWaiting = 1000

// Waiting lists what by may settle, oldest call first, at most 1000. by must
// be a person whom the caller has authenticated. Options.Authorize is asked for
// each with the verb [Reply]; what it refuses is left out, and is no refusal to
// be put on record, since nobody has tried.
func (s *Server) Waiting(ctx context.Context, by Identity) ([]Waiting, error) {
	if by.Subject == "" || s.opts.Store == nil {
		return nil, nil
	}
	actor := by.actor(record.ChannelDecide)
	var found []Waiting
	for after := ""; len(found) < maxWaiting; {
		calls, err := s.store.List(ctx, store.Filter{Tenant: by.Tenant, Open: true, After: after, Limit: 200})
		if errors.Is(err, store.ErrNotFound) {
			found, after = nil, "" // the last one seen was purged meanwhile
			continue
		}
		if err != nil || len(calls) == 0 {
			return found, err
		}
		for _, c := range calls {
			after = c.ID
			if len(s.waitingIn(c, actor)) == 0 {
				continue
			}
			full, err := s.engine.Load(ctx, c.ID) // with its arguments, as it is now
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, w := range s.waitingIn(full, actor) {
				a := accessTo(full, Reply, by)
				a.Question, a.Effect = w.Key, w.Effect
				if s.allows(ctx, a) == nil {
					found = append(found, w)
				}
			}
		}
	}
	return found[:min(len(found), maxWaiting)], nil
}

func (s *Server) waitingIn(c *record.Call, by record.Actor) []Waiting {
	var found []Waiting
	if c.State != record.Ended {
		for _, q := range c.Open() {
			if q.MayAnswer(by, c.Owner) {
				found = append(found, s.waiting(c, q))
			}
		}
	}
	for _, f := range c.Effects {
		if f.State == record.EffectHeld && s.opts.Operators.Allows(by, c.Owner) {
			found = append(found, Waiting{
				CallID: c.ID, Tool: c.Action.Name, Requester: c.Owner, Arguments: c.Args,
				Effect: f.Name, Subject: f.Subject, StartedAt: f.StartedAt, Evidence: f.Evidence,
			})
		}
	}
	return found
}

func (s *Server) waiting(c *record.Call, q record.Question) Waiting {
	return Waiting{
		CallID: c.ID, Tool: c.Action.Name, Requester: c.Owner, Arguments: c.Args,
		Key: q.WireKey, Digest: q.Digest, Kind: string(q.Kind), Message: q.Message, Request: q.Request, Facts: q.Facts,
		AskedAt: q.AskedAt, Expires: q.Expires, Accepted: q.Accepts(), Needed: q.Who.Needed(),
	}
}

// A Decision settles one question, or resolves one held effect.
type Decision struct {
	CallID string `json:"callId"`

	// Key of the question, as Waiting has it, and its Digest: a question that
	// is no longer asked in those words is not answered. Empty: not compared.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Accept the question, or else decline it.
	Accept bool `json:"accept,omitempty"`
	// Content of an accepted form, an object. Absent or null for Confirm: a yes.
	Content json.RawMessage `json:"content,omitempty"`

	// Effect and Subject of a held effect, instead of Key, and whether it
	// Happened, with its Result (JSON; what Once returns) if it did. A Result that
	// the handler cannot use is ErrBadAnswer if that is known here; else its next
	// run holds the effect again, for another Result. That it happened stands.
	Effect   string          `json:"effect,omitempty"`
	Subject  string          `json:"subject,omitempty"`
	Happened bool            `json:"happened,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// Errors of [Server.Decide].
var (
	// ErrNoQuestion: there is no such question or held effect, or by may not
	// settle it. Which of them is not told.
	ErrNoQuestion = errors.New("nothing of that name waits for you")
	// ErrSettled: it was settled, has expired, or is asked in other words now.
	ErrSettled = errors.New("it does not wait for this answer any more")
	// ErrBadAnswer: the content does not fit the form, or the result the effect.
	// Nothing was stored.
	ErrBadAnswer = errors.New("the answer does not fit the question")
)

// Decide records what an authenticated person decided, out of band. It returns
// once the decision would survive power loss. A task, and a call whose request
// was told that it is pending, then goes on at once. A round goes on when its
// client sends it again: that may be asked something next.
// Errors: ErrNoQuestion, ErrSettled, ErrBadAnswer, or the store's.
func (s *Server) Decide(ctx context.Context, by Identity, d Decision) error {
	if by.Subject == "" || s.opts.Store == nil {
		return ErrNoQuestion
	}
	c, err := s.engine.Load(ctx, d.CallID)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNoQuestion
	}
	if err != nil {
		return err
	}
	a := accessTo(c, Reply, by)
	a.Question, a.Effect = d.Key, d.Effect
	if err := s.authorize(ctx, a); err != nil {
		return ErrNoQuestion
	}
	actor := by.actor(record.ChannelDecide)
	if d.Effect != "" {
		return s.resolve(ctx, c, actor, d)
	}
	q := c.Question(d.Key)
	if q == nil || !q.Who.Allows(actor, c.Owner) {
		s.engine.Refuse(ctx, c.ID, actor, record.ReasonNotAllowed, d.Key)
		return ErrNoQuestion
	}
	return s.decide(ctx, c, q, actor, d)
}

func (s *Server) decide(ctx context.Context, c *record.Call, q *record.Question, by record.Actor, d Decision) error {
	r := record.Responded{WireKey: q.WireKey, Action: record.Decline}
	if string(d.Content) == "null" {
		d.Content = nil
	}
	if d.Accept {
		var wrong misfit
		if n := s.limits.AnswerBytes; len(d.Content) > n {
			return fmt.Errorf("%w: %w", ErrBadAnswer, limitError("AnswerBytes", len(d.Content), n))
		}
		if r, wrong = decided(q, d.Content); wrong != nil {
			return fmt.Errorf("%w: %v", ErrBadAnswer, wrong)
		}
	}
	stale := false
	_, err := s.engine.Change(ctx, c.ID, by, record.NoEpoch, func(c *record.Call, _ time.Time) []record.Event {
		now := c.Question(d.Key)
		if stale = now == nil || d.Digest != "" && now.Digest != d.Digest; stale {
			return []record.Event{record.Refused{Reason: record.ReasonUnanswered, Note: d.Key}}
		}
		return []record.Event{r}
	})
	return settled(err)
}

// settled turns the law's refusals into what the person is told.
func settled(err error) error {
	var refused *record.Refusal
	switch {
	case errors.As(err, &refused) && refused.Reason == record.ReasonNotAllowed:
		return ErrNoQuestion
	case errors.As(err, &refused) && refused.Reason == record.ReasonSamePerson:
		return fmt.Errorf("%w: you have answered it; another person is needed", ErrSettled)
	case errors.As(err, &refused):
		return fmt.Errorf("%w (%s)", ErrSettled, refused.Reason)
	}
	return err
}

// decided is an acceptance out of band, by the kind that was asked. What a client
// relays has been parsed as strictly with its request.
func decided(q *record.Question, content json.RawMessage) (record.Responded, misfit) {
	if len(content) > 0 && !jsontext.Value(content).IsValid() {
		return record.Responded{}, misfit{"content": "is no JSON, or has a name twice, or text that is not UTF-8"}
	}
	switch q.Kind {
	case record.KindForm:
		if q.Confirm && len(content) == 0 {
			content = json.RawMessage(`{"confirm":true}`)
		}
		return acceptForm(q, content)
	case record.KindURL:
		if len(content) > 0 {
			var object map[string]any
			if json.Unmarshal(content, &object) != nil {
				return record.Responded{}, misfit{"content": "is no object"}
			}
		}
		return record.Responded{WireKey: q.WireKey, Action: record.Accept, Value: content}, nil
	}
	g, wrong := readAnswer(q, content)
	return g.Responded, wrong
}

// resolve records a person's word on a held effect.
func (s *Server) resolve(ctx context.Context, c *record.Call, by record.Actor, d Decision) error {
	if !s.opts.Operators.Allows(by, c.Owner) || !slices.ContainsFunc(c.Effects, func(f record.Effect) bool { return f.Name == d.Effect && f.Subject == d.Subject }) {
		s.engine.Refuse(ctx, c.ID, by, record.ReasonNotAllowed, d.Effect)
		return ErrNoQuestion
	}
	if n := s.limits.ResultBytes; len(d.Result) > n {
		return fmt.Errorf("%w: %w", ErrBadAnswer, limitError("ResultBytes", len(d.Result), n))
	}
	if err := s.checkResult(effectOf{c.Action.Name, d.Effect}, d.Result); err != nil {
		return fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	_, err := s.engine.Change(ctx, c.ID, by, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.EffectResolved{Name: d.Effect, Subject: d.Subject, Done: d.Happened, Result: d.Result}}
	})
	return settled(err)
}
