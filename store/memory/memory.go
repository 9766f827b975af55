// Package memory is a store for tests, which forgets everything at the end of
// the process.
//
// It keeps calls in the form in which the durable stores keep them, so that a
// call changed after it was committed, or a field that is not stored, shows in
// a test that uses it.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// Options of a store. The zero value is ready for use.
type Options struct {
	// Now is the store's clock; nil: time.Now.
	Now func() time.Time
	// Shared says that engines of different nodes use the store: Wake then tells
	// of every change, and Takeover looks at the node.
	Shared bool
}

// A Store keeps calls in memory. Several engines may use one Store.
type Store struct {
	now    func() time.Time
	shared bool

	mu      sync.Mutex // guards all below
	calls   map[string]*call
	live    map[string]int // calls that have not ended, by tenant
	marks   map[record.MarkID]record.Mark
	audit   []entry
	opened  int64         // calls so far, for their order
	changed chan struct{} // closed by the next change
	closed  bool
}

type call struct {
	n       int64
	tenant  string
	created int64
	state   record.State
	open    int
	live    bool
	version int64
	epoch   int64
	holder  string
	until   int64
	due     int64
	doc     []byte
	args    []byte
	result  []byte
}

type entry struct {
	call, tenant string
	doc          []byte
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		now: o.Now, shared: o.Shared,
		changed: make(chan struct{}),
		calls:   map[string]*call{}, live: map[string]int{}, marks: map[record.MarkID]record.Mark{},
	}
}

// enter locks the store for one method. The caller unlocks unless it failed.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	return s.now(), nil
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context, id string) (*record.Call, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	k := s.calls[id]
	if k == nil {
		return nil, store.ErrNotFound
	}
	c, err := k.read()
	if err != nil {
		return nil, err
	}
	c.Args, c.Result = keep(k.args), keep(k.result)
	return c, nil
}

func (k *call) read() (*record.Call, error) {
	c, err := row.DecodeCall(k.doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	row.Restore(c, k.version, k.holder, k.until)
	return c, nil
}

// Mark implements [store.Store].
func (s *Store) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	m, ok := s.mark(id)
	if !ok {
		return nil, store.ErrNotFound
	}
	m.Result = keep(m.Result)
	return &m, nil
}

// mark returns a mark unless it is past its time.
func (s *Store) mark(id record.MarkID) (record.Mark, bool) {
	m, ok := s.marks[id]
	return m, ok && !past(m, s.now())
}

func past(m record.Mark, now time.Time) bool {
	return !m.Until.IsZero() && !now.Before(m.Until)
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var after *call
	if f.After != "" {
		if after = s.calls[f.After]; after == nil || after.tenant != f.Tenant {
			return nil, store.ErrNotFound
		}
	}
	var found []*call
	for _, k := range s.calls {
		if k.tenant == f.Tenant && (k.open > 0 || !f.Open) && (k.live || !f.Live) && (after == nil || older(after, k) < 0) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, older)
	found = found[:min(len(found), limit(f.Limit))]
	calls := make([]*record.Call, len(found))
	for i, k := range found {
		var err error
		if calls[i], err = k.read(); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func older(a, b *call) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.n, b.n))
}

// Audit implements [store.Store].
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var rows []store.AuditRow
	for i := max(q.After, 0); i < int64(len(s.audit)) && len(rows) < limit(q.Limit); i++ {
		e := s.audit[i]
		if q.Call != "" && e.call != q.Call || q.Tenant != "" && e.tenant != q.Tenant {
			continue
		}
		entry, err := row.DecodeEntry(e.doc)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		rows = append(rows, store.AuditRow{Seq: i + 1, Entry: entry})
	}
	return rows, nil
}

// limit applies the defaults of store.Filter and store.AuditQuery.
func limit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, 1000)
}

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	if err := s.enter(ctx); err != nil {
		return store.Due{}, err
	}
	defer s.mu.Unlock()
	type item struct {
		id string
		at int64
		n  int64
	}
	var ready, overdue []item
	var next int64
	at := row.Nanos(now)
	for id, k := range s.calls {
		if k.state == record.Ready {
			if !slices.Contains(except, k.tenant) {
				ready = append(ready, item{id, k.due, k.n})
			}
			continue
		}
		first := int64(0)
		for _, t := range k.dues() {
			switch {
			case t <= at && (first == 0 || t < first):
				first = t
			case t > at && (next == 0 || t < next):
				next = t
			}
		}
		if first != 0 {
			overdue = append(overdue, item{id, first, k.n})
		}
	}
	ids := func(items []item) []string {
		slices.SortFunc(items, func(a, b item) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n))
		})
		var ids []string
		for _, it := range items[:min(len(items), max(limit, 0))] {
			ids = append(ids, it.id)
		}
		return ids
	}
	return store.Due{Ready: ids(ready), Overdue: ids(overdue), Next: row.Time(next)}, nil
}

// dues are the times at which a call that is not ready wants looking at.
func (k *call) dues() []int64 {
	var at []int64
	if k.due != 0 {
		at = append(at, k.due)
	}
	if k.state == record.Running && k.until != 0 {
		at = append(at, k.until)
	}
	return at
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	if err := s.enter(ctx); err != nil {
		return store.Counts{}, err
	}
	defer s.mu.Unlock()
	var n store.Counts
	for _, k := range s.calls {
		switch k.state {
		case record.Ready:
			n.Ready++
		case record.Running:
			n.Running++
		}
		n.Open += k.open
	}
	return n, nil
}

// Wake implements [store.Store]: in a shared store, the channel is closed by
// the next change, by whichever engine.
func (s *Store) Wake() <-chan struct{} {
	if !s.shared {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// wake tells whoever waits that something has changed.
func (s *Store) wake() {
	if s.shared {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Shared implements [store.Store].
func (s *Store) Shared() bool { return s.shared }

// Close makes every later use fail with [store.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// keep copies bytes; empty ones are nil.
func keep(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// ours reports whether a restart of node leaves the lease alone.
func (s *Store) ours(holder, node, boot string) bool {
	return holder == node+"/"+boot || s.shared && !strings.HasPrefix(holder, node+"/")
}
