package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	. "github.com/tallystick/tallystick/record"
)

// A tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

var start = time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)

// People. Ann owns the calls of most tests.
var (
	ann      = person("ann", "acme")
	bob      = person("bob", "acme", "finance")
	cid      = person("cid", "acme", "finance")
	eve      = person("eve", "evil", "finance") // another tenant
	nobody   = Actor{Principal: Principal{Tenant: "acme"}, Channel: ChannelRound}
	annElse  = Actor{Principal: Principal{Issuer: "idp", Tenant: "acme", Subject: "ann", Client: "phone"}, Roles: []string{"finance"}, Channel: ChannelDecide}
	annOther = Actor{Principal: Principal{Issuer: "other", Tenant: "acme", Subject: "ann", Client: "laptop"}, Channel: ChannelDecide}
)

func person(subject, tenant string, roles ...string) Actor {
	return Actor{Principal: Principal{Issuer: "idp", Tenant: tenant, Subject: subject, Client: "laptop"}, Roles: roles, Channel: ChannelDecide}
}

// by is the actor through another channel.
func by(a Actor, ch Channel) Actor { a.Channel = ch; return a }

// A book is a store small enough to be seen through. It checks each change
// against what must hold of all of them.
type book struct {
	tester
	now   time.Time
	calls map[string]*Call
	marks map[MarkID]Mark
	trail []Entry
	asked map[string]map[string]string // call → wire key → digest, for ever
	done  map[string]bool              // effects that are done, for ever
	// speaks: the change being made is a run's, and no passing of time.
	speaks bool
}

func newBook(t tester) *book {
	return &book{tester: t, now: start, calls: map[string]*Call{}, marks: map[MarkID]Mark{}, asked: map[string]map[string]string{}, done: map[string]bool{}}
}

var errConflict = errors.New("conflict")

// do decides the events and applies what comes of it.
func (b *book) do(id string, who Actor, epoch int64, events ...Event) error {
	b.Helper()
	change, err := b.decide(id, who, epoch, events...)
	if cerr := b.commit(change); cerr != nil {
		return cerr
	}
	return err
}

// decide asks the law, of the call as it is and as it is after it was stored
// as JSON, and checks that the call is left alone.
func (b *book) decide(id string, who Actor, epoch int64, events ...Event) (Change, error) {
	b.Helper()
	c := b.calls[id]
	before := b.copyOf(c)
	b.speaks = slices.ContainsFunc(events, func(e Event) bool { _, time := e.(TimePassed); return !time })
	change, err := Decide(c, who, epoch, b.now, events...)
	if !reflect.DeepEqual(c, before) {
		b.Fatalf("Decide changed its call: %+v\nbefore: %+v", c, before)
	}
	again, err2 := Decide(b.stored(c), who, epoch, b.now, events...)
	if !bytes.Equal(b.json(change), b.json(again)) || !reflect.DeepEqual(err, err2) {
		b.Fatalf("a call that was stored goes on otherwise:\n%s %v\n%s %v", b.json(change), err, b.json(again), err2)
	}
	b.checkChange(c, who, epoch, events, change, err)
	return change, err
}

func (b *book) json(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		b.Fatalf("%v", err)
	}
	return raw
}

// stored is the call as a store reads it back.
func (b *book) stored(c *Call) *Call {
	if c == nil {
		return nil
	}
	var read Call
	if err := json.Unmarshal(b.json(c), &read); err != nil {
		b.Fatalf("%v", err)
	}
	read.Version, read.Lease, read.Args, read.Result = c.Version, c.Lease, c.Args, c.Result
	return &read
}

// copyOf shares nothing with c that Decide could write to.
func (b *book) copyOf(c *Call) *Call {
	if c == nil {
		return nil
	}
	d := *c
	d.Rounds, d.Questions, d.Effects = slices.Clone(c.Rounds), slices.Clone(c.Questions), slices.Clone(c.Effects)
	for i := range d.Questions {
		d.Questions[i].Answers = slices.Clone(d.Questions[i].Answers)
	}
	for i := range d.Effects {
		d.Effects[i].Relied, d.Effects[i].Evidence = slices.Clone(d.Effects[i].Relied), slices.Clone(d.Effects[i].Evidence)
	}
	if c.Progress != nil {
		p := *c.Progress
		d.Progress = &p
	}
	if c.Error != nil {
		e := *c.Error
		d.Error = &e
	}
	return &d
}

// commit applies a change whole or not at all.
func (b *book) commit(ch Change) error {
	b.Helper()
	old := b.calls[ch.ID]
	if ch.After != nil || ch.Remove {
		if old == nil && ch.Version != 0 || old != nil && old.Version != ch.Version {
			return errConflict
		}
	}
	if ch.Epoch != 0 && (old == nil || old.Epoch != ch.Epoch || !old.Lease.Live(b.now)) {
		return errConflict
	}
	for _, m := range ch.Marks {
		if have := b.mark(m.MarkID); have != nil && have.Call != ch.ID {
			return errConflict
		}
	}
	for _, m := range ch.Marks {
		if m.Set == nil {
			delete(b.marks, m.MarkID)
		} else {
			b.marks[m.MarkID] = *m.Set
		}
	}
	b.trail = append(b.trail, ch.Audit...)
	switch {
	case ch.Remove:
		delete(b.calls, ch.ID)
		if at := old.EndedAt.Add(old.Retention); old.State != Ended || old.HeldEffect() != nil || b.now.Before(at) {
			b.Fatalf("purged too early: %s", b.json(old))
		}
		tombstone := b.mark(MarkID{Kind: MarkGone, Tenant: old.Owner.Tenant, Name: old.ID})
		if b.mark(MarkID{Kind: MarkKey, Tenant: old.Owner.Tenant, Name: old.Key}) != nil || (tombstone != nil) != old.Deadline.After(b.now) {
			b.Fatalf("purged with its key, or without a tombstone: %s", b.json(old))
		}
	case ch.After != nil:
		b.calls[ch.ID] = ch.After
		b.checkCall(old, ch.After)
	}
	return nil
}

// mark is what a store says of a mark.
func (b *book) mark(id MarkID) *Mark {
	m, ok := b.marks[id]
	if !ok || !m.Until.IsZero() && !b.now.Before(m.Until) {
		return nil
	}
	return &m
}

// checkChange holds of every answer of the law.
func (b *book) checkChange(c *Call, who Actor, epoch int64, events []Event, ch Change, err error) {
	b.Helper()
	if err != nil {
		want := 1
		if c == nil || who.Channel == ChannelSystem {
			want = 0
		}
		if ch.After != nil || ch.Remove || ch.Marks != nil || len(ch.Audit) != want || want == 1 && (ch.Audit[0].Event != "refused" || ch.Audit[0].Reason == "") {
			b.Fatalf("a refusal (%v) that does more or less than say so: %s", err, b.json(ch))
		}
		return
	}
	if (ch.After != nil || ch.Remove) != (len(ch.Audit) > 0) || len(ch.Marks) > 0 && len(ch.Audit) == 0 {
		b.Fatalf("a change and its audit entries do not fit: %s", b.json(ch))
	}
	if ch.After == nil {
		return
	}
	if version := ch.After.Version; c == nil && version != 1 || c != nil && version != c.Version+1 {
		b.Fatalf("version %d does not follow", version)
	}
	for _, e := range events {
		switch e.(type) {
		case Stopped:
			if e == (Stopped{Why: WhyDied}) && c.Lease.Live(b.now) {
				b.Fatalf("a live run is taken for dead: %s", b.json(c))
			}
		case Taken:
			return // what follows is of the run that this begins
		case Asked, Voided, Paused, Announced, EffectBegan, EffectEnded, EffectUnfit, Reported, Finished:
			if c != nil && (c.Epoch != epoch || c.State != Running || !c.Lease.Live(b.now)) {
				b.Fatalf("%T of a run that has no right to it: %s", e, b.json(ch))
			}
		}
	}
}

// checkCall holds of every call, and of every change from old to c.
func (b *book) checkCall(old, c *Call) {
	b.Helper()
	fail := func(what string) { b.Helper(); b.Fatalf("%s: %s\nbefore: %s", what, b.json(c), b.json(old)) }
	if old != nil && old.State == Ended {
		now, was := *c, *old
		now.Version, now.UpdatedAt, now.Effects = was.Version, was.UpdatedAt, was.Effects
		was.Questions = slices.Clone(was.Questions)
		for i := range was.Questions { // an effect resolved as undone gives its answers back
			was.Questions[i].Spent = now.Questions[i].Spent
		}
		if !reflect.DeepEqual(&now, &was) {
			fail("terminal is not final")
		}
	}
	if old != nil && (c.Epoch < old.Epoch || c.Epoch > old.Epoch+1) {
		fail("the epoch jumps")
	}
	for what, wrong := range map[string]bool{
		"held, but by no effect, or the other way round": (c.State == Held) != (c.HeldEffect() != nil && c.State != Running && c.State != Ended),
		"a lease without a run, or the other way round":  (c.State == Running) != (c.Lease.Holder != ""),
		"nobody's: ready, yet no worker's":               c.State == Ready && !c.Background,
		"a worker's call that waits for nothing":         c.State == Waiting && c.Background && !c.HasOpen(),
		"a task that is not run in the background":       c.Task && !c.Background,
		"an open round that no retry can take":           c.State != Running && c.Background && !c.Rounds[len(c.Rounds)-1].Closed,
		"the round to take is not the next":              c.Round != len(c.Rounds) && !(c.Round == len(c.Rounds)-1 && !c.Rounds[c.Round].Closed),
		"cancelled, but it may still run":                !c.CancelledAt.IsZero() && (c.State == Ready || c.State == Waiting),
		"never due":                                      c.State != Ended && c.State != Running && c.Due().IsZero(),
		"ended, or not, by one of two words":             (c.State == Ended) != c.Outcome.Terminal() || (c.State == Ended) == c.EndedAt.IsZero(),
		"ended with an open question":                    c.State == Ended && c.HasOpen(),
		"expired before its deadline":                    c.Outcome == Expired && c.EndedAt.Before(c.Deadline),
		"expired, though it was cancelled":               c.Outcome == Expired && !c.CancelledAt.IsZero(),
		"ended over a live run with an effect": c.State == Ended && old != nil && old.State == Running && old.Lease.Live(b.now) && (c.Outcome == Expired || c.HeldEffect() != nil) &&
			!b.speaks && slices.ContainsFunc(old.Effects, func(f Effect) bool {
			return f.Epoch == old.Epoch && (f.State == EffectStarted || f.State == EffectDone)
		}),
		"cancelled without being asked to":                     c.Outcome == Cancelled && c.CancelledAt.IsZero(),
		"ended over a held effect without saying it's unknown": c.State == Ended && (old == nil || old.State != Ended) && c.HeldEffect() != nil && (c.Error == nil || c.Error.Outcome != "unknown"),
	} {
		if wrong {
			fail(what)
		}
	}
	b.checkQuestions(old, c, fail)
	b.checkEffects(old, c, fail)
}

func (b *book) checkQuestions(old, c *Call, fail func(string)) {
	digests := b.asked[c.ID]
	if digests == nil {
		digests = map[string]string{}
		b.asked[c.ID] = digests
	}
	seen := map[string]bool{}
	for i, q := range c.Questions {
		if d, ok := digests[q.WireKey]; seen[q.WireKey] || ok && d != q.Digest || q.Digest != q.Sum() {
			fail("wire key " + q.WireKey + " means two questions")
		}
		seen[q.WireKey], digests[q.WireKey] = true, q.Digest
		var was Question
		if old != nil && i < len(old.Questions) {
			was = old.Questions[i]
		}
		over := map[QuestionState]bool{Void: true, Lapsed: true, Answered: q.State != Void, Declined: q.State != Void, Dismissed: q.State != Void}
		if over[was.State] && q.State != was.State || was.Spent && q.State == Void {
			fail("a question that was settled is not")
		}
		if len(q.Answers) > len(was.Answers) && old != nil && !old.CancelledAt.IsZero() {
			fail("an answer after the cancel")
		}
		for _, a := range q.Answers[len(was.Answers):] {
			requester := a.By.Subject == c.Owner.Subject && a.By.Issuer == c.Owner.Issuer
			if q.Who.NotRequester && requester || q.Who.OutOfBand && a.By.Channel != ChannelDecide || a.By.Channel == ChannelSystem {
				fail("an answer of somebody who may not, or not so")
			}
			if !q.Who.Allows(a.By, c.Owner) || a.By.Tenant != c.Owner.Tenant || !a.At.Before(q.Expires) || was.State != Open && was.State != "" {
				fail("an answer that does not count")
			}
		}
		for j, a := range q.Answers {
			for _, o := range q.Answers[:j] {
				if a.By.Principal == o.By.Principal || a.By.SamePerson(o.By.Principal) {
					fail("one person answers for two")
				}
			}
		}
		if q.State == Answered && q.Accepts() < q.Who.Needed() {
			fail("answered by too few")
		}
		relied := slices.ContainsFunc(c.Effects, func(f Effect) bool { return slices.Contains(f.Relied, q.WireKey) })
		if q.Spent != relied || q.Spent && !toldBySomebody(q.State) {
			fail("spent without an effect, or the other way round")
		}
	}
}

// toldBySomebody: a yes or a no, and not that time has passed.
func toldBySomebody(s QuestionState) bool {
	return s == Answered || s == Declined || s == Dismissed
}

func (b *book) checkEffects(old, c *Call, fail func(string)) {
	seen := map[[2]string]bool{}
	for i, f := range c.Effects {
		name := [2]string{f.Name, f.Subject}
		if seen[name] {
			fail("one effect twice")
		}
		seen[name] = true
		var was Effect
		if old != nil && i < len(old.Effects) {
			was = old.Effects[i]
		}
		if was.Resolved && (f.State != EffectDone && f.State != EffectHeld || !f.Resolved) {
			fail("what a person said to have happened is taken back")
		}
		if was.State == EffectDone && f.State != EffectDone && !was.Resolved || was.State == EffectHeld && f.State == EffectStarted {
			fail("an effect whose end was known, or a person's to tell, starts again")
		}
		if f.Attempts > was.Attempts && (was.State == EffectStarted && !was.Repeatable || !c.CancelledAt.IsZero() && (old == nil || !old.CancelledAt.IsZero()) ||
			!b.now.Before(c.Deadline) || old != nil && old.HeldEffect() != nil && c.HeldEffect() != nil) {
			fail("an effect starts that may not")
		}
		b.checkElsewhere(c, f, f.Attempts > was.Attempts, fail)
		if c.State == Ended && f.State == EffectStarted {
			fail("ended over a started effect")
		}
		if len(f.Evidence) > 8 {
			fail("evidence without end")
		}
		if f.Subject == "" {
			continue
		}
		m := b.mark(SubjectMark(c.Owner.Tenant, f.Name, f.Subject))
		if f.Shared {
			if m == nil || m.State != EffectDone && m.State != EffectHeld || m.Owner != c.Owner || m.Owner.Anonymous() || m.Call == c.ID || f.State != EffectDone {
				fail("a share of what is not done, or not by the same owner")
			}
			continue
		}
		if mine := m != nil && m.Call == c.ID; mine != (f.State != EffectUndone) || mine && m.State != f.State {
			fail("the subject's mark does not say what the effect does")
		}
	}
}

// checkElsewhere holds of an effect over all calls, ended and purged ones too.
func (b *book) checkElsewhere(c *Call, f Effect, starts bool, fail func(string)) {
	key := "call " + c.ID + " " + f.Name
	if f.Subject != "" {
		key = "subject " + c.Owner.Tenant + " " + f.Name + " " + f.Subject
	}
	if starts && b.done[key] {
		fail("an effect that was done starts again")
	}
	b.done[key] = b.done[key] || f.State == EffectDone
	for id, o := range b.calls {
		if !starts || id == c.ID || f.Subject == "" || o.Owner.Tenant != c.Owner.Tenant {
			continue
		}
		if g := o.Effect(f.Name, f.Subject); g != nil && g.State != EffectUndone {
			fail("an effect starts that another call is at")
		}
	}
}
