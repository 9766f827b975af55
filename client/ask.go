package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ask gets the answers of a round, and returns when all are there.
func (d *drive) ask() error {
	e := d.entry()
	switch {
	case e.CancelAsked:
		return d.end(outcome{State: Cancelled, Kind: "cancelled", Reason: "it was given up before its questions were answered; the server was not told, and lets it expire"})
	case d.rounds >= d.c.opts.Limits.Rounds:
		return d.tooMany(fmt.Sprintf("Limits.Rounds %d is used up", d.c.opts.Limits.Rounds))
	case d.work >= d.c.opts.Limits.Work:
		return d.tooMany(errWork.Error())
	}
	if len(e.Questions) == 0 { // the server only wants to be asked again
		if err := d.pause(pauseAfter(e.StateOnly-1, 0)); err != nil || d.entry().CancelAsked {
			return err
		}
		d.rounds++
		return d.update(d.ctx, func(e *entry) error { e.Stage = stageReady; return nil })
	}
	defer d.withdraw()
	for {
		if err := d.putQuestions(); err != nil {
			return err
		}
		switch e := d.entry(); {
		case e.Stage != stageAsking:
			d.rounds++
			return nil
		case e.CancelAsked:
			return nil
		case !time.Now().Before(e.Deadline):
			return nil // step ends it
		}
		if err := d.await(nil, time.Until(d.entry().Deadline)); err != nil {
			return err
		}
	}
}

// await waits until something has changed: the entry, on disk or by an
// Answerer, or what signal tells of; at most so long.
func (d *drive) await(signal <-chan struct{}, most time.Duration) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-t.C:
	case <-signal:
	case <-d.changed:
	case <-d.poke:
		return d.refresh()
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	return nil
}

// putQuestions sees to it that somebody is at each open question: a rule, whose
// answer is on record when it returns, or the Answerer, in a goroutine. That a
// question is put to somebody is on disk before it is. An error if nobody is
// at any of them.
func (d *drive) putQuestions() error {
	d.withdrawAnswered()
	var ask []Question
	unseen := false
	e, idle := d.unattended()
	for _, q := range idle {
		shown := e.asked(q)
		shown.Again, shown.Problem = q.Shown && !d.first[shown.ID], q.Refused
		unseen = unseen || !q.Shown
		ruling, n := d.c.opts.Policy.rule(&shown)
		switch {
		case ruling == Ask && d.c.answers(q.Kind):
			ask = append(ask, shown)
		case ruling != Ask:
			if err := d.rule(shown, ruling, n); err != nil {
				return err
			}
		}
	}
	if len(ask) > 0 && unseen {
		if err := d.update(d.ctx, func(e *entry) error {
			for _, shown := range ask {
				if q := e.questionByID(shown.ID); q != nil {
					q.Shown = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
		e = d.entry()
	} else if len(ask) > 0 {
		if err := d.current(); err != nil {
			return err
		}
		e = d.entry()
	}
	for _, q := range ask {
		delete(d.first, q.ID)
		if e.isOpen(q.ID) { // not answered meanwhile
			d.consult(q)
		}
	}
	return d.nobody()
}

// come changes the entry by what brings questions. Those that the Answerer is
// to be asked are on disk as shown with it.
func (d *drive) come(ctx context.Context, f func(*entry)) error {
	var first []string
	answers := map[Kind]bool{}
	for _, k := range kinds {
		answers[k] = d.c.answers(k)
	}
	err := d.update(ctx, func(e *entry) error {
		f(e)
		first = nil
		for i := range e.Questions {
			q := &e.Questions[i]
			if !q.open() || q.Live || q.Shown || e.CancelAsked || !answers[q.Kind] {
				continue
			}
			shown := e.asked(q)
			if ruling, _ := d.c.opts.Policy.rule(&shown); ruling == Ask {
				q.Shown, first = true, append(first, shown.ID)
			}
		}
		return nil
	})
	if err == nil {
		for _, id := range first {
			d.first[id] = true
		}
	}
	return err
}

// given takes an answer in, if the question is still open. With the last one
// of a round the retry is about to leave, and one commit says both.
func (d *drive) given(e *entry, id string, a Answer, by string) error {
	err := e.answerIfOpen(id, a, by)
	if err != nil || e.Stage != stageReady || e.CancelAsked || d.ctx.Err() != nil {
		return err
	}
	if l := d.c.links.ready(); l != nil && l.modern {
		e.leaves(l)
	}
	return nil
}

// rule answers a question as the policy says, unless somebody else has.
func (d *drive) rule(q Question, ruling Ruling, n int) error {
	a, by := Decline(), "the policy"
	if n >= 0 {
		by = fmt.Sprintf("rule %d", n)
	}
	switch {
	case ruling == Reply:
		a = *d.c.opts.Policy[n].Answer
	case q.Kind == Sampling || q.Kind == Roots:
		return &Error{Kind: ErrNeedsInput, Reason: fmt.Sprintf("%s refuses %s (%q), which cannot be declined", by, q.Kind, cut(q.Key)), Questions: d.entry().status().Open}
	}
	d.c.log.Info("a question is answered without asking anybody", "call", d.id, "question", cut(q.Key), "by", by)
	first := false
	err := d.update(d.ctx, func(e *entry) error {
		first = e.isOpen(q.ID)
		return d.given(e, q.ID, a, by)
	})
	if bad := new(unfit); errors.As(err, &bad) {
		return &Error{Kind: ErrNeedsInput, Reason: by + " answers with what does not fit", Questions: d.entry().status().Open, Err: err}
	}
	if err == nil && first && d.c.opts.Ruled != nil {
		d.c.opts.Ruled(q, a, n)
	}
	return err
}

// nobody is the error of a call whose open questions nobody is at.
func (d *drive) nobody() error {
	d.mu.Lock()
	e := d.k.e
	at, broken := len(d.asking), d.broken // an answer is in the entry before its goroutine leaves
	var why []error
	for _, err := range d.failed {
		if !errors.Is(err, ErrNoAnswer) {
			why = append(why, err)
		}
	}
	d.mu.Unlock()
	open := e.status().Open
	if broken != nil {
		return fmt.Errorf("an answer could not be kept: %w", broken)
	}
	if at > 0 || len(open) == 0 || e.CancelAsked {
		return nil
	}
	return &Error{Kind: ErrNeedsInput, Reason: "it is asked, and " + errNobody.Error(), State: e.State, Questions: open, Err: errors.Join(why...)}
}

func (c *Client) answers(k Kind) bool {
	if c.opts.Answerer == nil {
		return false
	}
	for _, can := range c.opts.Answerer.Kinds() {
		if can == k {
			return true
		}
	}
	return false
}

// unattended are the open questions that nobody is at, and that the Answerer
// has not failed to answer.
func (d *drive) unattended() (*entry, []*question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.k.e
	var idle []*question
	for i := range e.Questions {
		q := &e.Questions[i]
		id := e.questionID(q)
		if _, at := d.asking[id]; q.open() && !q.Live && !at && d.failed[id] == nil {
			idle = append(idle, q)
		}
	}
	return e, idle
}

// consult puts a question to the Answerer, in a goroutine that ends when the
// question does.
func (d *drive) consult(q Question) {
	ctx, cancel := context.WithCancel(d.ctx)
	d.mu.Lock()
	d.asking[q.ID] = cancel
	d.mu.Unlock()
	d.c.wg.Go(func() {
		defer cancel()
		err := d.consultOnce(ctx, q)
		if bad := new(unfit); errors.As(err, &bad) && ctx.Err() == nil {
			q.Problem = bad.Error()
			err = d.consultOnce(ctx, q)
		}
		var lost *unkept
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &lost):
			d.mu.Lock()
			d.broken, d.failed[q.ID] = lost.err, lost.err
			d.mu.Unlock()
		default:
			d.c.log.Warn("a question got no answer", "call", d.id, "question", cut(q.Key), "err", err)
			d.mu.Lock()
			d.failed[q.ID] = err
			d.mu.Unlock()
		}
		d.leave(q.ID)
	})
}

// leave: nobody is at the question any more.
func (d *drive) leave(id string) {
	d.mu.Lock()
	delete(d.asking, id)
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *drive) consultOnce(ctx context.Context, q Question) error {
	a, err := d.c.askAnswerer(ctx, q)
	if err != nil {
		return err
	}
	err = d.update(context.WithoutCancel(ctx), func(e *entry) error { return d.given(e, q.ID, a, "person") })
	if bad := new(unfit); err != nil && !errors.As(err, &bad) {
		return &unkept{err}
	}
	return err
}

// unkept is why an answer is not on disk.
type unkept struct{ err error }

func (u *unkept) Error() string { return "the answer could not be kept: " + u.err.Error() }

// askAnswerer makes an error of a panic.
func (c *Client) askAnswerer(ctx context.Context, q Question) (a Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("the Answerer panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the Answerer panicked")
		}
	}()
	return c.opts.Answerer.Answer(ctx, q)
}

// withdrawAnswered takes questions away that somebody else has answered, or
// that are no longer asked.
func (d *drive) withdrawAnswered() {
	e := d.entry()
	d.mu.Lock()
	defer d.mu.Unlock()
	open := map[string]bool{}
	for i := range e.Questions {
		if q := &e.Questions[i]; q.open() {
			open[e.questionID(q)] = true
		}
	}
	for id, cancel := range d.asking {
		if !open[id] {
			cancel()
		}
	}
}

// withdraw takes all questions away. It does not wait for an Answerer that is
// slow to notice; Close does.
func (d *drive) withdraw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cancel := range d.asking {
		cancel()
	}
}
