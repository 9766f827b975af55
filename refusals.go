package tallystick

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// refusals counts refusals that concern no kept call: of input that is
// unauthenticated or does not open. They go to the audit trail in batches, so
// that a flood of them costs a flood of nothing.
type refusals struct {
	counts map[refusal]int
	some   chan struct{} // capacity 1
}

type refusal struct {
	reason record.Reason
	tenant string
}

const (
	maxRefusalKinds = 256 // further tenants share one count
	refusalsEvery   = 10 * time.Second
)

// refused counts a refusal.
func (s *Server) refused(reason record.Reason, tenant string) {
	s.observer.Refused(reason, tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.refusals
	if r.counts == nil {
		r.counts = map[refusal]int{}
	}
	key := refusal{reason, tenant}
	if _, ok := r.counts[key]; !ok && len(r.counts) >= maxRefusalKinds {
		key.tenant = ""
	}
	r.counts[key]++
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// auditRefusals writes what was counted, a while after the first of a batch.
func (s *Server) auditRefusals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.writeRefusals()
			return
		case <-s.refusals.some:
		}
		t := time.NewTimer(refusalsEvery)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		s.writeRefusals()
	}
}

func (s *Server) writeRefusals() {
	s.mu.Lock()
	counts := s.refusals.counts
	s.refusals.counts = nil
	s.mu.Unlock()
	if len(counts) == 0 || s.opts.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	now, err := s.store.Now(ctx)
	var entries []record.Entry
	for r, n := range counts {
		entries = append(entries, record.Entry{At: now, Tenant: r.tenant, Event: "refused", By: record.System, Reason: r.reason, Count: n})
	}
	slices.SortFunc(entries, func(a, b record.Entry) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Reason, b.Reason))
	})
	if err == nil {
		err = s.store.Commit(ctx, record.Change{Audit: entries})
	}
	if err != nil {
		s.log.Error("refusals could not be put on record", "kinds", len(counts), "err", err)
	}
}

// noStore is the store of a server whose tools are all read-only: it has a
// clock and nothing else.
type noStore struct{}

func (noStore) Now(context.Context) (time.Time, error) { return time.Now(), nil }
func (noStore) Load(context.Context, string) (*record.Call, error) {
	return nil, store.ErrNotFound
}
func (noStore) Mark(context.Context, record.MarkID) (*record.Mark, error) {
	return nil, store.ErrNotFound
}
func (noStore) Commit(context.Context, record.Change) error { return store.ErrClosed }
func (noStore) Due(context.Context, time.Time, int, []string) (store.Due, error) {
	return store.Due{}, nil
}
func (noStore) Renew(context.Context, string, []store.LeaseRef, time.Time) ([]store.LeaseRef, error) {
	return nil, nil
}
func (noStore) Takeover(context.Context, string, string) error                    { return nil }
func (noStore) List(context.Context, store.Filter) ([]*record.Call, error)        { return nil, nil }
func (noStore) Audit(context.Context, store.AuditQuery) ([]store.AuditRow, error) { return nil, nil }
func (noStore) Purge(context.Context, time.Time, int) (int, error)                { return 0, nil }
func (noStore) Counts(context.Context) (store.Counts, error)                      { return store.Counts{}, nil }
func (noStore) Wake() <-chan struct{}                                             { return nil }
func (noStore) Shared() bool                                                      { return false }
func (noStore) Close() error                                                      { return nil }
