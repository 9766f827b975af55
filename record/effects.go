package record

import (
	"fmt"
	"slices"
)

// apply starts an effect, or says why it may not start. The conditions are
// those of one write: the run is current and its lease unexpired (see admit),
// nothing is cancelled or expired, and every answer the run has acted on still
// counts. The answers are spent by it.
func (e EffectBegan) apply(d *decision) error {
	c := d.c
	name := effectName(e.Name, e.Subject)
	switch {
	case !c.CancelledAt.IsZero():
		return &Refusal{Reason: ReasonCancelled, Key: name}
	case !d.now.Before(c.Deadline):
		return &Refusal{Reason: ReasonDeadline, Key: name}
	case c.HeldEffect() != nil:
		return &Refusal{Reason: ReasonHeld, Key: name}
	}
	f := c.Effect(e.Name, e.Subject)
	if f != nil {
		switch f.State {
		case EffectDone:
			return &Refusal{Reason: ReasonDone, Key: name}
		case EffectStarted:
			if !f.Repeatable || !e.Repeatable { // a newer handler may know better
				return &Refusal{Reason: ReasonInFlight, Key: name}
			}
		}
	}
	if f == nil {
		c.Effects = append(c.Effects, Effect{Name: e.Name, Subject: e.Subject, Key: EffectKey(c, e.Deployment, e.Name, e.Subject)})
		f = &c.Effects[len(c.Effects)-1]
	}
	if err := d.spend(f, e.Relied); err != nil {
		return err
	}
	if m := e.Mark; e.Subject != "" && m != nil && m.Call != c.ID {
		return e.foreign(d, f, m)
	}
	f.Repeatable = e.Repeatable
	f.State, f.Epoch, f.StartedAt = EffectStarted, c.Epoch, d.now
	f.Attempts++
	d.markEffect(f)
	d.note("effect started", func(a *Entry) { a.Effect = name })
	return nil
}

// foreign deals with a subject that belongs to another call. Done, its owner
// gets the result on this call too; nobody else learns more than that.
func (e EffectBegan) foreign(d *decision, f *Effect, m *Mark) error {
	name := effectName(e.Name, e.Subject)
	switch {
	case m.State == EffectHeld:
		return &Refusal{Reason: ReasonHeld, Key: name}
	case m.State != EffectDone:
		return &Refusal{Reason: ReasonBusy, Key: name}
	case m.Owner != d.c.Owner || m.Owner.Anonymous():
		return &Refusal{Reason: ReasonDoneByOther, Key: name}
	}
	f.State, f.Shared, f.Result = EffectDone, true, m.Result
	f.Epoch, f.StartedAt, f.EndedAt = d.c.Epoch, d.now, d.now
	d.note("effect done before", func(a *Entry) { a.Effect, a.Note = name, "by call "+m.Call })
	return nil
}

// spend checks that every answer relied on still counts, a no too, and spends
// them on f.
func (d *decision) spend(f *Effect, relied []Reliance) error {
	for _, r := range relied {
		q := d.c.latest(r.Key)
		if q == nil || r.No != (q.State == Declined || q.State == Dismissed) || !r.No && q.State != Answered || q.Digest != r.Digest && !q.Spent {
			return &Refusal{Reason: ReasonUnanswered, Key: r.Key}
		}
		q.Spent = true
		if !slices.Contains(f.Relied, q.WireKey) {
			f.Relied = append(f.Relied, q.WireKey)
		}
	}
	return nil
}

// undo says of an effect that it certainly did not happen. Answers spent on it
// alone are spent no more: it has changed no facts, so that they count again
// for exactly what was asked, and not for what has changed since.
func (d *decision) undo(f *Effect) {
	relied := f.Relied
	f.State, f.Result, f.Relied = EffectUndone, nil, nil
	for _, key := range relied {
		spent := slices.ContainsFunc(d.c.Effects, func(o Effect) bool { return slices.Contains(o.Relied, key) })
		d.c.Question(key).Spent = spent
	}
}

func (e EffectEnded) apply(d *decision) error {
	f := d.c.Effect(e.Name, e.Subject)
	name := effectName(e.Name, e.Subject)
	if f == nil || f.State != EffectStarted || f.Epoch != d.c.Epoch {
		return &Refusal{Reason: ReasonWrongState, Key: name}
	}
	switch e.State {
	case EffectDone, EffectUndone:
		f.State, f.Result, f.EndedAt = EffectDone, e.Result, d.now
		if e.State == EffectUndone {
			d.undo(f)
		}
		d.markEffect(f)
		d.note("effect ended", func(a *Entry) { a.Effect, a.Note = name, string(e.State) })
	case EffectHeld:
		d.hold(f, e.Text)
	default:
		return &Refusal{Reason: ReasonWrongState, Key: name}
	}
	return nil
}

// hold says of an effect that nobody knows how it ended.
func (d *decision) hold(f *Effect, why string) {
	f.State, f.EndedAt = EffectHeld, d.now
	f.addEvidence(Evidence{At: d.now, By: d.by, Epoch: f.Epoch, Text: why})
	d.markEffect(f)
	d.note("effect held", func(a *Entry) { a.Effect, a.Note = effectName(f.Name, f.Subject), why })
}

// addEvidence keeps the first and the latest of more than maxEvidence, and of
// a result that is too large for that only its size.
func (f *Effect) addEvidence(e Evidence) {
	if len(e.Result) > maxEvidenceResult {
		e.Text += fmt.Sprintf("; its result of %d bytes is too large to keep here", len(e.Result))
		e.Result = nil
	}
	if len(f.Evidence) >= maxEvidence {
		f.Evidence = append(f.Evidence[:1], f.Evidence[2:]...)
	}
	f.Evidence = append(f.Evidence, e)
}

// apply resolves a held effect. A call that waited for it goes on; one that
// has ended keeps its outcome. That it happened cannot be taken back: what was
// done for it would be done again. Its result can be given anew once the call has
// ended, for the calls that share it.
func (e EffectResolved) apply(d *decision) error {
	c := d.c
	f := c.Effect(e.Name, e.Subject)
	name := effectName(e.Name, e.Subject)
	anew := f != nil && f.Resolved && f.State == EffectDone && c.State == Ended
	switch {
	case f == nil || f.State != EffectHeld && !anew:
		return &Refusal{Reason: ReasonNotHeld, Key: name}
	case f.Resolved && !e.Done:
		return &Refusal{Reason: ReasonDone, Key: name}
	}
	f.State, f.Result, f.EndedAt, f.Resolved = EffectDone, e.Result, d.now, e.Done
	if !e.Done {
		d.undo(f)
	}
	f.addEvidence(Evidence{At: d.now, By: d.by, Text: "resolved: " + string(f.State)})
	d.markEffect(f)
	d.note("effect resolved", func(a *Entry) { a.Effect, a.Note = name, string(f.State) })
	if c.State == Held && c.HeldEffect() == nil {
		d.goOn()
	}
	return nil
}

// apply holds a done effect again, for its result.
func (e EffectUnfit) apply(d *decision) error {
	f := d.c.Effect(e.Name, e.Subject)
	name := effectName(e.Name, e.Subject)
	if f == nil || f.State != EffectDone || !f.Resolved {
		return &Refusal{Reason: ReasonWrongState, Key: name}
	}
	f.addEvidence(Evidence{At: d.now, By: d.by, Epoch: d.c.Epoch, Result: f.Result, Text: "it happened, but the result that was given for it does not fit: " + e.Text})
	f.State, f.Result, f.EndedAt = EffectHeld, nil, d.now
	d.markEffect(f)
	d.note("effect held", func(a *Entry) {
		a.Effect, a.Note = name, "it happened, but the result that was given for it does not fit"
	})
	return nil
}

// apply keeps what a run that lost its lease knows of its effect. It settles
// nothing: it is for whoever resolves the hold.
func (e Observed) apply(d *decision) error {
	f := d.c.Effect(e.Name, e.Subject)
	name := effectName(e.Name, e.Subject)
	if f == nil {
		return &Refusal{Reason: ReasonUnknownKey, Key: name}
	}
	f.addEvidence(Evidence{At: d.now, By: d.by, Epoch: e.Epoch, Result: e.Result, Text: e.Text})
	d.note("evidence", func(a *Entry) { a.Effect = name })
	return nil
}
