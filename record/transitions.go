package record

import "math"

// apply takes over what a caller may say of a new call and nothing else: it
// has no answers and no effects yet.
func (e Opened) apply(d *decision) error {
	created := e.Call.CreatedAt // of its deadline's clock reading, if the opener made one
	if created.IsZero() {
		created = d.now
	}
	n := e.Call
	c := &Call{
		ID: n.ID, Owner: n.Owner, Roles: n.Roles, Scopes: n.Scopes, Action: n.Action, Args: n.Args, Kinds: n.Kinds, Task: n.Task, Trace: n.Trace,
		Deadline: n.Deadline, Retention: n.Retention, MaxRuns: n.MaxRuns,
		State: Ready, CreatedAt: created, Rounds: []Round{{TakenAt: d.now}},
	}
	c.Background = c.Task || e.Lease.Holder == ""
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

// take begins a run, or ends a call that may have no more of them: whoever
// comes for a call past its deadline must not come again and again.
func (d *decision) take(l Lease) error {
	c := d.c
	if !d.now.Before(c.Deadline) {
		return d.deadline()
	}
	if c.MaxRuns > 0 && c.Runs >= c.MaxRuns {
		if !d.strand(true, "the call may not be run again to tell how it ended") {
			d.end(Failed, nil, &Error{Code: codeInternal, Message: "the call was run too often (limit: MaxRuns)", Outcome: "max_runs"}, ReasonMaxRuns)
		}
		return nil
	}
	if !l.Live(d.now) {
		return &Refusal{Reason: ReasonLeaseLost}
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
	c.Lease = Lease{}
	d.note("stopped", func(a *Entry) { a.Note = string(e.Why) })
	// A repeatable effect is settled by trying again, if anybody may.
	last := !c.CancelledAt.IsZero() || c.Kills >= maxKills
	if !d.strand(last, "its run stopped ("+string(e.Why)+") before it told how it ended") {
		d.goOn()
	}
	return nil
}

// strand holds the effects whose end nobody is left to tell: those that cannot
// be repeated, and the others too if no run may follow. It reports whether the
// call now waits for a person's word on an effect. Whoever waits for its
// response is told so; a worker goes on with it afterwards.
func (d *decision) strand(last bool, why string) bool {
	c := d.c
	for i := range c.Effects {
		if f := &c.Effects[i]; f.State == EffectStarted && (last || !f.Repeatable) {
			d.hold(f, why)
		}
	}
	if c.HeldEffect() == nil {
		return false
	}
	c.State, c.Background = Held, true
	c.Lease = Lease{}
	d.closeRound(nil)
	return true
}

// goOn says what becomes of a call that no run has and no effect holds. An
// inline call in which no effect has begun waits for its client's retry; any
// other is a worker's from now on.
func (d *decision) goOn() {
	c := d.c
	switch {
	case !c.CancelledAt.IsZero():
		d.end(Cancelled, nil, nil, ReasonCancelled)
	case c.Kills >= maxKills:
		d.end(Failed, nil, &Error{Code: codeInternal, Message: "the call took down its worker too often", Outcome: "crash_loop"}, ReasonCrashLoop)
	case c.Background:
		c.State = Ready
	case c.EffectBegun():
		c.State, c.Background = Ready, true
		d.closeRound(nil)
	default:
		c.State = Waiting
	}
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
	cancelled := !c.CancelledAt.IsZero()
	switch {
	case d.strand(cancelled, "the handler paused before the effect had ended"):
	case cancelled:
		d.end(Cancelled, nil, nil, ReasonCancelled)
	default:
		c.State = Waiting
		d.wake()
	}
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
	p.Done, p.Total = finite(p.Done), finite(p.Total)
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

// finite keeps what no JSON can hold out of a call, which could then never be
// stored again.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// apply ends the call with what its handler came to. After a cancel, and past
// the deadline, an error is theirs: the handler was told to stop.
func (e Finished) apply(d *decision) error {
	c := d.c
	c.Ran += e.Ran
	failed := e.Error != nil || e.ToolError
	switch {
	case d.strand(true, "the handler returned before the effect did"):
		d.note("stopped", func(a *Entry) { a.Note = "held" })
	case e.Held:
		c.Background, c.Lease = true, Lease{}
		d.closeRound(nil)
		d.note("stopped", func(a *Entry) { a.Note = "held" })
		d.goOn()
	case failed && !c.CancelledAt.IsZero():
		d.end(Cancelled, nil, nil, ReasonCancelled)
	case failed && !d.now.Before(c.Deadline):
		d.expire()
	case e.Error != nil:
		d.end(Failed, nil, e.Error, "")
	default:
		d.end(Completed, e.Result, nil, "")
	}
	return nil
}

func (e Abandoned) apply(d *decision) error {
	if d.c.State == Running || d.c.State == Held {
		return &Refusal{Reason: ReasonWrongState}
	}
	if !d.strand(true, "the call may not be run again to tell how it ended") {
		d.end(Failed, nil, &e.Error, e.Reason)
	}
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
	if !d.strand(true, "the call was cancelled before it was known how it ended") {
		d.end(Cancelled, nil, nil, ReasonCancelled)
	}
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
	switch {
	case d.strand(true, "the call's deadline passed before it was known how it ended"):
		d.end(Failed, nil, &Error{Code: codeInternal, Message: "it is not known whether an effect happened", Outcome: "unknown"}, ReasonHeld)
	case !c.CancelledAt.IsZero():
		d.end(Cancelled, nil, nil, ReasonCancelled)
	default:
		d.expire()
	}
	return nil
}

func (d *decision) expire() {
	d.end(Expired, nil, &Error{Code: codeInternal, Message: "the call expired", Outcome: "expired"}, ReasonDeadline)
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
