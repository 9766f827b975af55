package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// maxAttempts bounds how often one run tries a repeatable effect before it is
// held: a far side that is down for long is a matter for a person.
const maxAttempts = 5

// ErrPending: a question of the run waits for an answer; no effect starts.
var ErrPending = errors.New("a question of this run is pending")

// ErrCarried: the call is carried by its client, and so can have no effect.
var ErrCarried = errors.New("a read-only tool cannot have effects: drop ReadOnlyHint")

// An Undone error says that the effect certainly did not happen.
type Undone struct{ Err error }

func (u *Undone) Error() string { return u.Err.Error() }
func (u *Undone) Unwrap() error { return u.Err }

// An Unkept error says that the effect happened, and that what came of it cannot
// be put on record: it is not tried again, and a person says what it was.
type Unkept struct{ Err error }

func (u *Unkept) Error() string { return u.Err.Error() }
func (u *Unkept) Unwrap() error { return u.Err }

// An Unfit error says that an effect is done, and that the handler cannot use the
// result on record: it is not done again.
type Unfit struct {
	Call string // that recorded it
	Err  error
}

func (u *Unfit) Error() string { return "the recorded result does not fit: " + u.Err.Error() }
func (u *Unfit) Unwrap() error { return u.Err }

// ErrNested: an effect is asked for by the function that does it.
var ErrNested = errors.New("the effect is asked for within itself")

// An Effect is what a handler wants done once.
type Effect struct {
	Name, Subject string
	Repeatable    bool
	// May is asked before the start and again in the write that records it: an
	// error is why it may not start. It must not use the run.
	May func() error
	Do  func(ctx context.Context, key string) ([]byte, error)
	// Fits reports whether the handler can use a result that was recorded before,
	// or why not. Nil: any.
	Fits func(result []byte) error
}

// Once does the effect, or returns the result that it had. Refusals of the law
// come as [*record.Refusal]; after [record.ReasonHeld] a person decides.
//
// Order: the start is committed, then Do, then its end is committed, and only
// then does the handler go on.
func (r *Run) Once(ctx context.Context, f Effect) ([]byte, error) {
	if r.Carried() {
		return nil, ErrCarried
	}
	ctx, leave, err := r.alone(ctx, f.Name+"\x00"+f.Subject)
	if err != nil {
		return nil, err
	}
	defer leave()
	for attempt := 1; ; attempt++ {
		result, done, err := r.begin(ctx, f)
		if done && err == nil {
			r.tell(f, false)
		}
		if done || err != nil {
			return result, err
		}
		result, err = r.do(ctx, f)
		if f.Repeatable && unknown(err) {
			if attempt < maxAttempts && r.pauseBefore(attempt) {
				continue
			}
			if r.Draining() {
				return nil, ErrDraining // still started: the next process tries it again
			}
		}
		return r.end(f, result, err)
	}
}

// tell notes that the handler is told that the effect is held, or what came of it
// after all.
func (r *Run) tell(f Effect, held bool) {
	name := f.Name + "\x00" + f.Subject
	r.mu.Lock()
	defer r.mu.Unlock()
	if held {
		r.held[name] = true
	} else {
		delete(r.held, name)
	}
}

// unknown reports whether nobody knows from err whether the effect happened.
func unknown(err error) bool {
	var undone *Undone
	var unkept *Unkept
	return err != nil && !errors.As(err, &undone) && !errors.As(err, &unkept)
}

// within is what the context of an effect knows: which ones it is done in.
type within struct {
	run   *Run
	name  string
	outer *within
}

type withinKey struct{}

// alone lets one goroutine of the handler at a time at an effect.
func (r *Run) alone(ctx context.Context, name string) (in context.Context, leave func(), err error) {
	outer, _ := ctx.Value(withinKey{}).(*within)
	for at := outer; at != nil; at = at.outer {
		if at.run == r && at.name == name {
			return nil, nil, ErrNested
		}
	}
	r.mu.Lock()
	place := r.effects[name]
	if place == nil {
		place = make(chan struct{}, 1)
		r.effects[name] = place
	}
	r.mu.Unlock()
	select {
	case place <- struct{}{}:
		return context.WithValue(ctx, withinKey{}, &within{r, name, outer}), func() { <-place }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-r.ctx.Done():
		return nil, nil, context.Cause(r.ctx)
	}
}

// begin commits the start of the effect. done: it needs no start, since it
// has happened before.
func (r *Run) begin(ctx context.Context, f Effect) (result []byte, done bool, err error) {
	for {
		if r.Pending() {
			return nil, false, ErrPending
		}
		if err := context.Cause(r.ctx); err != nil {
			return nil, false, err
		}
		if have := r.Call().Effect(f.Name, f.Subject); have != nil && have.State == record.EffectDone {
			result, err := r.had(ctx, f, have)
			return result, true, err
		}
		if err := f.may(); err != nil {
			return nil, false, err
		}
		if err := r.e.MayAct(ctx, r, f.Name); err != nil {
			return nil, false, err
		}
		mark, err := r.mark(ctx, f)
		if err != nil {
			return nil, false, err
		}
		if mark != nil && mark.Call != r.id && mark.State == record.EffectDone && mark.Owner == r.Call().Owner {
			if err := f.fits(mark.Result); err != nil { // before it is this call's too
				return nil, false, &Unfit{Call: mark.Call, Err: err}
			}
		}
		err = r.commitStart(ctx, f, mark)
		if errors.Is(err, store.ErrConflict) {
			continue // somebody else claimed the subject meanwhile
		}
		if err != nil {
			return nil, false, err
		}
		if have := r.Call().Effect(f.Name, f.Subject); have.State == record.EffectDone {
			return have.Result, true, nil // by another call of the same owner
		}
		return nil, false, nil
	}
}

// had is the result of an effect that is done. One that a person gave, and that
// the handler cannot use, is theirs to give anew: the effect is held again.
func (r *Run) had(ctx context.Context, f Effect, have *record.Effect) ([]byte, error) {
	unfit := f.fits(have.Result)
	switch {
	case unfit == nil:
		return have.Result, nil
	case !have.Resolved:
		return nil, &Unfit{Call: r.id, Err: unfit}
	}
	err := r.commit(ctx, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.EffectUnfit{Name: f.Name, Subject: f.Subject, Text: unfit.Error()}}
	})
	if err == nil {
		r.tell(f, true)
		err = &record.Refusal{Reason: record.ReasonHeld, Key: f.Name}
	}
	return nil, err
}

func (f Effect) fits(result []byte) error {
	if f.Fits == nil {
		return nil
	}
	return f.Fits(result)
}

func (f Effect) may() error {
	if f.May == nil {
		return nil
	}
	return f.May()
}

// commitStart is the one conditional write by which an effect starts. From
// then on the client's leaving ends nothing; while it is under way it waits for
// what comes of it.
func (r *Run) commitStart(ctx context.Context, f Effect, mark *record.Mark) error {
	r.mu.Lock()
	if r.call.Effect(f.Name, f.Subject) == nil { // a further attempt takes no more room
		if err := r.full(); err != nil {
			r.mu.Unlock()
			return err
		}
	}
	if r.left {
		r.mu.Unlock()
		return ErrLeft
	}
	r.starts++
	r.mu.Unlock()
	var may error
	err := r.commit(ctx, func(c *record.Call, now time.Time) []record.Event { // with mu
		// What the handler has asked meanwhile counts too.
		if may = f.may(); may == nil && len(r.pending) > 0 {
			may = ErrPending
		}
		if may != nil {
			return nil
		}
		relied := append([]record.Reliance(nil), r.relied...)
		var events []record.Event
		if r.AskFirst {
			events = r.announcing(c)
		}
		return append(events, record.EffectBegan{
			Name: f.Name, Subject: f.Subject, Repeatable: f.Repeatable, Mark: mark, Relied: relied, Deployment: r.e.Deployment,
		})
	})
	if err == nil {
		err = may
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts--
	r.begun = r.begun || err == nil
	r.leave() // the client may have left meanwhile
	return err
}

// mark reads who has the effect's subject, and waits while another call's run
// is at it. A mark that is started though no run is at its call comes back as it
// is, and the law refuses: that call waits for a person, which may take days, and
// a run that waited for it would have a place, or a client, for as long.
func (r *Run) mark(ctx context.Context, f Effect) (*record.Mark, error) {
	if f.Subject == "" {
		return nil, nil
	}
	id := record.SubjectMark(r.Call().Owner.Tenant, f.Name, f.Subject)
	idle := "" // the call that no run is at
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		m, err := r.e.Store.Mark(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if m.Call == r.id || m.State != record.EffectStarted || m.Call == idle {
			return m, nil
		}
		attended, err := r.e.attend(ctx, m.Call)
		if err != nil {
			return nil, err
		}
		if !attended {
			idle = m.Call // unless the mark has changed before we looked at the call
			continue
		}
		if err := r.waitFor(ctx, m.Call, wait); err != nil {
			return nil, err
		}
	}
}

// waitFor waits for a change of another call, or a while: it may be another
// process that runs it.
func (r *Run) waitFor(ctx context.Context, id string, wait time.Duration) error {
	watch := r.e.Watch(id)
	defer watch.Stop()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-watch.C:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	return nil
}

// do calls the far side. Its context carries the handler's values and ends
// with the lease alone.
func (r *Run) do(ctx context.Context, f Effect) (result []byte, err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(r.lease, func() { cancel(context.Cause(r.lease)) })()
	defer func() {
		if p := recover(); p != nil {
			r.e.Log.Error("an effect panicked; its end is unknown", "call", r.id, "effect", f.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result, err = nil, errors.New("the effect panicked")
		}
	}()
	return f.Do(ctx, r.Call().Effect(f.Name, f.Subject).Key)
}

func (r *Run) pauseBefore(attempt int) bool {
	t := time.NewTimer(time.Duration(1<<attempt) * 50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// end commits how the effect ended, whatever has become of the handler's
// context. What cannot be committed because the lease is lost is kept as
// evidence for whoever resolves the hold.
func (r *Run) end(f Effect, result []byte, err error) ([]byte, error) {
	e := record.EffectEnded{Name: f.Name, Subject: f.Subject, State: record.EffectDone, Result: result}
	var undone *Undone
	var unkept *Unkept
	switch {
	case errors.As(err, &undone):
		e.State, e.Result = record.EffectUndone, nil
	case errors.As(err, &unkept):
		e.State, e.Result, e.Text = record.EffectHeld, nil, "it happened, but its result cannot be put on record: "+unkept.Error()
	case err != nil:
		e.State, e.Result, e.Text = record.EffectHeld, nil, "the far side returned an error; whether it happened is unknown"
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.e.Lease)
	defer cancel()
	if cerr := r.commitEnd(ctx, e); cerr != nil {
		r.observe(ctx, f, e)
		return nil, errors.Join(ErrLost, cerr)
	}
	r.tell(f, e.State == record.EffectHeld)
	switch {
	case undone != nil:
		return nil, err
	case err != nil:
		return nil, errors.Join(&record.Refusal{Reason: record.ReasonHeld, Key: f.Name}, err)
	}
	return result, nil
}

// commitEnd tries as long as the lease may last: an effect whose end is not
// recorded is one that a person has to look after.
func (r *Run) commitEnd(ctx context.Context, e record.EffectEnded) error {
	for try, wait := 0, 20*time.Millisecond; ; try, wait = try+1, min(2*wait, time.Second) {
		err := r.commit(ctx, func(*record.Call, time.Time) []record.Event { return []record.Event{e} })
		var refused *record.Refusal
		if errors.As(err, &refused) && try > 0 && r.settledAs(e) {
			return nil // by the try before, of which the store said that it failed
		}
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || r.lease.Err() != nil {
			return err
		}
		r.e.sleep(ctx, wait, r.lease.Done())
	}
}

// settledAs reports whether this run's effect has ended like that already.
func (r *Run) settledAs(e record.EffectEnded) bool {
	f := r.Call().Effect(e.Name, e.Subject)
	return f != nil && f.Epoch == r.epoch && f.State == e.State && bytes.Equal(f.Result, e.Result)
}

func (r *Run) observe(ctx context.Context, f Effect, e record.EffectEnded) {
	text := "a run that had lost its lease reported: " + string(e.State)
	_, err := r.e.Change(ctx, r.id, r.by, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Observed{Name: f.Name, Subject: f.Subject, Epoch: r.epoch, Result: e.Result, Text: text}}
	})
	if err != nil {
		r.e.Log.Error("what an effect returned after its lease was lost could not be kept", "call", r.id, "effect", f.Name, "state", e.State, "err", plain(err))
	}
}

// inEffect reports whether the run waits for the far side.
func (r *Run) inEffect() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease.Err() != nil {
		return false
	}
	for _, f := range r.call.Effects {
		if f.State == record.EffectStarted && f.Epoch == r.epoch {
			return true
		}
	}
	return false
}
