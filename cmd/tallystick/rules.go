package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/trace"
)

// rules are the settings' policy, and for each of its rules which of them it is.
// What a flag is there to answer is asked instead of replied to by a rule, so
// that the flag answers; what a rule refuses stays refused.
func (a *app) rules(flags []*reply) (p client.Policy, of []int) {
	add := func(rule client.Rule, i int) { p, of = append(p, rule), append(of, i) }
	for i, r := range a.Policy {
		rule := client.Rule{Server: r.Server, Name: r.Name, Key: r.Key, Kind: client.Kind(r.Kind), Do: client.Ruling(r.Do)}
		if rule.Do == client.Reply {
			for _, f := range flags {
				for _, kind := range []client.Kind{client.Form, client.URL} {
					matches, _ := path.Match(r.Key, f.key)
					if f.key == "" || !matches && r.Key != "" && r.Key != f.key || rule.Kind != "" && rule.Kind != kind {
						continue
					}
					add(client.Rule{Server: r.Server, Name: r.Name, Key: literal.Replace(f.key), Kind: kind, Do: client.Ask}, i)
				}
			}
		}
		if r.Answer != nil {
			rule.Answer = &client.Answer{Action: r.Answer.Action, Content: []byte(r.Answer.Content), Result: []byte(r.Answer.Result)}
		}
		add(rule, i)
	}
	return p, of
}

// literal makes a pattern that only matches the text itself.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// ruled tells of what a rule has answered; of is from rules.
func (a *app) ruled(of []int) func(client.Question, client.Answer, int) {
	return func(q client.Question, answer client.Answer, rule int) {
		by := "the settings"
		if rule >= 0 && rule < len(of) {
			by = fmt.Sprintf("rule %d of the settings", of[rule]+1)
		}
		a.tell(q, answer, by)
	}
}

// tell prints what was asked and what was answered, by a flag or a rule.
func (a *app) tell(q client.Question, answer client.Answer, by string) {
	said := map[string]string{"decline": "declined", "cancel": "dismissed"}[answer.Action]
	switch {
	case answer.Action == "accept" && q.Kind == client.Form:
		said = "accepted with " + safetext.Short(trace.Answer(q.Schema, answer.Content), 500)
	case answer.Action == "accept":
		said = "accepted"
	case said == "":
		said = "answered with " + safetext.Short(string(answer.Result), 500)
	}
	asked := q.Message
	if q.Kind == client.URL {
		asked += "\n" + q.URL
	}
	if asked == "" {
		asked = "(" + string(q.Kind) + ")"
	}
	a.say("%s: %s\n%s", safetext.Line(q.Server), calledAs(q.Name, q.Arguments), safetext.Frame{Mark: "? ", Limit: 2000}.Block(asked))
	a.say("%s by %s", said, by)
}
