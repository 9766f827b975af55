// Package record is the law of Tallystick: what a call is, and which changes
// to it are allowed. It is pure: no clock, no I/O, no protocol.
//
// A [Call] is one logical request over all its rounds, restarts and replicas.
// [Decide] is the only place with rules: given a call, an [Event], who caused
// it and when, it returns the [Change] that a store then applies whole or not
// at all. docs/record.md has the transitions and their crash order.
package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
)

// A Principal is who acts. Roles and scopes are facts about a principal at a
// time and no part of it; see [Actor].
type Principal struct {
	Issuer  string `json:"issuer,omitempty"`  // who vouches for the subject
	Tenant  string `json:"tenant,omitempty"`  // whose data it is
	Subject string `json:"subject,omitempty"` // the person or service; empty: anonymous
	Client  string `json:"client,omitempty"`  // the authenticated client software, never what it says of itself
}

// Anonymous reports whether nobody vouches for the principal.
func (p Principal) Anonymous() bool { return p.Subject == "" }

// SamePerson reports whether both are the same person of the same tenant,
// through whatever client. An anonymous principal is nobody's same person.
func (p Principal) SamePerson(o Principal) bool {
	return !p.Anonymous() && p.Issuer == o.Issuer && p.Tenant == o.Tenant && p.Subject == o.Subject
}

// Tag is a digest of the whole principal, fit to be sealed or stored as a key.
func (p Principal) Tag() string { return digest(p.Issuer, p.Tenant, p.Subject, p.Client) }

// digest is SHA-256 over its parts, each behind its length, so that no two
// lists of parts give the same input.
func digest(parts ...string) string {
	h := sha256.New()
	for _, s := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// A Channel is the way by which an actor reached a call.
type Channel string

// Channels.
const (
	ChannelRound  Channel = "round"  // relayed by the client in a retry
	ChannelTask   Channel = "task"   // relayed by the client in tasks/update, tasks/cancel
	ChannelLive   Channel = "live"   // a live request of a 2025-era session
	ChannelDecide Channel = "decide" // out of band, by an authenticated person
	ChannelRun    Channel = "run"    // the handler's own run
	ChannelSystem Channel = "system" // the engine: time, crashes, purging
)

// An Actor is who causes an event, as known at that moment.
type Actor struct {
	Principal
	Roles   []string `json:"roles,omitempty"`
	Channel Channel  `json:"channel"`
}

// System is the actor of events that nobody asked for.
var System = Actor{Channel: ChannelSystem}

// An Action is what a call does: the part of it that a sealed state binds.
type Action struct {
	Method     string `json:"method"`
	Name       string `json:"name"` // tool or prompt name, or URI
	ArgsDigest string `json:"argsDigest"`
	Version    string `json:"version,omitempty"` // of the tool
}

// Label names what was called as it was registered, for logs and metrics: of a
// resource only the method, since its URI can hold arguments.
func (a Action) Label() string {
	if a.Method == "resources/read" {
		return a.Method
	}
	return a.Name
}

// Digest is over the whole action.
func (a Action) Digest() string { return digest(a.Method, a.Name, a.ArgsDigest, a.Version) }

// A State says what a stored call is waiting for.
type State string

// States. Only Ended is terminal.
const (
	Ready   State = "ready"   // for a worker
	Running State = "running" // under a lease
	Waiting State = "waiting" // for answers, or for the client's retry
	Held    State = "held"    // for a person to say whether an effect happened
	Ended   State = "ended"
)

// An Outcome is what a call has come to, in the words of the design.
type Outcome string

// Outcomes.
const (
	Working       Outcome = "working"
	InputRequired Outcome = "input_required"
	OutcomeHeld   Outcome = "held"
	Completed     Outcome = "completed"
	Failed        Outcome = "failed"
	Expired       Outcome = "expired"
	Cancelled     Outcome = "cancelled"
)

// Terminal reports whether nothing can follow.
func (o Outcome) Terminal() bool {
	return o == Completed || o == Failed || o == Expired || o == Cancelled
}

// A Lease is a worker's right to run a call. The store keeps it beside the
// call, since it is renewed without a change of version.
type Lease struct {
	Holder string    `json:"holder,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// Live reports whether the lease is held and unexpired at now.
func (l Lease) Live(now time.Time) bool { return l.Holder != "" && now.Before(l.Until) }

// A Round is one consumed retry of a call, and what was answered to it.
type Round struct {
	N       int       `json:"n"`
	Answers string    `json:"answers"` // digest of the answers it carried
	TakenAt time.Time `json:"takenAt"`
	Closed  bool      `json:"closed,omitempty"`
	// Asked are the wire keys that its response asked. None in a closed round:
	// its response is what the call has come to.
	Asked []string `json:"asked,omitempty"`
}

// Progress is the last report of a handler.
type Progress struct {
	Message string  `json:"message,omitempty"`
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`
}

// An Error is how a failed call ended: a JSON-RPC error and, beside it, the
// outcome word for machines.
type Error struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
	Data    []byte `json:"data,omitempty"`    // JSON
	Outcome string `json:"outcome,omitempty"` // "expired", "unknown", "crash_loop", …
}

// A Call is one logical request, as data. Only [Decide] changes it.
type Call struct {
	ID      string `json:"id"`
	Version int64  `json:"-"` // rises with each change; the store keeps it beside the call
	Epoch   int64  `json:"epoch"`
	Lease   Lease  `json:"-"`

	Owner  Principal `json:"owner"`
	Roles  []string  `json:"roles,omitempty"` // of the owner, as stated when the call was opened
	Scopes []string  `json:"scopes,omitempty"`
	Action Action    `json:"action"`
	Args   []byte    `json:"-"`               // never changes after Opened
	Kinds  []Kind    `json:"kinds,omitempty"` // what the opening request's client can be asked

	// Trace is the W3C traceparent of the request that opened it, if that is traced.
	Trace string `json:"trace,omitempty"`

	Task       bool `json:"task,omitempty"`       // watched through tasks/*
	Background bool `json:"background,omitempty"` // workers run it; no client's retry does

	State     State         `json:"state"`
	Outcome   Outcome       `json:"outcome,omitempty"` // set when Ended
	CreatedAt time.Time     `json:"createdAt"`
	UpdatedAt time.Time     `json:"updatedAt"`
	Deadline  time.Time     `json:"deadline"`
	Retention time.Duration `json:"retention"`
	EndedAt   time.Time     `json:"endedAt,omitzero"`

	Runs    int           `json:"runs"`            // executions so far
	MaxRuns int           `json:"maxRuns"`         // zero: no limit
	Kills   int           `json:"kills,omitempty"` // runs that died with their worker
	Ran     time.Duration `json:"ran,omitempty"`   // running time so far, waiting excluded

	Round  int     `json:"round"` // the next one the client may take; 0 until the first response
	Rounds []Round `json:"rounds,omitempty"`

	Questions []Question `json:"questions,omitempty"`
	Effects   []Effect   `json:"effects,omitempty"`
	Progress  *Progress  `json:"progress,omitempty"`

	CancelledAt time.Time `json:"cancelledAt,omitzero"` // when it was asked to stop

	Key string `json:"key,omitempty"` // name of its idempotency mark

	Result []byte `json:"-"` // the final result object, JSON
	Error  *Error `json:"error,omitempty"`
}

// Status is the call's outcome at this moment. A call with an open question is
// InputRequired whoever may answer it; the reader decides what to show whom.
func (c *Call) Status() Outcome {
	switch {
	case c.State == Ended:
		return c.Outcome
	case c.HeldEffect() != nil:
		return OutcomeHeld
	case c.HasOpen():
		return InputRequired
	}
	return Working
}

// HasOpen reports whether any question is open.
func (c *Call) HasOpen() bool {
	return slices.ContainsFunc(c.Questions, func(q Question) bool { return q.State == Open })
}

// Open returns the open questions, oldest first.
func (c *Call) Open() []Question {
	var open []Question
	for _, q := range c.Questions {
		if q.State == Open {
			open = append(open, q)
		}
	}
	return open
}

// HeldEffect returns the first effect of unknown end, or nil.
func (c *Call) HeldEffect() *Effect {
	for i := range c.Effects {
		if c.Effects[i].State == EffectHeld {
			return &c.Effects[i]
		}
	}
	return nil
}

// Question returns the question of that wire key, or nil.
func (c *Call) Question(wireKey string) *Question {
	for i := range c.Questions {
		if c.Questions[i].WireKey == wireKey {
			return &c.Questions[i]
		}
	}
	return nil
}

// Effect returns the effect of that name and subject, or nil.
func (c *Call) Effect(name, subject string) *Effect {
	for i := range c.Effects {
		if c.Effects[i].Name == name && c.Effects[i].Subject == subject {
			return &c.Effects[i]
		}
	}
	return nil
}

// EffectBegun reports whether any effect has started, whatever came of it.
func (c *Call) EffectBegun() bool {
	return slices.ContainsFunc(c.Effects, func(e Effect) bool { return e.State != EffectUndone })
}

// Expires is when the latest open question expires, and at the latest the
// call's deadline: how long a sealed state of it has to open.
func (c *Call) Expires() time.Time {
	var latest time.Time
	for _, q := range c.Questions {
		if q.State == Open && q.Expires.After(latest) {
			latest = q.Expires
		}
	}
	if latest.IsZero() || latest.After(c.Deadline) {
		return c.Deadline
	}
	return latest
}

// PurgeAt is when an ended call may be deleted; zero while it may not be: it
// lives, or an effect of it still waits for a person.
func (c *Call) PurgeAt() time.Time {
	if c.State != Ended || c.HeldEffect() != nil {
		return time.Time{}
	}
	return c.EndedAt.Add(c.Retention)
}

// Due is when somebody must look at the call even if nothing happens to it,
// leases apart; zero: never. A ready call is due at once.
func (c *Call) Due() time.Time {
	switch c.State {
	case Ready:
		return c.UpdatedAt
	case Running:
		if c.settling() {
			return time.Time{} // its lease ends it, not its deadline
		}
		return c.Deadline
	case Ended:
		return c.PurgeAt()
	}
	due := c.Deadline
	for _, q := range c.Questions {
		if q.State == Open && q.Expires.Before(due) {
			due = q.Expires
		}
	}
	return due
}

// TTL is how long the call can be read, counted from its creation, as ttlMs
// wants it.
func (c *Call) TTL() time.Duration {
	if c.State == Ended {
		return c.EndedAt.Add(c.Retention).Sub(c.CreatedAt)
	}
	return c.Deadline.Sub(c.CreatedAt)
}

// Size is about how many bytes the call remembers besides its arguments and
// result: what its questions ask, its answers say and its effects returned.
func (c *Call) Size() int {
	n := 0
	for _, q := range c.Questions {
		n += 512 + len(q.Request) + len(q.Message) + len(q.Facts)
		for _, a := range q.Answers {
			n += 256 + len(a.Value)
		}
	}
	for _, f := range c.Effects {
		n += 512 + len(f.Result)
		for _, e := range f.Evidence {
			n += 256 + len(e.Result) + len(e.Text)
		}
	}
	return n
}

// settling reports whether the current run has begun an effect: then the
// deadline waits for the run.
func (c *Call) settling() bool {
	return slices.ContainsFunc(c.Effects, func(e Effect) bool {
		return e.Epoch == c.Epoch && (e.State == EffectStarted || e.State == EffectDone)
	})
}

// clone copies the call so far that a change to the copy leaves c alone. Byte
// slices are shared: nobody writes into them.
func (c *Call) clone() *Call {
	d := *c
	d.Rounds = slices.Clone(c.Rounds)
	d.Questions = slices.Clone(c.Questions)
	for i := range d.Questions {
		d.Questions[i].Answers = slices.Clone(d.Questions[i].Answers)
	}
	d.Effects = slices.Clone(c.Effects)
	for i := range d.Effects {
		d.Effects[i].Relied = slices.Clone(d.Effects[i].Relied)
		d.Effects[i].Evidence = slices.Clone(d.Effects[i].Evidence)
	}
	if c.Progress != nil {
		p := *c.Progress
		d.Progress = &p
	}
	return &d
}
