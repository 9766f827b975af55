package record

func (e Asked) apply(d *decision) error {
	c, q := d.c, e.Question
	if !ValidKey(q.Key) {
		return &Refusal{Reason: ReasonUnknownKey, Key: q.Key}
	}
	q.Digest = q.Sum()
	if look := c.Look(q.Key, q.Digest); look.Found != nil || look.Stale != nil {
		return &Refusal{Reason: ReasonWrongState, Key: q.Key}
	}
	q.WireKey = c.wireKey(q.Key)
	q.State, q.Spent, q.Seen, q.Answers = Open, false, false, nil
	q.AskedAt = d.now
	q.Expires = d.now.Add(q.Within)
	if q.Expires.After(c.Deadline) {
		q.Expires = c.Deadline
	}
	c.Questions = append(c.Questions, q)
	d.note("asked", func(a *Entry) { a.Key, a.Digest = q.WireKey, q.Digest })
	return nil
}

func (e Voided) apply(d *decision) error {
	q := d.c.Question(e.WireKey)
	if q == nil || q.State == Void || q.State == Lapsed || q.Spent {
		return &Refusal{Reason: ReasonNotOpen, Key: e.WireKey}
	}
	answered := len(q.Answers) > 0
	q.State = Void
	if answered && d.c.voids(q.Key) >= maxVoids {
		return &Refusal{Reason: ReasonUnstable, Key: q.Key}
	}
	d.note("voided", func(a *Entry) {
		a.Key, a.Digest = q.WireKey, q.Digest
		if answered {
			a.Note = "an answer had been given"
		}
	})
	return nil
}

// apply records an answer. What does not count, be it late, from somebody who
// may not answer, or to a question that is not open, changes nothing and is on
// record.
func (e Responded) apply(d *decision) error {
	c := d.c
	q := c.Question(e.WireKey)
	if q == nil {
		return &Refusal{Reason: ReasonUnknownKey, Key: e.WireKey}
	}
	if q.State != Open {
		return &Refusal{Reason: ReasonNotOpen, Key: e.WireKey}
	}
	if !c.CancelledAt.IsZero() {
		return &Refusal{Reason: ReasonCancelled, Key: e.WireKey}
	}
	if !d.now.Before(q.Expires) || !d.now.Before(c.Deadline) {
		return &Refusal{Reason: ReasonDeadline, Key: e.WireKey}
	}
	if !q.Who.Allows(d.by, c.Owner) {
		return &Refusal{Reason: ReasonNotAllowed, Key: e.WireKey}
	}
	if q.answeredBy(d.by.Principal) {
		return &Refusal{Reason: ReasonSamePerson, Key: e.WireKey}
	}
	a := Answer{By: d.by, At: d.now, Action: e.Action}
	switch e.Action {
	case Accept:
		a.Value = e.Value
	case Decline:
		q.State = Declined
	case Dismiss:
		q.State = Dismissed
	default:
		return &Refusal{Reason: ReasonWrongState, Key: e.WireKey}
	}
	q.Answers = append(q.Answers, a)
	if q.State == Open && q.Accepts() >= q.Who.Needed() {
		q.State = Answered
	}
	d.note("answered", func(a *Entry) {
		a.Key, a.Digest, a.Note = q.WireKey, q.Digest, string(e.Action)
	})
	d.wake()
	return nil
}
