package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// Commit implements [store.Store]. If ctx ends before the writer has taken the
// change, nothing is changed; after that Commit waits for the end.
func (s *Store) Commit(ctx context.Context, c record.Change) error {
	p, err := row.Pack(c)
	if err != nil {
		return err
	}
	return s.queue(ctx, &job{size: p.Size, tidy: true, do: func(w *writer) error { return w.apply(p) }})
}

// found is what call_find says of a call before a change.
type found struct {
	n, version, epoch, until int64
	state, holder            string // holder as row.Text
	live                     bool
	tenant                   string // as row.Text
}

// apply makes a change, all conditions first: what it refuses has changed
// nothing.
func (w *writer) apply(p *row.Change) error {
	old, err := w.find(p)
	if err != nil {
		return err
	}
	now := row.Nanos(w.s.now())
	if err := w.check(p, old, now); err != nil {
		return err
	}
	switch {
	case p.After != nil && old == nil:
		err = w.insert(p)
	case p.After != nil:
		err = w.update(p, old)
	case p.Remove:
		err = w.do("call_delete", old.n)
		w.count(old.tenant, old.live, false)
		w.changed[p.ID] = nil
	}
	if err != nil {
		return err
	}
	if err := w.marks(p); err != nil {
		return err
	}
	for i, e := range p.Audit {
		w.audits = append(w.audits, row.Text(e.Call), row.Text(e.Tenant), row.Nanos(e.At), p.Entries[i])
	}
	return nil
}

// find returns nil for a call that does not exist, and for one that must not:
// then insert finds out.
func (w *writer) find(p *row.Change) (*found, error) {
	if p.After != nil && p.Version == 0 {
		return nil, nil
	}
	s, ok := w.changed[p.ID]
	if !ok {
		s, _ = w.s.recent.find(p.ID)
	}
	if s != nil && s.row.n != 0 && !w.blind {
		return &s.row, nil
	}
	return w.look(p.ID)
}

// look asks the file for a call.
func (w *writer) look(id string) (*found, error) {
	if id == "" {
		return nil, nil
	}
	var f found
	var until sql.NullInt64
	err := w.stmt["call_find"].QueryRowContext(context.Background(), row.Text(id)).
		Scan(&f.n, &f.version, &f.epoch, &f.state, &f.holder, &until, &f.live, &f.tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	f.until = until.Int64
	return &f, err
}

func (w *writer) check(p *row.Change, old *found, now int64) error {
	if p.After != nil || p.Remove {
		version := int64(0)
		if old != nil {
			version = old.version
		}
		if version != p.Version || p.Remove && old == nil {
			return store.ErrConflict
		}
	}
	if p.Epoch != 0 && (old == nil || old.epoch != p.Epoch || old.until <= now) {
		return store.ErrConflict
	}
	for _, m := range p.Marks {
		var owner string
		err := w.stmt["mark_owner"].QueryRowContext(context.Background(), string(m.Kind), row.Text(m.Tenant), row.Text(m.Name), now).Scan(&owner)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case owner != row.Text(p.ID):
			return store.ErrConflict
		}
	}
	if p.MaxLive == 0 || p.After == nil || !p.Live {
		return nil
	}
	// Last, since a repeated idempotency key is a conflict also for a tenant
	// who has no room for another call.
	live, err := w.live(row.Text(p.After.Owner.Tenant))
	if err != nil {
		return err
	}
	if old == nil || !old.live {
		live++
	}
	if live <= p.MaxLive {
		return nil
	}
	if old == nil { // or find has left it to insert
		switch there, err := w.look(p.ID); {
		case err != nil:
			return err
		case there != nil:
			return store.ErrConflict
		}
	}
	return store.ErrQuota
}

func (w *writer) insert(p *row.Change) error {
	a := p.After
	f := found{
		version: p.Version + 1, epoch: a.Epoch, until: row.Nanos(a.Lease.Until), state: string(a.State),
		holder: row.Text(a.Lease.Holder), live: p.Live, tenant: row.Text(a.Owner.Tenant),
	}
	r, err := w.stmt["call_insert"].ExecContext(context.Background(),
		row.Text(a.ID), f.tenant, row.Nanos(a.CreatedAt), f.state, p.Open, p.Live, f.version, f.epoch,
		f.holder, orNull(f.until), orNull(p.Due), p.Doc)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, store.ErrConflict)
	}
	if f.n, err = r.LastInsertId(); err != nil { // calls.n
		return err
	}
	if err := w.do("payload_insert", f.n, bytesOrNull(a.Result), bytesOrNull(a.Args)); err != nil {
		return err
	}
	w.count(f.tenant, false, p.Live)
	w.keep(p, f)
	return nil
}

func (w *writer) update(p *row.Change, old *found) error {
	a := p.After
	f := found{
		n: old.n, version: p.Version + 1, epoch: a.Epoch, until: row.Nanos(a.Lease.Until), state: string(a.State),
		holder: row.Text(a.Lease.Holder), live: p.Live, tenant: old.tenant,
	}
	err := w.do("call_update", f.n, f.state, p.Open, p.Live, f.version, f.epoch,
		f.holder, orNull(f.until), orNull(p.Due), p.Doc, row.Nanos(a.CreatedAt))
	if err != nil {
		return err
	}
	if len(a.Result) > 0 || !old.live { // only what has ended can have one already
		if err := w.do("payload_result", f.n, bytesOrNull(a.Result)); err != nil {
			return err
		}
	}
	if running := string(record.Running); old.state == running && f.state == running && old.epoch == f.epoch {
		f.holder, f.until = old.holder, old.until // as call_update leaves them
	}
	w.count(old.tenant, old.live, p.Live)
	w.keep(p, f)
	return nil
}

// keep notes what the batch has made of a call.
func (w *writer) keep(p *row.Change, f found) {
	w.changed[p.ID] = nil
	holder, err := row.Untext(f.holder)
	if p.Size > maxRecentCall || err != nil {
		return
	}
	call := *p.Kept // which the change may need again
	row.Restore(&call, f.version, holder, f.until)
	w.changed[p.ID] = &stored{call: &call, row: f, size: p.Size}
}

func (w *writer) marks(p *row.Change) error {
	for i, m := range p.Marks {
		kind, tenant, name := string(m.Kind), row.Text(m.Tenant), row.Text(m.Name)
		var err error
		if m.Set == nil {
			err = w.do("mark_delete", kind, tenant, name)
		} else {
			err = w.do("mark_set", kind, tenant, name, row.Text(m.Set.Call), orNull(row.Nanos(m.Set.Until)),
				string(m.Set.State), p.Owners[i], row.Text(m.Set.Digest), bytesOrNull(m.Set.Result))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Renew implements [store.Store]. A lease that is over is not extended, nor is
// one shortened.
func (s *Store) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	var renewed []store.LeaseRef
	err := s.queue(ctx, &job{size: 64 * len(leases), tidy: true, do: func(w *writer) error {
		renewed = nil // it may be done again
		now := row.Nanos(s.now())
		for _, l := range leases {
			n, err := w.affected("lease_renew", row.Text(l.Call), l.Epoch, row.Text(holder), now, row.Nanos(until))
			if err != nil {
				return err
			}
			if n > 0 {
				renewed = append(renewed, l)
				w.changed[l.Call] = nil
			}
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return renewed, nil
}

// Takeover implements [store.Store].
func (s *Store) Takeover(ctx context.Context, node, boot string) error {
	return s.submit(ctx, 0, func(w *writer) error {
		return w.do("lease_takeover", row.Text(node+"/"+boot), row.Nanos(s.now()))
	})
}

// Purge implements [store.Store]. It is asked often and finds little, so it
// looks before it takes the writer's time.
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	var some bool
	err := s.read(ctx, func() error {
		return s.query["marks_past"].QueryRowContext(ctx, row.Nanos(now)).Scan(&some)
	})
	if err != nil || !some {
		return 0, err
	}
	var purged int64
	err = s.queue(ctx, &job{tidy: true, do: func(w *writer) (err error) {
		purged, err = w.affected("marks_purge", row.Nanos(now), limit)
		return err
	}})
	if err != nil {
		return 0, err
	}
	return int(purged), nil
}

// do runs a statement of sql/write.
func (w *writer) do(name string, args ...any) error {
	_, err := w.stmt[name].ExecContext(context.Background(), args...)
	return err
}

func (w *writer) affected(name string, args ...any) (int64, error) {
	r, err := w.stmt[name].ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// orNull is a time for a column; NULL is never.
func orNull(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }

// bytesOrNull stores nothing as NULL.
func bytesOrNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
