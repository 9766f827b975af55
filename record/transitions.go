package record

func (e Opened) apply(d *decision) error {
	c := e.Call.clone()
	c.Version, c.Epoch, c.Round = 0, 0, 0
	c.CreatedAt, c.UpdatedAt = d.now, d.now
	c.State = Ready
	c.Background = c.Task || e.Lease.Holder == ""
	c.Rounds = []Round{{TakenAt: d.now}}
	if e.Lease.Holder != "" {
		c.State, c.Lease, c.Epoch, c.Runs = Running, e.Lease, 1, 1
	}
	if c.Background {
		c.Rounds[0].Closed = true
		c.Round = 1
	}
	d.c = c
	d.change.ID, d.change.MaxLive = c.ID, e.MaxLive
	if e.Key != (MarkID{}) {
		c.Key = e.Key.Name
		d.setMark(Mark{MarkID: e.Key, Owner: c.Owner, Digest: c.Action.ArgsDigest})
	}
	d.note("opened", nil)
	return nil
}

func (e Taken) apply(d *decision) error {
	c := d.c
	if e.Retry != nil {
		return e.retry(d)
	}
	if c.State != Ready {
		return &Refusal{Reason: ReasonWrongState}
	}
	return d.take(e.Lease)
}

// retry claims the open round for the client's retry. A round is consumed
// once: whoever comes later with it is told what became of it.
func (e Taken) retry(d *decision) error {
	c := d.c
	switch {
	case e.Retry.N > c.Round:
		return &Refusal{Reason: ReasonRoundAhead}
	case e.Retry.N < c.Round || c.Background:
		return &Refusal{Reason: ReasonRoundUsed}
	case c.State == Running:
		return &Refusal{Reason: ReasonInFlight}
	case c.State != Waiting:
		return &Refusal{Reason: ReasonWrongState}
	}
	if n := len(c.Rounds); n > 0 && !c.Rounds[n-1].Closed {
		// Its run died or was left by its client. The answers stand; only the
		// same may go on with them.
		if c.Rounds[n-1].Answers != e.Retry.Answers {
			return &Refusal{Reason: ReasonRoundUsed}
		}
	} else {
		c.Rounds = append(c.Rounds, Round{N: e.Retry.N, Answers: e.Retry.Answers, TakenAt: d.now})
	}
	return d.take(e.Lease)
}

// take begins a run.
func (d *decision) take(l Lease) error {
	c := d.c
	if !d.now.Before(c.Deadline) {
		return &Refusal{Reason: ReasonDeadline}
	}
	if c.MaxRuns > 0 && c.Runs >= c.MaxRuns {
		d.end(Failed, nil, &Error{Code: codeInternal, Message: "the call was run too often", Outcome: "max_runs"}, ReasonMaxRuns)
		return nil
	}
	c.Epoch++
	c.Runs++
	c.State, c.Lease = Running, l
	for i := range c.Questions {
		c.Questions[i].Seen = c.Questions[i].State.settled()
	}
	d.note("taken", nil)
	return nil
}

// codeInternal is JSON-RPC's internal error.
const codeInternal = -32603

func (e Stopped) apply(d *decision) error {
	c := d.c
	if c.State != Running {
		return &Refusal{Reason: ReasonWrongState}
	}
	if e.Why == WhyDied {
		if c.Lease.Live(d.now) {
			return &Refusal{Reason: ReasonInFlight}
		}
		c.Kills++
	}
	c.Ran += e.Ran
	d.rest(string(e.Why))
	if c.Kills >= maxKills && c.State == Ready {
		d.end(Failed, nil, &Error{Code: codeInternal, Message: "the call took down its worker too often", Outcome: "crash_loop"}, ReasonCrashLoop)
	}
	return nil
}

// rest puts down a call whose run is over without an end. Effects that it left
// started are held, or can be tried again. An inline call in which no effect
// has begun waits for its client's retry; any other is a worker's from now on.
func (d *decision) rest(why string) {
	c := d.c
	c.Lease = Lease{}
	d.note("stopped", func(e *Entry) { e.Note = why })
	for i := range c.Effects {
		f := &c.Effects[i]
		// A repeatable one is settled by trying again, which a cancel forbids.
		if f.State == EffectStarted && (!f.Repeatable || !c.CancelledAt.IsZero()) {
			d.hold(f, "its run stopped ("+why+") before it told how it ended")
		}
	}
	switch {
	case c.HeldEffect() != nil:
		d.toHeld()
	case !c.CancelledAt.IsZero():
		d.end(Cancelled, nil, nil, ReasonCancelled)
	case c.Background:
		c.State = Ready
	case c.EffectBegun():
		c.Background = true
		c.State = Ready
	default:
		c.State = Waiting
	}
}

// started reports whether an effect's end is still to come.
func (d *decision) started() bool {
	for _, f := range d.c.Effects {
		if f.State == EffectStarted {
			return true
		}
	}
	return false
}

// toHeld makes the call wait for a person's word on an effect. Whoever waits
// for its response is told so; a worker goes on with it afterwards.
func (d *decision) toHeld() {
	d.c.State, d.c.Background = Held, true
	d.c.Lease = Lease{}
	d.closeRound(nil)
}

func (e Paused) apply(d *decision) error {
	c := d.c
	c.Ran += e.Ran
	c.Lease = Lease{}
	c.Background = c.Background || e.Background || e.Task
	c.Task = c.Task || e.Task
	var asked []string
	if !c.Background {
		for _, q := range c.Open() {
			asked = append(asked, q.WireKey)
		}
	}
	d.closeRound(asked)
	d.note("round closed", nil)
	if !c.CancelledAt.IsZero() {
		d.end(Cancelled, nil, nil, ReasonCancelled)
		return nil
	}
	c.State = Waiting
	d.wake()
	return nil
}

// wake makes a background call ready once its handler can get further: no
// question is open, or one was settled in a way that no further answer heals.
func (d *decision) wake() {
	c := d.c
	if c.State != Waiting || !c.Background {
		return
	}
	if !c.HasOpen() || d.news() {
		c.State = Ready
	}
}

// news reports whether a question was settled by a no since the last run took
// the call. Runs see it once: the handler's second look at the same no would
// make the call run for ever while another question stays open.
func (d *decision) news() bool {
	for _, q := range d.c.Questions {
		if q.State.no() && !q.Seen {
			return true
		}
	}
	return false
}

func (e Announced) apply(d *decision) error {
	c := d.c
	if c.Task {
		return &Refusal{Reason: ReasonWrongState}
	}
	c.Task, c.Background = true, true
	d.closeRound(nil)
	d.note("announced", nil)
	return nil
}

func (e Reported) apply(d *decision) error {
	c := d.c
	p := e.Progress
	if c.Progress != nil {
		if p.Done < c.Progress.Done {
			p.Done = c.Progress.Done
		}
		if p.Total < c.Progress.Total {
			p.Total = c.Progress.Total
		}
		if p == *c.Progress {
			return nil
		}
	}
	c.Progress = &p
	d.note("reported", nil)
	return nil
}

func (e Finished) apply(d *decision) error {
	c := d.c
	c.Ran += e.Ran
	for i := range c.Effects {
		f := &c.Effects[i]
		if f.State == EffectStarted {
			d.hold(f, "the handler returned before the effect did")
		}
	}
	if c.HeldEffect() != nil {
		d.note("stopped", func(e *Entry) { e.Note = "held" })
		d.toHeld()
		return nil
	}
	if !c.CancelledAt.IsZero() && (e.Error != nil || e.ToolError) {
		d.end(Cancelled, nil, nil, ReasonCancelled)
		return nil
	}
	if e.Error != nil {
		d.end(Failed, nil, e.Error, "")
		return nil
	}
	d.end(Completed, e.Result, nil, "")
	return nil
}

func (e Abandoned) apply(d *decision) error {
	c := d.c
	if c.State == Running || c.HeldEffect() != nil || d.started() {
		return &Refusal{Reason: ReasonWrongState}
	}
	d.end(Failed, nil, &e.Error, e.Reason)
	return nil
}

// apply: a cancel ends what waits, at once. A run has its context cancelled by
// the engine and settles the effect it may have started; a held effect is
// still a person's to resolve, and then the call ends.
func (e CancelAsked) apply(d *decision) error {
	c := d.c
	if !c.CancelledAt.IsZero() {
		return nil
	}
	c.CancelledAt = d.now
	d.note("cancel asked", nil)
	if c.State == Running {
		return nil
	}
	for i := range c.Effects {
		if f := &c.Effects[i]; f.State == EffectStarted {
			d.hold(f, "the call was cancelled before it was known how it ended")
		}
	}
	if c.HeldEffect() != nil {
		d.toHeld()
		return nil
	}
	d.end(Cancelled, nil, nil, ReasonCancelled)
	return nil
}

func (e TimePassed) apply(d *decision) error {
	c := d.c
	if c.State == Ended {
		return d.purge()
	}
	if !d.now.Before(c.Deadline) {
		return d.deadline()
	}
	for i := range c.Questions {
		q := &c.Questions[i]
		if q.State == Open && !d.now.Before(q.Expires) {
			q.State = Lapsed
			d.note("question expired", func(e *Entry) { e.Key, e.Digest = q.WireKey, q.Digest })
		}
	}
	d.wake()
	return nil
}

// deadline expires the call, but never over a started effect: a live run with
// one goes on, and what nobody will settle any more is unknown.
func (d *decision) deadline() error {
	c := d.c
	if c.State == Running && c.settling() && c.Lease.Live(d.now) {
		return nil
	}
	for i := range c.Effects {
		if f := &c.Effects[i]; f.State == EffectStarted {
			d.hold(f, "the call's deadline passed before it was known how it ended")
		}
	}
	if c.HeldEffect() != nil {
		d.end(Failed, nil, &Error{Code: codeInternal, Message: "it is not known whether an effect happened", Outcome: "unknown"}, ReasonHeld)
		return nil
	}
	d.end(Expired, nil, &Error{Code: codeInternal, Message: "the call expired", Outcome: "expired"}, ReasonDeadline)
	return nil
}

// purge deletes an ended call. Its subjects' marks stay for ever, and a mark
// that says it is gone until no state of it can be genuine any more.
func (d *decision) purge() error {
	c := d.c
	at := c.PurgeAt()
	if at.IsZero() || d.now.Before(at) {
		return nil
	}
	if c.Key != "" {
		d.deleteMark(MarkID{Kind: MarkKey, Tenant: c.Owner.Tenant, Name: c.Key})
	}
	if c.Deadline.After(d.now) {
		d.setMark(Mark{MarkID: MarkID{Kind: MarkGone, Tenant: c.Owner.Tenant, Name: c.ID}, Until: c.Deadline})
	}
	d.note("purged", nil)
	d.gone = true
	return nil
}

func (e Refused) apply(d *decision) error {
	return &Refusal{Reason: e.Reason, Key: e.Note}
}
