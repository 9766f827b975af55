package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Kind is what a server may ask of a client in the middle of a call.
type Kind string

// Kinds.
const (
	Form     Kind = "form"     // elicitation/create, mode form
	URL      Kind = "url"      // elicitation/create, mode url
	Sampling Kind = "sampling" // sampling/createMessage; deprecated by revision 2026-07-28
	Roots    Kind = "roots"    // roots/list; deprecated by revision 2026-07-28
)

var kinds = []Kind{Form, URL, Sampling, Roots}

// A Question is one thing that a server asks, with all that a person needs to
// judge it. What comes from the server is hostile: escape it before you show it.
type Question struct {
	// ID names the question for good: it is the same after a restart, and no
	// other question ever has it, of another round or of a task by the same key
	// neither. It is what [Handle.Answer] takes.
	ID   string
	Call string // the id of the call's handle

	Server    string // Options.Server
	Method    string // "tools/call", "prompts/get", "resources/read"
	Name      string // of the tool or prompt, or the URI; empty if it cannot be known (2025 era: several calls at once, or one that was given up before)
	Arguments json.RawMessage

	Key     string // the server's, of 1,024 bytes at most; unique among what is open in its round or task
	Kind    Kind
	Message string          // Form, URL
	Schema  json.RawMessage // Form: requestedSchema, an object with flat properties. Its defaults are suggestions to be shown
	URL     string          // URL: not checked in any way; show its host, open it only when told to
	Request json.RawMessage // the whole request, as it came

	// Again: the question was handed to an Answerer before, and that process
	// ended before an answer was kept. One that posts questions somewhere looks
	// ID up there rather than posting twice.
	Again bool
	// Problem says why the Answerer's last answer could not be taken; it is
	// asked once more then.
	Problem string
	// Expires is when the call ends whether answered or not.
	Expires time.Time
}

// An Answer is what a person, or a rule, has to say to a question.
type Answer struct {
	// Action, of Form and URL: "accept", "decline" or "cancel".
	Action string
	// Content, of an accepted Form: an object that fits Question.Schema.
	Content json.RawMessage
	// Result, of Sampling and Roots: the whole result object.
	Result json.RawMessage
}

// Accept is a yes to a URL, or to a form with this content, which is anything
// that marshals to a JSON object.
func Accept(content any) (Answer, error) {
	a := Answer{Action: "accept"}
	if content == nil {
		return a, nil
	}
	b, err := marshal(content)
	if err != nil {
		return Answer{}, fmt.Errorf("client: the content of an answer: %w", err)
	}
	a.Content = b
	return a, nil
}

// Decline is an explicit no.
func Decline() Answer { return Answer{Action: "decline"} }

// Dismiss closes the question without a choice.
func Dismiss() Answer { return Answer{Action: "cancel"} }

// ErrNoAnswer is returned by an [Answerer] that cannot answer this question
// now. It stays open, and the call waits for somebody else, who may answer with
// [Handle.Answer]; nothing is sent to the server.
var ErrNoAnswer = errors.New("client: no answer")

// An Answerer puts questions to whoever can answer them.
type Answerer interface {
	// Kinds says what can be answered. It is what the client declares to
	// servers as its capabilities, so it is true for as long as the client lives.
	Kinds() []Kind

	// Answer blocks until there is an answer, which may take hours, or ctx ends:
	// when the question is no longer asked, the call or (2025 era) its request has
	// ended, somebody else has answered, or the client closes.
	// It is called from several goroutines at once, each with one question.
	// The question is on disk before it is called, and the answer is before it
	// is sent.
	//
	// An answer that does not fit is given back once, with Question.Problem. An
	// error, ErrNoAnswer or another, leaves the question open.
	Answer(ctx context.Context, q Question) (Answer, error)
}
