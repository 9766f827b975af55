package memory

import (
	"context"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, c record.Change) error {
	p, err := row.Pack(c)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	// All is checked before anything is changed.
	if err := s.check(p); err != nil {
		return err
	}
	s.apply(p)
	s.wake()
	return nil
}

func (s *Store) check(p *row.Change) error {
	k := s.calls[p.ID]
	if p.After != nil || p.Remove {
		version := int64(0)
		if k != nil {
			version = k.version
		}
		if version != p.Version || p.Remove && k == nil {
			return store.ErrConflict
		}
	}
	if p.Epoch != 0 && (k == nil || k.epoch != p.Epoch || k.until <= row.Nanos(s.now())) {
		return store.ErrConflict
	}
	for _, m := range p.Marks {
		if old, ok := s.mark(m.MarkID); ok && old.Call != p.ID {
			return store.ErrConflict
		}
	}
	if p.MaxLive != 0 && p.After != nil && p.Live {
		n := s.live[p.After.Owner.Tenant]
		if k == nil || !k.live {
			n++
		}
		if n > p.MaxLive {
			return store.ErrQuota
		}
	}
	return nil
}

func (s *Store) apply(p *row.Change) {
	k := s.calls[p.ID]
	switch {
	case p.After != nil:
		if k == nil {
			s.opened++
			k = &call{n: s.opened, tenant: p.After.Owner.Tenant, args: keep(p.After.Args)}
			s.calls[p.ID] = k
		}
		s.count(k, p.Live)
		k.become(p)
	case p.Remove:
		s.count(k, false)
		delete(s.calls, p.ID)
	}
	for _, m := range p.Marks {
		if m.Set == nil {
			delete(s.marks, m.MarkID)
			continue
		}
		set := *m.Set
		set.MarkID = m.MarkID
		set.Until = row.Time(row.Nanos(set.Until))
		set.Result = keep(set.Result)
		s.marks[m.MarkID] = set
	}
	for i, e := range p.Audit {
		s.audit = append(s.audit, entry{call: e.Call, tenant: e.Tenant, doc: p.Entries[i]})
	}
}

// count keeps the tenant's number of live calls.
func (s *Store) count(k *call, live bool) {
	if k.live == live {
		return
	}
	k.live = live
	if live {
		s.live[k.tenant]++
	} else if s.live[k.tenant]--; s.live[k.tenant] == 0 {
		delete(s.live, k.tenant)
	}
}

func (k *call) become(p *row.Change) {
	a := p.After
	// A run's lease may have been renewed since the run was read.
	if a.State != record.Running || k.state != record.Running || a.Epoch != k.epoch {
		k.holder, k.until = a.Lease.Holder, row.Nanos(a.Lease.Until)
	}
	k.created, k.state, k.open = row.Nanos(a.CreatedAt), a.State, p.Open
	k.version, k.epoch, k.due = p.Version+1, a.Epoch, p.Due
	k.doc, k.result = p.Doc, keep(a.Result)
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := row.Nanos(s.now())
	var renewed []store.LeaseRef
	for _, l := range leases {
		k := s.calls[l.Call]
		if k == nil || k.state != record.Running || k.epoch != l.Epoch || k.holder != holder || k.until <= now {
			continue
		}
		k.until = max(k.until, row.Nanos(until))
		renewed = append(renewed, l)
	}
	return renewed, nil
}

// Takeover implements [store.Store].
func (s *Store) Takeover(ctx context.Context, node, boot string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := row.Nanos(s.now())
	for _, k := range s.calls {
		if k.state == record.Running && !s.ours(k.holder, node, boot) {
			k.until = min(k.until, now)
		}
	}
	s.wake()
	return nil
}

// Purge implements [store.Store].
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for id, m := range s.marks {
		if n >= limit {
			break
		}
		if past(m, now) {
			delete(s.marks, id)
			n++
		}
	}
	return n, nil
}
