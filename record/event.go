package record

import "time"

// An Event is something that happened to a call, or that somebody wants to
// happen. The types of this file are all there are.
type Event interface{ apply(d *decision) error }

// Opened makes a call out of nothing. With a lease it is running at once,
// inside the request that opened it; without, a worker takes it.
type Opened struct {
	Call    *Call  // ID, Owner, Action, Args, Deadline, Retention, MaxRuns, Kinds, Task, Trace
	Lease   Lease  // zero: no run yet
	Key     MarkID // its idempotency mark; zero: none
	MaxLive int    // of the tenant's calls; zero: no limit
}

// Taken starts a run: it gives the lease to a holder and raises the epoch.
type Taken struct {
	Lease Lease
	// Retry, if not nil, is the client's retry that the run serves. The answers
	// it carries are events of their own, before this one.
	Retry *Retry
}

// A Retry claims a round.
type Retry struct {
	N       int
	Answers string // digest of the answers given
}

// Why a run stopped without an end.
type Why string

// Reasons for a stop.
const (
	WhyDied     Why = "died"     // its lease lapsed, or its node has started anew
	WhyLeft     Why = "left"     // the client's connection was lost
	WhyHandback Why = "handback" // its worker is draining
)

// Stopped ends a run that did not come to its end.
type Stopped struct {
	Why Why
	Ran time.Duration
}

// Asked puts a question on record. It goes out when the round is closed.
type Asked struct{ Question Question }

// Voided retires a question that is no longer asked in those words.
type Voided struct{ WireKey string }

// Paused ends a run that waits for answers, and closes the round it served.
// With Background, workers run the call from now on: it was announced as a
// task, or its requester was told that somebody else must answer.
type Paused struct {
	Background bool
	Task       bool
	Ran        time.Duration
}

// Announced tells the requester of a running call that it is a task.
type Announced struct{}

// Responded is somebody's answer to a question.
type Responded struct {
	WireKey string
	Action  AnswerAction
	Value   []byte // JSON, validated by the caller, on Accept only
}

// EffectBegan asks to start an effect.
type EffectBegan struct {
	Name, Subject string
	Repeatable    bool
	Mark          *Mark      // what the subject's mark says now; nil: nothing
	Relied        []Reliance // the answers that the run has been given so far
	Deployment    string     // that the key of a subject is for
}

// A Reliance is an answer that a run has acted on: a yes, or a no.
type Reliance struct {
	Key, Digest string
	No          bool
}

// EffectEnded says what came of an effect that this run started.
type EffectEnded struct {
	Name, Subject string
	State         EffectState // EffectDone, EffectUndone, or EffectHeld: unknown
	Result        []byte
	Text          string // why it is unknown
}

// EffectResolved is a person's word on a held effect.
type EffectResolved struct {
	Name, Subject string
	Done          bool
	Result        []byte // JSON, when Done
}

// EffectUnfit says of a done effect that the run cannot use the result that a
// person gave for it: a person gives it anew. That it happened stands.
type EffectUnfit struct {
	Name, Subject string
	Text          string // what does not fit
}

// Observed is what a run that has lost its right reports of its effect.
type Observed struct {
	Name, Subject string
	Epoch         int64
	Result        []byte
	Text          string
}

// Reported is a handler's word on how far it is.
type Reported struct{ Progress Progress }

// Finished is the end of a run that ran to its end.
type Finished struct {
	Result []byte // the whole result object, JSON
	Error  *Error // instead of a result
	// ToolError: the result tells of an error. After a cancel it is then the
	// cancel that ended the call.
	ToolError bool
	// Held: it was told that an effect is held, and went by that. If a person has
	// resolved it meanwhile, the handler runs again, as if they had done so later.
	Held bool
	Ran  time.Duration
}

// Abandoned ends a call that nobody runs and that cannot go on: its tool is
// gone, or its owner may no longer have it run.
type Abandoned struct {
	Error  Error
	Reason Reason
}

// CancelAsked asks a call to stop.
type CancelAsked struct{}

// TimePassed lets what is due happen: questions and calls expire, ended calls
// are purged.
type TimePassed struct{}

// Refused puts a refusal on record that was not the law's own: a state of
// somebody else, an authorisation denied.
type Refused struct {
	Reason Reason
	Note   string
}
