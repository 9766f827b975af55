package record

import (
	"fmt"
	"time"
)

// A Change says: if the call still has this version, it becomes After, with
// these marks and audit entries. A store applies it whole or not at all, in
// one step, and knows no rules.
type Change struct {
	ID string // of the call; empty: audit entries that concern no kept call
	// Version that the stored call must still have; 0: it must not exist yet.
	// Not looked at when After is nil and Remove is false.
	Version int64
	// Epoch, if not zero, is what the stored call must still have, and its
	// lease must be unexpired by the store's clock: a write of a run.
	Epoch int64
	// MaxLive, if not zero, is how many calls that have not ended the tenant
	// may have, this one included.
	MaxLive int

	After  *Call // nil: the call stays as it is
	Remove bool  // the call is deleted; its audit entries stay
	Marks  []MarkWrite
	Audit  []Entry
}

// A MarkWrite sets or deletes a mark if it is absent or belongs to the call of
// the change; otherwise the whole change conflicts.
type MarkWrite struct {
	MarkID
	Set *Mark // nil: delete
}

// An Entry is one line of the audit trail. It carries no argument, answer,
// token or sealed state.
type Entry struct {
	At      time.Time `json:"at"`
	Call    string    `json:"call,omitempty"`
	Tenant  string    `json:"tenant,omitempty"`
	Event   string    `json:"event"`
	By      Actor     `json:"by"`
	Stored  bool      `json:"stored,omitempty"` // the actor's roles are those on record, not asked now
	Epoch   int64     `json:"epoch,omitempty"`
	Round   int       `json:"round,omitempty"`
	Key     string    `json:"key,omitempty"`    // wire key of a question
	Effect  string    `json:"effect,omitempty"` // name, and subject in brackets
	Digest  string    `json:"digest,omitempty"` // of the question
	Outcome Outcome   `json:"outcome,omitempty"`
	Reason  Reason    `json:"reason,omitempty"`
	Note    string    `json:"note,omitempty"`
	Count   int       `json:"count,omitempty"` // of a batch of like refusals
}

// A Reason is why an event was refused or a call ended, for logs and audit.
type Reason string

// Reasons.
const (
	ReasonEnded       Reason = "call_ended"
	ReasonStaleEpoch  Reason = "stale_epoch"
	ReasonLeaseLost   Reason = "lease_expired"
	ReasonCancelled   Reason = "cancelled"
	ReasonDeadline    Reason = "deadline"
	ReasonUnknownKey  Reason = "unknown_key"
	ReasonNotOpen     Reason = "question_not_open"
	ReasonNotAllowed  Reason = "not_allowed"
	ReasonSamePerson  Reason = "same_person_again"
	ReasonRoundUsed   Reason = "round_used"
	ReasonRoundAhead  Reason = "round_unknown"
	ReasonInFlight    Reason = "in_flight"
	ReasonBusy        Reason = "effect_in_flight_elsewhere"
	ReasonDone        Reason = "effect_done"
	ReasonDoneByOther Reason = "effect_done_by_another_owner"
	ReasonHeld        Reason = "effect_held"
	ReasonNotHeld     Reason = "effect_not_held"
	ReasonUnanswered  Reason = "answer_no_longer_valid"
	ReasonUnstable    Reason = "question_changes_every_run"
	ReasonMaxRuns     Reason = "max_runs"
	ReasonCrashLoop   Reason = "crash_loop"
	ReasonWrongState  Reason = "wrong_state"
	ReasonTooMany     Reason = "limit"
)

// A Refusal is the error of an event that the law does not allow. The change
// that [Decide] returns beside it holds the audit entry for it, and nothing
// else.
type Refusal struct {
	Reason Reason
	Key    string // of the question or effect concerned
}

func (r *Refusal) Error() string {
	if r.Key == "" {
		return fmt.Sprintf("refused: %s", r.Reason)
	}
	return fmt.Sprintf("refused: %s (%s)", r.Reason, r.Key)
}
