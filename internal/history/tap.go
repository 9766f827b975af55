package history

import (
	"context"
	"sync"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// A Write is something that was asked of a store.
type Write struct {
	At     time.Time // by the store's clock
	Change record.Change
	Err    error // of the store; unless nil or a refusal, it is not known what became of the change

	// Lease, if not nil, does instead of the change: a take-over or a renewal.
	Lease func(ctx context.Context, s store.Store) error
}

// A Tap passes everything to a store and remembers what was written.
type Tap struct {
	store.Store

	mu     sync.Mutex
	writes []Write
}

// Onto passes everything to another store from now on: what is durable of the
// one before is in that.
func (t *Tap) Onto(s store.Store) { t.Store = s }

// Writes are all so far, in the order in which they came to their end.
func (t *Tap) Writes() []Write {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Write(nil), t.writes...)
}

func (t *Tap) note(w Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, w)
}

// Commit implements [store.Store].
func (t *Tap) Commit(ctx context.Context, c record.Change) error {
	now, err := t.Now(ctx)
	if err != nil {
		return err
	}
	err = t.Store.Commit(ctx, c)
	t.note(Write{At: now, Change: c, Err: err})
	return err
}

// Renew implements [store.Store].
func (t *Tap) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	now, err := t.Now(ctx)
	if err != nil {
		return nil, err
	}
	t.note(Write{At: now, Lease: func(ctx context.Context, s store.Store) error {
		_, err := s.Renew(ctx, holder, leases, until)
		return err
	}})
	return t.Store.Renew(ctx, holder, leases, until)
}

// Takeover implements [store.Store].
func (t *Tap) Takeover(ctx context.Context, node, boot string) error {
	now, err := t.Now(ctx)
	if err != nil {
		return err
	}
	t.note(Write{At: now, Lease: func(ctx context.Context, s store.Store) error { return s.Takeover(ctx, node, boot) }})
	return t.Store.Takeover(ctx, node, boot)
}

// Purge implements [store.Store].
func (t *Tap) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	n, err := t.Store.Purge(ctx, now, limit)
	if n > 0 {
		t.note(Write{At: now, Lease: func(ctx context.Context, s store.Store) error {
			_, err := s.Purge(ctx, now, limit)
			return err
		}})
	}
	return n, err
}
