package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
)

// answering flags, of commands that drive a call.
type answering struct {
	answers, yes, decline, close []string
}

func (g *answering) add(cmd *cobra.Command) {
	cmd.Flags().Bool("no-input", false, "ask nobody, now or later: the server is told that nobody can be asked")
	cmd.Flags().StringArrayVar(&g.answers, "answer", nil, "`KEY=JSON`: accept that question with this content, once")
	cmd.Flags().StringArrayVar(&g.yes, "yes", nil, "accept the yes-or-no question `KEY`, once")
	cmd.Flags().StringArrayVar(&g.decline, "decline", nil, "decline the question `KEY`, once")
	cmd.Flags().StringArrayVar(&g.close, "dismiss", nil, "close the question `KEY` without a choice, once")
}

// A reply is one flag: what is answered to the first question of its key.
type reply struct {
	flag, key string // as it was written
	content   json.RawMessage
	to        string // the id of the question that it was for
	late      string // why it was not taken, if so
}

// replies reads the flags.
func (g *answering) replies() ([]*reply, error) {
	var all []*reply
	for _, text := range g.answers {
		key, content, ok := parted(text)
		if !ok {
			return nil, usage("--answer %s: write KEY=JSON, and as JSON one object", quoted(key))
		}
		all = append(all, &reply{flag: "--answer", key: key, content: json.RawMessage(content)})
	}
	for flag, keys := range map[string][]string{"--yes": g.yes, "--decline": g.decline, "--dismiss": g.close} {
		for _, key := range keys {
			all = append(all, &reply{flag: flag, key: key})
		}
	}
	seen := map[string]bool{}
	for _, r := range all {
		if seen[r.key] {
			return nil, usage("the question %s is answered twice", quoted(r.key))
		}
		seen[r.key] = true
	}
	return all, nil
}

// parted takes KEY=JSON apart. A key may have "=" in it, too: only after one of
// them there can be one JSON object, as any other is within a string of that, and
// what follows it ends within one.
func parted(text string) (key, content string, ok bool) {
	for i := range len(text) {
		if text[i] != '=' {
			continue
		}
		if v := jsontext.Value(text[i+1:]); v.Kind() == '{' && v.IsValid() {
			return text[:i], text[i+1:], true
		}
	}
	key, _, _ = strings.Cut(text, "=")
	return key, "", false
}

// String is the flag as it is written.
func (r *reply) String() string { return r.flag + " " + quoted(r.key) }

// answer is what the flag has to say to a question.
func (r *reply) answer(q client.Question) (client.Answer, error) {
	switch r.flag {
	case "--decline", "--dismiss":
		if q.Kind != client.Form && q.Kind != client.URL {
			return client.Answer{}, usage("%s %s: it is a question of kind %s, which has no such answer", r.flag, quoted(r.key), safetext.Line(string(q.Kind)))
		}
		if r.flag == "--decline" {
			return client.Decline(), nil
		}
		return client.Dismiss(), nil
	}
	if q.Kind != client.Form {
		return client.Answer{}, usage("%s %s: it is a question of kind %s, not a form", r.flag, quoted(r.key), safetext.Line(string(q.Kind)))
	}
	content := r.content
	if r.flag == "--yes" {
		var err error
		if content, err = yes(q.Schema); err != nil {
			return client.Answer{}, usage("--yes %s: %v: use --answer %s", quoted(r.key), err, toAnswer(r.key))
		}
	}
	f, err := form.Parse(q.Schema)
	if err == nil {
		err = f.Check(content)
	}
	if err != nil {
		return client.Answer{}, usage("%s %s: %s", r.flag, quoted(r.key), safetext.Short(err.Error(), 500))
	}
	return client.Answer{Action: "accept", Content: content}, nil
}

// yes is the content that accepts a form of one required boolean, and of
// nothing else. Any other form needs more than a yes.
func yes(schema json.RawMessage) (json.RawMessage, error) {
	f, err := form.Parse(schema)
	if err != nil {
		return nil, err
	}
	if len(f.Fields) != 1 || f.Fields[0].Kind != form.YesNo || !f.Fields[0].Required {
		return nil, errors.New("its form is not one required yes-or-no")
	}
	return json.Marshal(map[string]bool{f.Fields[0].Name: true})
}

// A respondent answers with what the flags say, then with what a person does.
type respondent struct {
	keep   func(context.Context, client.Question, client.Answer) error // its error is [notTaken]
	tell   func(q client.Question, answer client.Answer, by string)
	person *terminal.Asker // nil: nobody
	kinds  []client.Kind

	mu      sync.Mutex // guards what follows
	replies []*reply
	wrong   error // the first flag that could not be used
}

var _ client.Answerer = (*respondent)(nil)

// answerer is who answers in this process: the flags, and a person if there is
// one and ask says so.
//
// What it declares is true also where nobody is asked: a question stays on disk,
// and "tallystick answer" answers it. With --no-input nobody is meant to, and
// only what the flags answer is declared, so that the server takes another way
// if it has one.
func (a *app) answerer(g answering, ask bool, interrupt func(), gone func(client.Question) string) (*respondent, error) {
	replies, err := g.replies()
	if err != nil {
		return nil, err
	}
	d := &respondent{keep: a.keep, tell: a.tell, replies: replies, kinds: []client.Kind{client.Form, client.URL}}
	if ask && a.interactive() {
		d.person = terminal.New(terminal.Options{Screen: a.screen, In: a.in, Where: a.where, Interrupt: interrupt, Keep: a.keep, Gone: gone})
	}
	if a.NoInput {
		d.kinds = nil
		for _, r := range replies {
			d.kinds = append(d.kinds, client.Form)
			if r.flag == "--decline" || r.flag == "--dismiss" {
				d.kinds = append(d.kinds, client.URL)
			}
		}
		slices.Sort(d.kinds)
		d.kinds = slices.Compact(d.kinds)
	}
	return d, nil
}

// Kinds implements [client.Answerer]: what somebody can answer, and no more.
func (d *respondent) Kinds() []client.Kind { return d.kinds }

// Answer implements [client.Answerer]. What could not be kept the client is given
// all the same: it says why, or asks once more.
func (d *respondent) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	answer, err := d.give(ctx, q)
	var lost *notTaken
	if errors.As(err, &lost) {
		return answer, nil
	}
	return answer, err
}

// give finds an answer, and has it on disk before it tells of it.
func (d *respondent) give(ctx context.Context, q client.Question) (client.Answer, error) {
	if r := d.take(q); r != nil && q.Problem == "" {
		answer, err := r.answer(q)
		if err != nil {
			d.mu.Lock()
			d.wrong = errors.Join(d.wrong, err)
			d.mu.Unlock()
			return client.Answer{}, client.ErrNoAnswer
		}
		if err := d.keep(ctx, q, answer); err != nil {
			d.tooLate(r, err)
			return answer, err
		}
		d.tell(q, answer, r.String())
		return answer, nil
	}
	if d.person != nil {
		return d.person.Answer(ctx, q)
	}
	return client.Answer{}, client.ErrNoAnswer
}

// notTaken is why an answer is not on disk.
type notTaken struct{ err error }

func (n *notTaken) Error() string { return textOf(n.err) }
func (n *notTaken) Unwrap() error { return n.err }

// keep puts an answer on disk, whoever drives the call. Of several calls under way
// at a server of 2025 none is known to have asked: such a question is on no disk.
func (a *app) keep(ctx context.Context, q client.Question, answer client.Answer) error {
	if q.Name == "" {
		return nil
	}
	m, err := a.memory()
	if err == nil {
		err = m.Answer(context.WithoutCancel(ctx), q.Call, q.ID, answer)
	}
	if err != nil {
		return &notTaken{err}
	}
	return nil
}

// tooLate notes that the answer of a flag was not taken.
func (d *respondent) tooLate(r *reply, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.late = textOf(err)
}

// take returns the flag for a question, which then is for no other, be its key
// the same.
func (d *respondent) take(q client.Question) *reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.replies {
		if r.key == q.Key && (r.to == "" || r.to == q.ID) {
			r.to = q.ID
			return r
		}
	}
	return nil
}

// mistake is what was wrong with the flags, if something was.
func (d *respondent) mistake() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wrong
}

// unused names the flags for which there was no question, or which came too
// late, and says so.
func (d *respondent) unused() (flags []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.replies {
		switch {
		case r.to == "":
			flags = append(flags, r.String()+" was for no question")
		case r.late != "":
			flags = append(flags, r.String()+" was not taken: "+r.late)
		}
	}
	return flags
}

// calledAs is a call on one line.
func calledAs(name string, arguments []byte) string {
	s := safetext.Short(name, 200)
	if len(arguments) > 0 && string(arguments) != "{}" {
		s += " " + safetext.Short(string(arguments), 300)
	}
	return s
}
