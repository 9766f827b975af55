package record

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Kind is a kind of question, as clients declare which they can be asked.
type Kind string

// Kinds.
const (
	KindForm     Kind = "form"
	KindURL      Kind = "url"
	KindSampling Kind = "sampling"
	KindRoots    Kind = "roots"
)

// Who says who may answer a question. It is data, so that it can be stored,
// shown and digested. The zero value means the requester. Whatever it says,
// only people of the call's own tenant can answer.
type Who struct {
	Roles        []string `json:"roles,omitempty"`        // holders of any of these
	Subjects     []string `json:"subjects,omitempty"`     // or exactly these, of the requester's own issuer
	NotRequester bool     `json:"notRequester,omitempty"` // and never the requester, through whatever client or issuer
	OutOfBand    bool     `json:"outOfBand,omitempty"`    // only through Decide; what a client relays does not count
	Count        int      `json:"count,omitempty"`        // so many different people; zero: 1
}

// Allows reports whether a may answer a question of owner's call. Without
// Roles and Subjects that is the requester alone, or with NotRequester anybody
// else of the tenant.
func (w Who) Allows(a Actor, owner Principal) bool {
	if a.Channel == ChannelRun || a.Channel == ChannelSystem {
		return false // a program, whoever's name it runs in
	}
	if a.Tenant != owner.Tenant || w.OutOfBand && a.Channel != ChannelDecide {
		return false
	}
	requester := a.SamePerson(owner) || a.Anonymous() && a.Principal == owner
	if w.NotRequester && (requester || a.Subject == owner.Subject) {
		return false
	}
	if len(w.Roles) == 0 && len(w.Subjects) == 0 {
		return requester || w.NotRequester && !a.Anonymous()
	}
	if a.Anonymous() {
		return false
	}
	return a.Issuer == owner.Issuer && slices.Contains(w.Subjects, a.Subject) ||
		slices.ContainsFunc(a.Roles, func(r string) bool { return slices.Contains(w.Roles, r) })
}

// Requester reports whether the question is for the requester, as far as its
// words go; roles may let the requester answer others too.
func (w Who) Requester() bool {
	return len(w.Roles) == 0 && len(w.Subjects) == 0 && !w.NotRequester
}

// Needed is how many different people must accept.
func (w Who) Needed() int { return max(w.Count, 1) }

// A QuestionState says what has become of a question.
type QuestionState string

// States of a question. Only Open can change, but for Answered and Void: an
// answer becomes void when the question it was given to is no longer asked.
const (
	Open      QuestionState = "open"
	Answered  QuestionState = "answered"
	Declined  QuestionState = "declined"
	Dismissed QuestionState = "dismissed"
	Lapsed    QuestionState = "expired"
	Void      QuestionState = "void"
)

// A Question is something a handler asks.
type Question struct {
	Key     string    `json:"key"`     // names it within the call
	WireKey string    `json:"wireKey"` // names this very question, for the call's lifetime
	Kind    Kind      `json:"kind"`
	Message string    `json:"message,omitempty"` // for lists of open questions; part of Request too
	Request []byte    `json:"request,omitempty"` // the params as they go on the wire, JSON
	Facts   []byte    `json:"facts,omitempty"`   // JSON
	Who     Who       `json:"who,omitzero"`
	Confirm bool      `json:"confirm,omitempty"` // one required boolean; an accepted "no" is a decline
	Digest  string    `json:"digest"`
	AskedAt time.Time `json:"askedAt"`
	Expires time.Time `json:"expires"`

	Within time.Duration `json:"-"` // how long it may wait; Asked turns it into Expires

	State   QuestionState `json:"state"`
	Answers []Answer      `json:"answers,omitempty"`
	// Spent: an effect has started on the answer. Later runs get it unchanged,
	// though the effect itself has changed the facts.
	Spent bool `json:"spent,omitempty"`
	// Seen: a run has begun since it was settled by a no, so that the no alone
	// makes the call ready no second time.
	Seen bool `json:"seen,omitempty"`
}

// Sum is the digest of all that the question is, but for the time.
func (q *Question) Sum() string {
	parts := []string{q.Key, string(q.Kind), q.Message, string(q.Request), string(q.Facts),
		strconv.FormatBool(q.Who.NotRequester), strconv.FormatBool(q.Who.OutOfBand),
		strconv.Itoa(q.Who.Needed()), strconv.FormatBool(q.Confirm), strconv.Itoa(len(q.Who.Roles))}
	parts = append(append(parts, q.Who.Roles...), q.Who.Subjects...)
	return digest(parts...)
}

// MayAnswer reports whether a may answer the question of owner's call and has
// not done so yet.
func (q *Question) MayAnswer(a Actor, owner Principal) bool {
	return q.Who.Allows(a, owner) && !q.answeredBy(a.Principal)
}

func (q *Question) answeredBy(p Principal) bool {
	// One name under two issuers may be one person: it counts once.
	return slices.ContainsFunc(q.Answers, func(a Answer) bool { return a.By.Subject == p.Subject })
}

// Accepts is how many people have accepted so far.
func (q *Question) Accepts() int {
	n := 0
	for _, a := range q.Answers {
		if a.Action == Accept {
			n++
		}
	}
	return n
}

// Latest is the answer that settled the question, or nil.
func (q *Question) Latest() *Answer {
	if len(q.Answers) == 0 {
		return nil
	}
	return &q.Answers[len(q.Answers)-1]
}

// An AnswerAction is what a person did with a question.
type AnswerAction string

// Actions of an answer, as elicitation names them.
const (
	Accept  AnswerAction = "accept"
	Decline AnswerAction = "decline"
	Dismiss AnswerAction = "cancel"
)

// An Answer is a validated response to one exact question.
type Answer struct {
	By     Actor        `json:"by"`
	At     time.Time    `json:"at"`
	Action AnswerAction `json:"action"`
	Value  []byte       `json:"value,omitempty"` // JSON, on Accept only
}

// maxVoids is how often in a row the answer to one key may be void before the
// call fails: a question that changes at every run can never be answered.
const maxVoids = 3

// A Lookup is what a call remembers of a question that is asked now.
type Lookup struct {
	// Found is the question that counts: open, or settled. Nil: none is known,
	// or the known one is of no use (then Stale names it).
	Found *Question
	// Stale is a question of this key with another digest, which must be
	// voided before the one asked now can go out.
	Stale *Question
}

// Look finds what c remembers of the key, asked now with that digest.
//
// An answer counts if the question asked now has the digest of the question
// answered, or if the answer is spent. That a question expired is no answer
// and holds for the key, whatever is asked now.
func (c *Call) Look(key, sum string) Lookup {
	q := c.latest(key)
	switch {
	case q == nil || q.State == Void:
		return Lookup{}
	case q.Digest == sum || q.Spent || q.State == Lapsed:
		return Lookup{Found: q}
	}
	return Lookup{Stale: q}
}

// latest is the newest question of a key, or nil.
func (c *Call) latest(key string) *Question {
	for i := len(c.Questions) - 1; i >= 0; i-- {
		if c.Questions[i].Key == key {
			return &c.Questions[i]
		}
	}
	return nil
}

// wireKey is the name for the next question of key: key, key~2, key~3, …
func (c *Call) wireKey(key string) string {
	n := 1
	for _, q := range c.Questions {
		if q.Key == key {
			n++
		}
	}
	if n == 1 {
		return key
	}
	return key + "~" + strconv.Itoa(n)
}

// voids is how many answers to key were void since one last counted.
func (c *Call) voids(key string) int {
	n := 0
	for i := len(c.Questions) - 1; i >= 0; i-- {
		q := &c.Questions[i]
		if q.Key != key {
			continue
		}
		if q.State != Void {
			break
		}
		if len(q.Answers) > 0 {
			n++
		}
	}
	return n
}

// ValidKey reports whether a handler may name a question so: 1 to 128 bytes
// without '~', which separates the count in wire keys.
func ValidKey(key string) bool {
	return key != "" && len(key) <= 128 && !strings.Contains(key, "~")
}

// settled reports whether nothing more is expected of anybody.
func (s QuestionState) settled() bool { return s != Open && s != Void }

// no reports whether the question was settled otherwise than by an answer.
func (s QuestionState) no() bool { return s == Declined || s == Dismissed || s == Lapsed }
