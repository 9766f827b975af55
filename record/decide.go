package record

import (
	"errors"
	"time"
)

// maxKills is how many workers a call may take down with it before it fails.
const maxKills = 5

// NoEpoch is the epoch of whoever is not a run.
const NoEpoch int64 = 0

// decision is a change in the making.
type decision struct {
	c      *Call // the call as the events so far have made it; nil: none
	by     Actor
	epoch  int64
	now    time.Time
	change Change
	gone   bool // the call was removed
}

// Decide returns the change that the events make to c, in order and all or
// none, by that actor at that time. c is nil for a call that does not exist
// and is never modified. epoch is that of the run that speaks, or [NoEpoch].
//
// A [*Refusal] comes with a change that holds its audit entry alone, for the
// store to keep. A change without After and Audit is nothing to be done.
func Decide(c *Call, by Actor, epoch int64, now time.Time, events ...Event) (Change, error) {
	d := &decision{by: by, epoch: epoch, now: now}
	if c != nil {
		d.c = c.clone()
		d.change.ID, d.change.Version = c.ID, c.Version
	}
	changed := false
	for _, e := range events {
		before := len(d.change.Audit)
		if err := d.admit(e); err != nil {
			return d.refusal(c, err)
		}
		if err := e.apply(d); err != nil {
			return d.refusal(c, err)
		}
		changed = changed || len(d.change.Audit) > before
	}
	if !changed {
		return Change{ID: d.change.ID, Version: d.change.Version}, nil
	}
	switch {
	case d.gone:
		d.change.Remove = true
	case d.c != nil:
		d.c.Version = d.change.Version + 1
		d.c.UpdatedAt = now
		d.change.After = d.c
	}
	return d.change, nil
}

// admit holds what is true of all events of a kind: nothing but evidence, a
// person's word on a held effect, time and refusals reaches an ended call, and
// a run needs its epoch and lease.
func (d *decision) admit(e Event) error {
	if _, opening := e.(Opened); opening != (d.c == nil) {
		return &Refusal{Reason: ReasonWrongState}
	}
	if d.c == nil {
		return nil
	}
	switch e.(type) {
	case Observed, EffectResolved, TimePassed, Refused:
		return nil
	}
	if d.c.State == Ended {
		return &Refusal{Reason: ReasonEnded}
	}
	switch e := e.(type) {
	case Asked, Voided, Paused, Announced, EffectBegan, EffectEnded, EffectUnfit, Reported, Finished:
		return d.ofRun()
	case Stopped:
		if e.Why != WhyDied {
			return d.ofRun()
		}
	}
	return nil
}

// ofRun checks that the speaker is the run that holds the call.
func (d *decision) ofRun() error {
	switch {
	case d.c.State != Running || d.epoch != d.c.Epoch:
		return &Refusal{Reason: ReasonStaleEpoch}
	case !d.c.Lease.Live(d.now):
		return &Refusal{Reason: ReasonLeaseLost}
	}
	d.change.Epoch = d.epoch
	if d.change.Version == 0 {
		d.change.Epoch = 0 // the call is made by this very change
	}
	return nil
}

// refusal drops what the events have done and keeps the entry for the refusal.
// What the engine itself tries in vain, because another was quicker, is nobody's
// refusal.
func (d *decision) refusal(c *Call, err error) (Change, error) {
	var r *Refusal
	if !errors.As(err, &r) || c == nil || d.by.Channel == ChannelSystem {
		return Change{}, err
	}
	d.c = c
	e := d.entry("refused")
	e.Reason, e.Key = r.Reason, r.Key
	return Change{ID: c.ID, Version: c.Version, Audit: []Entry{e}}, err
}

// entry begins an audit entry of the call as it is now.
func (d *decision) entry(event string) Entry {
	return Entry{
		At: d.now, Call: d.c.ID, Tenant: d.c.Owner.Tenant, Event: event, By: d.by, Epoch: d.c.Epoch, Round: d.c.Round,
		Stored: d.by.Channel == ChannelRun, // a run has its owner's roles from the call
	}
}

// note adds an audit entry, which is what makes a change a change.
func (d *decision) note(event string, more func(*Entry)) {
	e := d.entry(event)
	if more != nil {
		more(&e)
	}
	d.change.Audit = append(d.change.Audit, e)
}

// end makes the call terminal. What is open then is void; leases are over.
func (d *decision) end(o Outcome, result []byte, e *Error, reason Reason) {
	c := d.c
	c.State, c.Outcome, c.EndedAt = Ended, o, d.now
	c.Lease = Lease{}
	c.Result, c.Error = result, e
	for i := range c.Questions {
		if c.Questions[i].State == Open {
			c.Questions[i].State = Void
		}
	}
	d.closeRound(nil)
	d.note("ended", func(e *Entry) { e.Outcome, e.Reason = o, reason })
}

// closeRound ends the round that is being served; asked are the wire keys that
// its response asks.
func (d *decision) closeRound(asked []string) {
	c := d.c
	if n := len(c.Rounds); n > 0 && !c.Rounds[n-1].Closed {
		c.Rounds[n-1].Closed, c.Rounds[n-1].Asked = true, asked
	}
	c.Round = len(c.Rounds)
}

// setMark writes a mark of this call.
func (d *decision) setMark(m Mark) {
	m.Call = d.c.ID
	d.change.Marks = append(d.change.Marks, MarkWrite{MarkID: m.MarkID, Set: &m})
}

func (d *decision) deleteMark(id MarkID) {
	d.change.Marks = append(d.change.Marks, MarkWrite{MarkID: id})
}

// subjectMark is the mark of an effect as the call has it now.
func (d *decision) subjectMark(e *Effect) Mark {
	return Mark{MarkID: SubjectMark(d.c.Owner.Tenant, e.Name, e.Subject), State: e.State, Owner: d.c.Owner, Result: e.Result}
}

// markEffect brings the mark of an effect's subject into line with it.
func (d *decision) markEffect(e *Effect) {
	switch {
	case e.Subject == "" || e.Shared:
	case e.State == EffectUndone:
		d.deleteMark(SubjectMark(d.c.Owner.Tenant, e.Name, e.Subject))
	default:
		d.setMark(d.subjectMark(e))
	}
}

func effectName(name, subject string) string {
	if subject == "" {
		return name
	}
	return name + " [" + subject + "]"
}
