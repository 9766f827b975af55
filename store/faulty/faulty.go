// Package faulty is a store that fails at chosen writes, for tests of what a
// crash there would mean.
package faulty

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// ErrKilled is the error of all that a process asks of its store after the
// write that killed it. It only serves to stop the goroutines of that process.
var ErrKilled = errors.New("faulty: the process was killed at this write")

// ErrLapsing is the error of Renew while leases are let lapse.
var ErrLapsing = errors.New("faulty: leases are not renewed")

// A Fault says what happens at a write. The zero value: nothing special.
type Fault struct {
	Err   error // what the caller gets; nil: no fault
	After bool  // the change is applied all the same
	Kills bool  // every later use of the store fails with ErrKilled
	// Delay, if not nil, is called first, while all other writes wait: it takes
	// its time, or moves the clock of the inner store as if it had. A change
	// whose ctx ends meanwhile is not applied.
	Delay func()
}

// The two ways to be killed at a write.
var (
	KillBefore = Fault{Err: ErrKilled, Kills: true}              // the change is lost
	KillAfter  = Fault{Err: ErrKilled, Kills: true, After: true} // it is applied, and the caller never hears
)

// A Store passes everything to another one, but for the faults of its plan. It
// stands for one process: make another over the same inner store for the
// process that comes after the crash.
type Store struct {
	inner store.Store
	plan  func(n int, c record.Change) Fault

	// turn is taken through each write, so that n is their order. It is a channel
	// so that to wait for it in a testing/synctest bubble does not stop the clock.
	turn   chan struct{}
	n      int
	once   sync.Once
	killed chan struct{} // closed by what kills

	lapsing atomic.Bool
}

var _ store.Store = (*Store)(nil)

// New asks plan at every Commit what is to happen; n counts them from 1.
// Renewals, take-overs and purges are not counted: how many there are depends
// on the time, and to die at one is to die before the next Commit.
func New(inner store.Store, plan func(n int, c record.Change) Fault) *Store {
	return &Store{inner: inner, plan: plan, turn: make(chan struct{}, 1), killed: make(chan struct{})}
}

// Kill kills the process now. A write that is under way may still be applied;
// nobody hears of it.
func (s *Store) Kill() { s.once.Do(func() { close(s.killed) }) }

// LetLeasesLapse says whether Renew fails from now on, as if the store could not
// be reached for it.
func (s *Store) LetLeasesLapse(lapse bool) { s.lapsing.Store(lapse) }

// Killed is closed once a write has killed the process.
func (s *Store) Killed() <-chan struct{} { return s.killed }

// Writes is how many Commits there were so far.
func (s *Store) Writes() int {
	defer s.take()()
	return s.n
}

// take waits for the writes before it.
func (s *Store) take() (leave func()) {
	s.turn <- struct{}{}
	return func() { <-s.turn }
}

func (s *Store) dead() error {
	select {
	case <-s.killed:
		return ErrKilled
	default:
		return nil
	}
}

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, c record.Change) error {
	defer s.take()()
	if err := s.dead(); err != nil {
		return err
	}
	s.n++
	f := s.plan(s.n, c)
	if f.Delay != nil {
		f.Delay()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	var err error
	if f.Err == nil || f.After {
		ctx := ctx
		if f.Err != nil {
			ctx = context.WithoutCancel(ctx)
		}
		err = s.inner.Commit(ctx, c)
	}
	if f.Kills {
		s.Kill()
	}
	if f.Err != nil {
		return f.Err // what the store says of it nobody hears
	}
	if dead := s.dead(); dead != nil {
		return dead
	}
	return err
}

// alive runs one use of the inner store. A process that is killed meanwhile
// hears nothing of it.
func alive[T any](s *Store, use func() (T, error)) (T, error) {
	var zero T
	if err := s.dead(); err != nil {
		return zero, err
	}
	v, err := use()
	if dead := s.dead(); dead != nil {
		return zero, dead
	}
	return v, err
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return alive(s, func() (time.Time, error) { return s.inner.Now(ctx) })
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context, id string) (*record.Call, error) {
	return alive(s, func() (*record.Call, error) { return s.inner.Load(ctx, id) })
}

// Mark implements [store.Store].
func (s *Store) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	return alive(s, func() (*record.Mark, error) { return s.inner.Mark(ctx, id) })
}

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	return alive(s, func() (store.Due, error) { return s.inner.Due(ctx, now, limit, except) })
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	if s.lapsing.Load() {
		return nil, ErrLapsing
	}
	defer s.take()()
	return alive(s, func() ([]store.LeaseRef, error) { return s.inner.Renew(ctx, holder, leases, until) })
}

// Takeover implements [store.Store].
func (s *Store) Takeover(ctx context.Context, node, boot string) error {
	defer s.take()()
	_, err := alive(s, func() (struct{}, error) { return struct{}{}, s.inner.Takeover(ctx, node, boot) })
	return err
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	return alive(s, func() ([]*record.Call, error) { return s.inner.List(ctx, f) })
}

// Audit implements [store.Store].
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	return alive(s, func() ([]store.AuditRow, error) { return s.inner.Audit(ctx, q) })
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	return alive(s, func() (store.Counts, error) { return s.inner.Counts(ctx) })
}

// Purge implements [store.Store].
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	return alive(s, func() (int, error) { return s.inner.Purge(ctx, now, limit) })
}

// Wake implements [store.Store].
func (s *Store) Wake() <-chan struct{} { return s.inner.Wake() }

// Shared implements [store.Store].
func (s *Store) Shared() bool { return s.inner.Shared() }

// Close leaves the inner store open: it is the next process's too.
func (s *Store) Close() error { return nil }
