package record

import "time"

// An EffectState says what is known of an effect.
type EffectState string

// States of an effect. From Started it goes to Done, Undone or Held; a person
// resolves Held to Done or Undone; Undone may start again; Done is for ever.
const (
	EffectStarted EffectState = "started"
	EffectDone    EffectState = "done"
	EffectUndone  EffectState = "undone" // it certainly did not happen
	EffectHeld    EffectState = "held"   // nobody knows; a person decides
)

// An Effect is named work that must not happen twice.
type Effect struct {
	Name       string      `json:"name"`
	Subject    string      `json:"subject,omitempty"`
	Repeatable bool        `json:"repeatable,omitempty"`
	State      EffectState `json:"state"`
	Key        string      `json:"key"`   // handed to the far side
	Epoch      int64       `json:"epoch"` // of the run that started it last
	Attempts   int         `json:"attempts"`
	StartedAt  time.Time   `json:"startedAt"`
	EndedAt    time.Time   `json:"endedAt,omitzero"`
	Result     []byte      `json:"result,omitempty"`   // JSON, when Done
	Shared     bool        `json:"shared,omitempty"`   // done by another call of the same owner
	Resolved   bool        `json:"resolved,omitempty"` // a person said that it happened, and what came of it
	Relied     []string    `json:"relied,omitempty"`   // wire keys of the answers it has spent, unless Undone
	Evidence   []Evidence  `json:"evidence,omitempty"`
}

// maxEvidence bounds how much of it one effect keeps.
const maxEvidence = 8

// maxEvidenceResult bounds one piece of it, in bytes.
const maxEvidenceResult = 64 << 10

// Evidence is what is known about an effect's end without being its end: what
// a run that had lost its lease reported, or why the end is unknown.
type Evidence struct {
	At     time.Time `json:"at"`
	By     Actor     `json:"by"`
	Epoch  int64     `json:"epoch,omitempty"`
	Result []byte    `json:"result,omitempty"` // JSON
	Text   string    `json:"text,omitempty"`
}

// EffectKey is the idempotency key that an effect hands to the far side: the
// same for every attempt, and for a Subject the same from every call of the
// deployment. A far side that two deployments share keeps them apart by it.
func EffectKey(c *Call, deployment, name, subject string) string {
	switch {
	case subject == "":
		return digest("call", c.ID, name)
	case deployment == "":
		return digest("subject", c.Owner.Tenant, name, subject)
	}
	return digest("subject of", deployment, c.Owner.Tenant, name, subject)
}

// A MarkKind is a kind of [Mark].
type MarkKind string

// Kinds of marks.
const (
	MarkSubject MarkKind = "subject" // an effect's subject, for ever
	MarkKey     MarkKind = "key"     // an idempotency key, as long as its call
	MarkGone    MarkKind = "gone"    // a purged call, until its last state has expired
)

// A MarkID names a mark.
type MarkID struct {
	Kind   MarkKind
	Tenant string
	Name   string
}

// A Mark is a fact that outlives or stands outside one call: who holds a
// subject or a key. It belongs to one call, which alone may change it.
type Mark struct {
	MarkID
	Call   string
	Until  time.Time // when it may be deleted; zero: never
	State  EffectState
	Owner  Principal
	Digest string // of the arguments, for a key
	Result []byte // of a done subject
}

// SubjectMark names the mark of an effect's subject.
func SubjectMark(tenant, name, subject string) MarkID {
	return MarkID{Kind: MarkSubject, Tenant: tenant, Name: digest(name, subject)}
}

// KeyMark names the mark of an idempotency key, which belongs to a tenant,
// principal, client and tool.
func KeyMark(owner Principal, tool, key string) MarkID {
	return MarkID{Kind: MarkKey, Tenant: owner.Tenant, Name: digest(owner.Tag(), tool, key)}
}
