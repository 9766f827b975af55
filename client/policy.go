package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
)

// A Ruling says what is done with a question.
type Ruling string

// Rulings.
const (
	Ask    Ruling = "ask"    // hand it to the Answerer
	Refuse Ruling = "refuse" // decline it; of a kind that cannot be declined, end the call
	Reply  Ruling = "reply"  // give Rule.Answer, which its author has written down
)

// A Policy rules on questions before anybody is asked. The first rule that
// matches decides. None: Form and URL are asked, Sampling and Roots are refused.
//
// What a policy refuses altogether for a tool is not declared to the server as
// a capability in the calls of that tool.
type Policy []Rule

// A Rule matches questions by glob patterns, as of package path; an empty
// pattern matches everything. A '/' in a name is matched by no '*'. A question
// without a name (see Question.Name) may be any call's: of the rules for some
// names only those match it that refuse.
type Rule struct {
	Server string // Options.Server
	Name   string // of the tool or prompt, or the URI
	Key    string // the question's
	Kind   Kind   // empty: any

	Do Ruling
	// Answer, with Reply. It is checked against each question's schema, and the
	// call fails rather than send what does not fit.
	Answer *Answer
}

func (r Rule) matches(server, name, key string, k Kind) bool {
	return (r.Kind == "" || r.Kind == k) && glob(r.Server, server) && glob(r.Name, name) && glob(r.Key, key)
}

func glob(pattern, s string) bool {
	if pattern == "" || pattern == s {
		return true
	}
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// check finds rules that cannot be meant.
func (p Policy) check() error {
	for i, r := range p {
		var err error
		for _, pattern := range []string{r.Server, r.Name, r.Key} {
			if _, bad := path.Match(pattern, ""); bad != nil {
				err = fmt.Errorf("pattern %q: %w", pattern, bad)
			}
		}
		switch {
		case err != nil:
		case r.Kind != "" && !slices.Contains(kinds, r.Kind):
			err = fmt.Errorf("no such kind: %q", r.Kind)
		case r.Do == Reply && r.Answer == nil:
			err = errors.New("it replies without an answer")
		case r.Do != Reply && r.Answer != nil:
			err = errors.New("it has an answer, and does not reply")
		case !slices.Contains([]Ruling{Ask, Refuse, Reply}, r.Do):
			err = fmt.Errorf("no such ruling: %q", r.Do)
		case r.Do == Reply:
			err = r.Answer.possible(r.Kind)
		}
		if err != nil {
			return fmt.Errorf("client: rule %d of the policy: %w", i, err)
		}
	}
	return nil
}

// rule returns what is done with a question, and the rule that says so, -1 for
// none.
func (p Policy) rule(q *Question) (Ruling, int) {
	if q.Name == "" {
		return p.ruleForAny(q)
	}
	for i, r := range p {
		if r.matches(q.Server, q.Name, q.Key, q.Kind) {
			return r.Do, i
		}
	}
	return unruled(q.Kind), -1
}

// ruleForAny rules on a question that may be of any of several calls: a rule
// for some names only counts if it refuses.
func (p Policy) ruleForAny(q *Question) (Ruling, int) {
	for i, r := range p {
		named := r.Name
		r.Name = ""
		if r.matches(q.Server, "", q.Key, q.Kind) && (named == "" || named == "*" || r.Do == Refuse) {
			return r.Do, i
		}
	}
	return unruled(q.Kind), -1
}

func unruled(k Kind) Ruling {
	if k == Form || k == URL {
		return Ask
	}
	return Refuse
}

// allows reports whether some question of this kind may get an answer: from
// the Answerer, if it has the kind, or by a rule.
func (p Policy) allows(server, name string, k Kind, answerable bool) bool {
	for _, r := range p {
		if r.Kind != "" && r.Kind != k || !glob(r.Server, server) || !glob(r.Name, name) {
			continue
		}
		if r.Do == Reply || r.Do == Ask && answerable {
			return true
		}
		if r.Key == "" || r.Key == "*" { // nothing of this kind gets past it
			return false
		}
	}
	return unruled(k) == Ask && answerable
}

// possible is an error if no question of this kind, empty for any, can have
// this answer.
func (a *Answer) possible(k Kind) (err error) {
	for _, each := range kinds {
		if k != "" && k != each {
			continue
		}
		if _, err = a.response(each); err == nil {
			return nil
		}
	}
	return err
}

// response is the answer as a server reads it.
func (a *Answer) response(k Kind) (json.RawMessage, error) {
	if k == Sampling || k == Roots {
		if !isObject(a.Result) {
			return nil, fmt.Errorf("an answer to %s is a result object", k)
		}
		return slices.Clone(a.Result), nil
	}
	if !slices.Contains([]string{"accept", "decline", "cancel"}, a.Action) {
		return nil, fmt.Errorf("the action of an answer is accept, decline or cancel, not %q", a.Action)
	}
	out := struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}{Action: a.Action}
	if a.Action == "accept" && k == Form {
		if out.Content = a.Content; !isObject(out.Content) {
			return nil, errors.New("the content of an accepted form is an object")
		}
	}
	return marshal(out)
}
