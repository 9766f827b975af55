package client

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

const (
	methodTool     = "tools/call"
	methodPrompt   = "prompts/get"
	methodResource = "resources/read"
)

// A stage is what is done next with a call. The order of each step is: commit,
// then send or ask; so that what a crash leaves is never less than what was
// done. What is about to follow from a step is in the commit of that step
// where it can be: a call that is made while there is a connection begins as
// sent, and one whose questions somebody is about to be asked has them as shown.
//
//	ready  → sent     committed before the request leaves: found again, it may have left
//	sent   → asking   the server asks; committed before anybody is asked
//	sent   → watching a task; its id is committed before it is asked for
//	asking → sent     all answers, and that they may have left, in one commit
//	any    → ended    the outcome; committed before the caller has it
type stage string

const (
	stageReady    stage = "ready"
	stageSent     stage = "sent"
	stageAsking   stage = "asking"
	stageWatching stage = "watching"
	stageEnded    stage = "ended"
)

// An entry is what is on disk of a call. Functions that change one get their
// own copy ([entry.clone]); all that it points to is never changed, only
// replaced.
type entry struct {
	ID, Server, Method, Name string
	Params                   json.RawMessage // of the first request, without _meta
	Arguments                json.RawMessage `json:"-"` // those in Params
	Key                      string          // idempotency key

	Created, Updated, Deadline time.Time
	Stage                      stage
	via                        *link // not on disk: over which what is Sent is about to leave; nil: it may have left
	FirstSent                  time.Time
	KeysKept                   time.Duration // by the server that it was sent to; 0: not at all
	Maybe                      bool          // an attempt of the last request may have been done

	Round     int // how often the server has answered input_required: the number of the retry that comes next, or was sent
	StateOnly int // rounds in a row that asked nothing
	State     *string
	Questions []question // of the round, or of the task's whole life

	Asked int // questions in the call's life: the number of the latest

	Task        *taskState
	CancelAsked bool

	Outcome   *outcome
	Otherwise *outcome `json:",omitempty"` // while pages are asked for that have to be visited first: its end if one is not
}

// A question is one that the server has asked.
type question struct {
	Number  int // within the call, of all that were ever asked
	Key     string
	Kind    Kind
	Request json.RawMessage      `json:",omitempty"` // nil: it is over, and kept for its key
	form    *jsonschema.Resolved // not on disk: of a form that this process has read

	Shown    bool            // handed to an Answerer, or about to be
	Response json.RawMessage `json:",omitempty"` // nil: open; what is null on disk would not be nil again
	By       string          // who answered: "person", "caller", "rule 3"
	Tried    bool            // a task's: the answer may have reached the server
	Acked    bool            // a task's: it has
	Live     bool            // of the 2025 era: answered within the request that it came with
	Gone     bool            // no longer asked
	Refused  string          // a task's: why the server did not take the last answer
}

func (q *question) open() bool { return q.Response == nil && !q.Acked && !q.Gone }

// gone and acked keep of a question no more than that its key was asked: a task
// may ask without end.
func (q *question) gone()  { *q = question{Number: q.Number, Key: q.Key, Kind: q.Kind, Gone: true} }
func (q *question) acked() { *q = question{Number: q.Number, Key: q.Key, Kind: q.Kind, Acked: true} }

// A taskState is what the server last said of a task.
type taskState struct {
	ID        string
	Status    string
	Poll      time.Duration
	Message   string
	Since     time.Time // when its id came, by this machine's clock
	EndOfLife time.Time // likewise; zero: none
	Cancelled bool      // tasks/cancel was acked
}

// An outcome is how a call ended.
type outcome struct {
	State   State
	Result  json.RawMessage `json:",omitempty"` // Completed
	Kind    string          // of an error: one of errorKinds
	Reason  string
	Code    int64
	Data    json.RawMessage `json:",omitempty"`
	Outcome string
	At      time.Time
}

// errorKinds are the ends that are errors, as they are on disk.
var errorKinds = map[string]error{
	"failed": ErrFailed, "expired": ErrExpired, "cancelled": ErrCancelled,
	"unknown": ErrUnknown, "invalid": ErrInvalidResponse,
}

func newID() string { return strings.ToLower(rand.Text()) }

func (e *entry) ended() bool { return e.Stage == stageEnded }

// leaves says that the request may have left by now, over l and by whoever has
// this entry; it is committed before it does.
func (e *entry) leaves(l *link) {
	e.Stage, e.KeysKept, e.via, e.Otherwise = stageSent, l.keys, l, nil
	if e.FirstSent.IsZero() {
		e.FirstSent = time.Now()
	}
}

// stays takes back that it leaves: this attempt has not been done. If none has,
// the server does not know the request's key yet.
func (e *entry) stays() {
	if e.Stage, e.via = stageReady, nil; e.Round == 0 && !e.Maybe {
		e.FirstSent = time.Time{}
	}
}

// staying reports whether nothing of the request, or of this attempt of it, has
// left, although it is on disk as sent.
func (e *entry) staying() bool { return e.Stage == stageSent && e.via != nil }

// mayHaveLeft reports whether the server may have done the request.
func (e *entry) mayHaveLeft() bool { return e.Maybe || e.Stage == stageSent && e.via == nil }

func (e *entry) clone() *entry {
	c := *e
	c.Questions = slices.Clone(e.Questions)
	if e.Task != nil {
		t := *e.Task
		c.Task = &t
	}
	return &c
}

func (e *entry) end(o outcome) {
	o.At = time.Now()
	e.Stage, e.Outcome, e.State = stageEnded, &o, nil
}

// askCancel is what Cancel changes.
func (e *entry) askCancel() error {
	if e.ended() || e.CancelAsked {
		return errUnchanged
	}
	e.CancelAsked = true
	return nil
}

// numbered gives new questions their numbers, which no others of the call get.
func (e *entry) numbered(all []question) []question {
	all = slices.Clone(all)
	for i := range all {
		e.Asked++
		all[i].Number = e.Asked
	}
	return all
}

// question returns the newest question with this key, or nil.
func (e *entry) question(key string) *question {
	for i := range slices.Backward(e.Questions) {
		if e.Questions[i].Key == key {
			return &e.Questions[i]
		}
	}
	return nil
}

// questionByID returns the question with this ID, or nil.
func (e *entry) questionByID(id string) *question {
	for i := range e.Questions {
		if e.questionID(&e.Questions[i]) == id {
			return &e.Questions[i]
		}
	}
	return nil
}

// isOpen reports whether this very question can still be answered.
func (e *entry) isOpen(id string) bool {
	q := e.questionByID(id)
	return q != nil && q.open() && !e.ended()
}

// named finds the open question that is meant by its ID, or by a key that one
// open question alone has.
func (e *entry) named(name string) (*question, error) {
	q := e.questionByID(name)
	if q == nil {
		for i := range e.Questions {
			switch each := &e.Questions[i]; {
			case each.Key != name:
			case q == nil || !q.open():
				q = each
			case each.open():
				return nil, fmt.Errorf("client: call %s asks %q more than once: answer by Question.ID", e.ID, name)
			}
		}
	}
	switch {
	case e.ended() || q == nil || q.Gone:
		return nil, fmt.Errorf("client: call %s asks nothing called %q", e.ID, name)
	case !q.open():
		return nil, fmt.Errorf("client: %q of call %s is answered already", name, e.ID)
	}
	return q, nil
}

// answer puts an answer to an open question, by its ID or key, on record.
func (e *entry) answer(name string, a Answer, by string) error {
	q, err := e.named(name)
	if err != nil {
		return err
	}
	response, err := a.response(q.Kind)
	if err == nil {
		err = fits(q, response)
	}
	if err != nil {
		return &unfit{fmt.Errorf("client: the answer to %q: %w", q.Key, err)}
	}
	q.Response, q.By = response, by
	if e.Stage == stageAsking && !slices.ContainsFunc(e.Questions, func(q question) bool { return q.open() }) {
		e.Stage = stageReady
	}
	return nil
}

// answerIfOpen is answer, for those who may come late: the question may have
// been answered meanwhile, or may be asked no longer.
func (e *entry) answerIfOpen(id string, a Answer, by string) error {
	if !e.isOpen(id) {
		return errUnchanged
	}
	return e.answer(id, a, by)
}

// unfit is an answer that is none to its question.
type unfit struct{ error }

// questionID tells a question from all others, those with its key too.
func (e *entry) questionID(q *question) string {
	return fmt.Sprintf("%s/%d/%s", e.ID, q.Number, q.Key)
}

// asked is what the Answerer and the caller see of a question.
func (e *entry) asked(q *question) Question {
	out := Question{
		ID: e.questionID(q), Call: e.ID,
		Server: e.Server, Method: e.Method, Name: e.Name, Arguments: e.Arguments,
		Key: q.Key, Kind: q.Kind, Request: q.Request, Expires: e.expires(),
	}
	out.describe()
	return out
}

// describe fills in what the request itself says.
func (q *Question) describe() {
	var request struct {
		Params struct {
			Message string          `json:"message"`
			Schema  json.RawMessage `json:"requestedSchema"`
			URL     string          `json:"url"`
		} `json:"params"`
	}
	if unmarshal(q.Request, &request) == nil && (q.Kind == Form || q.Kind == URL) {
		q.Message, q.Schema, q.URL = request.Params.Message, request.Params.Schema, request.Params.URL
	}
}

func (e *entry) expires() time.Time {
	if e.Task != nil && !e.Task.EndOfLife.IsZero() && e.Task.EndOfLife.Before(e.Deadline) {
		return e.Task.EndOfLife
	}
	return e.Deadline
}

func (e *entry) status() Status {
	s := Status{
		ID: e.ID, Server: e.Server, Method: e.Method, Name: e.Name, Arguments: e.Arguments,
		State: Working, Rounds: e.Round, Created: e.Created, Updated: e.Updated, Expires: e.expires(),
	}
	if e.Task != nil {
		s.Task, s.Message = e.Task.ID, e.Task.Message
	}
	if e.ended() {
		s.State = e.Outcome.State
		if e.Outcome.Reason != "" {
			s.Message = e.Outcome.Reason
		}
		return s
	}
	for i := range e.Questions {
		if q := &e.Questions[i]; q.open() {
			s.State = InputRequired
			s.Open = append(s.Open, e.asked(q))
		}
	}
	return s
}
