package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
)

// An Identity is who sends a request, and what is known of them now.
type Identity struct {
	Issuer  string // who vouches for the subject
	Tenant  string // whose data it is; nothing crosses tenants
	Subject string // empty: anonymous
	Client  string // the authenticated client software
	Roles   []string
	Scopes  []string
}

func (i Identity) principal() record.Principal {
	return record.Principal{Issuer: i.Issuer, Tenant: i.Tenant, Subject: i.Subject, Client: i.Client}
}

func (i Identity) actor(ch record.Channel) record.Actor {
	return record.Actor{Principal: i.principal(), Roles: i.Roles, Channel: ch}
}

// identityOf is the owner of a call as it was when the call was opened.
func identityOf(c *record.Call) Identity {
	return Identity{Issuer: c.Owner.Issuer, Tenant: c.Owner.Tenant, Subject: c.Owner.Subject, Client: c.Owner.Client, Roles: c.Roles, Scopes: c.Scopes}
}

// A Verb says what somebody is about to do with a call.
type Verb string

// Verbs.
const (
	Begin  Verb = "begin"  // make a call
	Resume Verb = "resume" // go on with it: a retry, or a worker's run
	Watch  Verb = "watch"  // tasks/get, call_status
	Reply  Verb = "reply"  // answer a question, resolve a held effect
	Stop   Verb = "stop"   // tasks/cancel
	Act    Verb = "act"    // start an effect
)

// An Access is what Options.Authorize is asked.
type Access struct {
	Verb Verb
	By   Identity
	// Stored: By is as it was when the call was opened, since nobody is there
	// to be asked now. Look roles up afresh if they can be withdrawn.
	Stored bool
	Method string
	Name   string // of the tool or prompt, or the URI
	CallID string // empty for a call that does not exist yet
	Owner  Identity
	// Question or Effect concerned, if any.
	Question, Effect string
	// Arguments of the call, JSON; nil if it has none.
	Arguments json.RawMessage
}

func identifyByToken(_ context.Context, extra *mcp.RequestExtra) (Identity, error) {
	if extra == nil || extra.Header == nil && extra.TokenInfo == nil {
		return localUser(), nil
	}
	t := extra.TokenInfo
	if t == nil {
		return Identity{}, nil
	}
	text := func(key string) string { s, _ := t.Extra[key].(string); return s }
	id := Identity{Issuer: text("iss"), Tenant: text("tenant"), Subject: t.UserID, Client: text("client_id"), Scopes: t.Scopes}
	switch roles := t.Extra["roles"].(type) {
	case []string:
		id.Roles = roles
	case []any:
		for _, r := range roles {
			if s, ok := r.(string); ok {
				id.Roles = append(id.Roles, s)
			}
		}
	}
	return id, nil
}

// identify says who sends the request. That nobody can say is no refusal of
// the caller but a failure, and is answered as one.
func (s *Server) identify(ctx context.Context, r *wire.Request) (Identity, error) {
	id, err := s.opts.Identify(ctx, r.Extra)
	if err != nil {
		return Identity{}, fmt.Errorf("identifying the sender: %w", err)
	}
	return id, nil
}

// authorize asks Options.Authorize, and puts a refusal on record where there
// is a call for it.
func (s *Server) authorize(ctx context.Context, a Access) error {
	if err := s.allows(ctx, a); err != nil {
		return s.deny(ctx, a, err)
	}
	return nil
}

// allows asks Options.Authorize. One that panics allows nothing. Before a run of
// a worker's the panic is left to the engine, which asks again later: nobody is
// there to be told, and the call is not to end for it.
func (s *Server) allows(ctx context.Context, a Access) (err error) {
	if s.opts.Authorize == nil {
		return nil
	}
	if !a.Stored || a.Verb != Resume {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("Authorize panicked; that is a refusal", "verb", a.Verb, "call", a.CallID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = errPanicked
			}
		}()
	}
	return s.opts.Authorize(ctx, a)
}

// deny puts on record why an access is refused.
func (s *Server) deny(ctx context.Context, a Access, err error) error {
	s.log.Warn("not authorised", "verb", a.Verb, "call", a.CallID, "tenant", a.Owner.Tenant, "tool", record.Action{Method: a.Method, Name: a.Name}.Label(), "err", err)
	if a.CallID != "" && s.opts.Store != nil {
		ch := record.ChannelRound
		if a.Stored {
			ch = record.ChannelRun
		}
		s.engine.Refuse(ctx, a.CallID, a.By.actor(ch), record.ReasonNotAllowed, string(a.Verb))
	} else {
		s.refused(record.ReasonNotAllowed, a.Owner.Tenant)
	}
	return errNotAllowed
}

// accessTo describes an access to a stored call.
func accessTo(c *record.Call, verb Verb, by Identity) Access {
	return Access{
		Verb: verb, By: by, Method: c.Action.Method, Name: c.Action.Name, CallID: c.ID,
		Owner: identityOf(c), Arguments: c.Args,
	}
}

// mayReply asks whether the sender may give these answers, as far as there are
// open questions for them.
func (s *Server) mayReply(ctx context.Context, c *record.Call, a Access, got []given) error {
	for _, g := range got {
		if q := c.Question(g.WireKey); g.consent || q == nil || q.State != record.Open {
			continue
		}
		a.Question = g.WireKey
		if err := s.authorize(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

var errExpired = errors.New("the token has expired")

// mayRun is asked before a worker runs a stored call.
func (s *Server) mayRun(ctx context.Context, c *record.Call) *record.Error {
	a := accessTo(c, Resume, identityOf(c))
	a.Stored = true
	if s.authorize(ctx, a) != nil {
		return &record.Error{Code: wire.CodeInvalidParams, Message: "the call may no longer be run", Outcome: "not_authorised"}
	}
	if s.feature(c.Action.Method, c.Action.Name) == nil {
		return &record.Error{Code: wire.CodeInvalidParams, Message: fmt.Sprintf("%q is not served here any more", c.Action.Name), Outcome: "gone"}
	}
	return nil
}

// mayAct is asked before each start of an effect. While a request of the owner
// waits for the run, what is known of them is what that request said.
func (s *Server) mayAct(ctx context.Context, run *engine.Run, effect string) error {
	c := run.Call()
	a := accessTo(c, Act, identityOf(c))
	a.Stored, a.Effect = true, effect
	if x, ok := run.For.(*exchange); ok && !c.Background {
		a.By, a.Stored = x.id, false
	}
	return s.authorize(ctx, a)
}

// bounds are the limits of a call's runs.
func (s *Server) bounds(c *record.Call) (timeout time.Duration, open int) {
	if f := s.feature(c.Action.Method, c.Action.Name); f != nil {
		timeout = f.Timeout
	}
	return timeout, s.limits.OpenQuestions
}
