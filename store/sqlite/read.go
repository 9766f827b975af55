package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// read runs f while the file is open and gives its error the store's name. A
// read begins after every commit that was acknowledged before it.
func (s *Store) read(ctx context.Context, f func() error) error {
	s.open.RLock()
	defer s.open.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	err := f()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return classify(err)
}

// each scans the rows of a statement of sql/read, one after the other. What
// does not scan cannot be what this store has written.
func (s *Store) each(ctx context.Context, name string, args []any, scan func(*sql.Rows) error) error {
	rows, err := s.query[name].QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			if _, ok := resultCode(err); ok || errors.Is(err, store.ErrCorrupt) || ctx.Err() != nil {
				return err
			}
			return corrupt("a row of "+name, err)
		}
	}
	return rows.Err()
}

// columns are those of a call beside its payloads.
type columns struct {
	version, epoch int64
	state, holder  string
	until          sql.NullInt64
	doc            sql.RawBytes
}

// call puts a call together. Columns and document are written together and
// must agree.
func (k *columns) call(id string) (*record.Call, error) {
	c, err := row.DecodeCall(k.doc)
	if err != nil {
		return nil, corrupt("a call", err)
	}
	holder, err := row.Untext(k.holder)
	if err != nil {
		return nil, corrupt("a call's lease", err)
	}
	if row.Text(c.ID) != id || string(c.State) != k.state || c.Epoch != k.epoch {
		return nil, corrupt("a call", errors.New("its document and its columns differ"))
	}
	row.Restore(c, k.version, holder, k.until.Int64)
	return c, nil
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context, id string) (*record.Call, error) {
	var c *record.Call
	err := s.read(ctx, func() (err error) {
		if err := ctx.Err(); err != nil {
			return err
		}
		recent, commits := s.recent.load(id)
		if recent != nil {
			c = recent
			return nil
		}
		size := 0
		if c, size, err = s.loadFile(ctx, row.Text(id)); c != nil && err == nil {
			s.recent.read(c, size, commits)
		}
		return err
	})
	if err == nil && c == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// loadFile reads a call from the file, and says how large it is there; nil if
// it is not there.
func (s *Store) loadFile(ctx context.Context, key string) (c *record.Call, size int, err error) {
	err = s.each(ctx, "call_load", []any{key}, func(rows *sql.Rows) (err error) {
		var k columns
		var args, result []byte
		if err := rows.Scan(&k.version, &k.epoch, &k.state, &k.holder, &k.until, &k.doc, &args, &result); err != nil {
			return err
		}
		if c, err = k.call(key); err == nil {
			c.Args, c.Result = args, result
			size = len(k.doc) + len(args) + len(result)
		}
		return err
	})
	return c, size, err
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	var calls []*record.Call
	err := s.read(ctx, func() error {
		created, n := int64(math.MinInt64), int64(0)
		if f.After != "" {
			err := s.query["call_place"].QueryRowContext(ctx, row.Text(f.After), row.Text(f.Tenant)).Scan(&created, &n)
			if errors.Is(err, sql.ErrNoRows) {
				return store.ErrNotFound
			}
			if err != nil {
				return err
			}
		}
		name, args := "list_all", []any{row.Text(f.Tenant), created, n, limit(f.Limit)}
		switch {
		case f.Open:
			name, args = "list_open", append(args, f.Live)
		case f.Live:
			name = "list_live"
		}
		return s.each(ctx, name, args, func(rows *sql.Rows) error {
			var k columns
			var id string
			if err := rows.Scan(&id, &k.version, &k.epoch, &k.state, &k.holder, &k.until, &k.doc); err != nil {
				return err
			}
			c, err := k.call(id)
			calls = append(calls, c)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return calls, nil
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var n store.Counts
	err := s.read(ctx, func() error {
		return s.query["counts"].QueryRowContext(ctx).Scan(&n.Ready, &n.Running, &n.Open)
	})
	return n, err
}

// limit applies the defaults of store.Filter and store.AuditQuery.
func limit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, 1000)
}

// Mark implements [store.Store].
func (s *Store) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	var m *record.Mark
	args := []any{string(id.Kind), row.Text(id.Tenant), row.Text(id.Name), row.Nanos(s.now())}
	err := s.read(ctx, func() error {
		return s.each(ctx, "mark_load", args, func(rows *sql.Rows) error {
			var call, state, digest string
			var until sql.NullInt64
			var owner, result []byte
			if err := rows.Scan(&call, &until, &state, &owner, &digest, &result); err != nil {
				return err
			}
			var errs [3]error
			m = &record.Mark{MarkID: id, Until: row.Time(until.Int64), State: record.EffectState(state), Result: result}
			m.Call, errs[0] = row.Untext(call)
			m.Digest, errs[1] = row.Untext(digest)
			m.Owner, errs[2] = row.DecodeOwner(owner)
			return errors.Join(errs[:]...)
		})
	})
	if err == nil && m == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Audit implements [store.Store].
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	name, args := "audit_all", []any{q.After, limit(q.Limit)}
	call, tenant := row.Text(q.Call), row.Text(q.Tenant)
	switch {
	case call != "" && tenant != "":
		name, args = "audit_both", append(args, call, tenant)
	case call != "":
		name, args = "audit_call", append(args, call)
	case tenant != "":
		name, args = "audit_tenant", append(args, tenant)
	}
	var found []store.AuditRow
	err := s.read(ctx, func() error {
		return s.each(ctx, name, args, func(rows *sql.Rows) (err error) {
			var r store.AuditRow
			var doc sql.RawBytes
			if err := rows.Scan(&r.Seq, &doc); err != nil {
				return err
			}
			if r.Entry, err = row.DecodeEntry(doc); err != nil {
				return corrupt("an audit entry", err)
			}
			found = append(found, r)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// dueItem is a row of the statement due.
type dueItem struct {
	id    string
	at, n int64
}

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	left := make([]string, len(except)) // never nil: NOT IN (NULL) is never true
	for i, tenant := range except {
		left[i] = row.Text(tenant)
	}
	names, err := json.Marshal(left)
	if err != nil {
		return store.Due{}, err
	}
	limit = max(limit, 0)
	var due store.Due
	items := map[string][]dueItem{}
	err = s.read(ctx, func() error {
		return s.each(ctx, "due", []any{row.Nanos(now), limit, string(names)}, func(rows *sql.Rows) error {
			var kind, id string
			var it dueItem
			if err := rows.Scan(&kind, &id, &it.at, &it.n); err != nil {
				return err
			}
			it.id, err = row.Untext(id)
			items[kind] = append(items[kind], it)
			return err
		})
	})
	if err != nil {
		return store.Due{}, err
	}
	due.Ready = inOrder(items["ready"], limit)
	due.Overdue = inOrder(items["overdue"], limit)
	for _, it := range items["next"] {
		if t := row.Time(it.at); due.Next.IsZero() || t.Before(due.Next) {
			due.Next = t
		}
	}
	return due, nil
}

// inOrder returns the ids, earliest first. A call may be overdue in two ways;
// the earlier counts.
func inOrder(items []dueItem, limit int) []string {
	slices.SortFunc(items, func(a, b dueItem) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) })
	var ids []string
	seen := map[string]bool{}
	for _, it := range items {
		if len(ids) < limit && !seen[it.id] {
			ids, seen[it.id] = append(ids, it.id), true
		}
	}
	return ids
}
