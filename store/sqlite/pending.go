package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// pending is what the changes of a batch leave for its end.
type pending struct {
	changed map[string]*stored // by id; nil: changed in a way that is not known here
	blind   bool               // a job has changed calls and not said which
	tenants map[string]*tenant // by row.Text
	audits  []any              // parameters of audit_insert, four for each entry
}

// A tenant is how many live calls it has.
type tenant struct {
	stored int // before the batch
	known  bool
	more   int // by the batch so far
}

func (p *pending) tenant(name string) *tenant {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{}
		p.tenants[name] = t
	}
	return t
}

// live is how many live calls a tenant has now.
func (w *writer) live(name string) (int, error) {
	t := w.tenant(name)
	if !t.known {
		err := w.stmt["tenant_live"].QueryRowContext(context.Background(), name).Scan(&t.stored)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		t.known = true
	}
	return t.stored + t.more, nil
}

// count keeps the tenant's number of live calls.
func (w *writer) count(name string, before, after bool) {
	switch {
	case after && !before:
		w.tenant(name).more++
	case before && !after:
		w.tenant(name).more--
	}
}

// flush writes what the batch has left for its end.
func (w *writer) flush() error {
	for name, t := range w.tenants {
		if t.more == 0 {
			continue
		}
		if err := w.do("tenant_add", name, t.more); err != nil {
			return err
		}
		if t.more < 0 {
			if err := w.do("tenant_drop", name); err != nil {
				return err
			}
		}
	}
	rest := w.audits
	for ; len(rest) >= 4*8; rest = rest[4*8:] {
		if err := w.do("audit_insert_8", rest[:4*8]...); err != nil {
			return err
		}
	}
	for ; len(rest) > 0; rest = rest[4:] {
		if err := w.do("audit_insert", rest[:4]...); err != nil {
			return err
		}
	}
	clear(w.audits) // lets go of the entries
	return nil
}
