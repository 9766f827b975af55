package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// spoiled are the columns that FuzzRows writes into.
var spoiled = []struct{ table, column, kind string }{
	{"calls", "doc", "BLOB"}, {"calls", "state", "TEXT"}, {"calls", "holder", "TEXT"}, {"calls", "id", "TEXT"}, {"calls", "tenant", "TEXT"},
	{"calls", "version", "INTEGER"}, {"calls", "epoch", "INTEGER"}, {"calls", "lease_until", "INTEGER"}, {"calls", "due_at", "INTEGER"}, {"calls", "created_at", "INTEGER"},
	{"payloads", "args", "BLOB"}, {"payloads", "result", "BLOB"},
	{"marks", "owner", "BLOB"}, {"marks", "call", "TEXT"}, {"marks", "digest", "TEXT"}, {"marks", "state", "TEXT"}, {"marks", "result", "BLOB"}, {"marks", "until", "INTEGER"},
	{"audit", "doc", "BLOB"}, {"audit", "call", "TEXT"}, {"audit", "tenant", "TEXT"},
}

// FuzzRows: whatever stands in one column of a row, each way of reading gives
// what is there or ErrCorrupt, and after the row is mended all is as it was.
func FuzzRows(f *testing.F) {
	for i := range spoiled {
		for _, seed := range []string{"", "x", "{}", "null", "c\x00", "\xff", "\uFFFD", "\uFFFD00", `{"id":"c","state":"ready"}`, `{"id":"c","id":"c","state":"ready"}`, `{"ID":"c","state":"ready"}`, `{"id":"c","state":"ready","epoch":1e24}`, `{"id":"\ud800"}`, strings.Repeat("[", 10_000)} {
			f.Add(uint8(i), []byte(seed), int64(len(seed))<<60|9007199254740993)
		}
	}
	s, err := Open(f.Context(), Options{Path: filepath.Join(f.TempDir(), "store.db")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	until := time.Now().Add(time.Hour).UTC()
	subject := record.SubjectMark("t", "effect", "s")
	err = s.Commit(f.Context(), record.Change{
		ID: "c", After: &record.Call{
			ID: "c", State: record.Ready, Owner: record.Principal{Tenant: "t", Subject: "ann"}, Args: []byte(`{"a":1}`), CreatedAt: time.Unix(1, 0).UTC(), UpdatedAt: time.Unix(1, 0).UTC(), Deadline: until,
		},
		Marks: []record.MarkWrite{{MarkID: subject, Set: &record.Mark{MarkID: subject, Call: "c", State: record.EffectDone, Result: []byte("1"), Until: until}}},
		Audit: []record.Entry{{Call: "c", Tenant: "t", Event: "opened", At: time.Unix(1, 0).UTC()}},
	})
	if err != nil {
		f.Fatal(err)
	}
	exec := func(t testing.TB, query string, args ...any) error {
		t.Helper()
		var execErr error
		err := s.submit(context.Background(), 0, func(w *writer) error {
			_, execErr = w.conn.ExecContext(context.Background(), query, args...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return execErr
	}
	for _, query := range []string{ // what is tried are the readers, not the disk
		"DROP TRIGGER audit_stays", "CREATE TABLE kept_calls AS SELECT * FROM calls", "CREATE TABLE kept_payloads AS SELECT * FROM payloads",
		"CREATE TABLE kept_marks AS SELECT * FROM marks", "CREATE TABLE kept_audit AS SELECT * FROM audit",
	} {
		if err := exec(f, query); err != nil {
			f.Fatal(err)
		}
	}
	read := func() (found string, errs []error) {
		s.recent.commit(nil, true) // nothing is to be known from before
		s.recent.wrote(nil)
		add := func(v any, err error) {
			found += fmt.Sprintf("%+v\n", v)
			if err != nil {
				errs = append(errs, err)
			}
		}
		ctx := context.Background()
		c, err := s.Load(ctx, "c")
		add(c, err)
		calls, err := s.List(ctx, store.Filter{Tenant: "t"})
		for _, c := range calls {
			add(c, nil)
		}
		add(len(calls), err)
		calls, err = s.List(ctx, store.Filter{Live: true, Open: true, After: "c"})
		add(len(calls), err)
		mark, err := s.Mark(ctx, subject)
		add(mark, err)
		rows, err := s.Audit(ctx, store.AuditQuery{Call: "c", Tenant: "t"})
		add(rows, err)
		rows, err = s.Audit(ctx, store.AuditQuery{})
		add(rows, err)
		due, err := s.Due(ctx, time.Now(), 10, []string{"u"})
		add(due.Ready, err)
		counts, err := s.Counts(ctx)
		add(counts, err)
		return found, errs
	}
	whole, errs := read()
	if len(errs) > 1 { // "c" has no place among tenant "" for List's After
		f.Fatal(errs)
	}
	f.Fuzz(func(t *testing.T, which uint8, value []byte, number int64) {
		at := spoiled[int(which)%len(spoiled)]
		var v any = value
		switch at.kind {
		case "TEXT":
			v = string(value)
		case "INTEGER":
			v = number
		}
		if value == nil {
			v = []byte{}
		}
		if err := exec(t, "UPDATE "+at.table+" SET "+at.column+" = ?", v); err != nil {
			t.Skip(err)
		}
		if _, errs := read(); len(errs) > 0 {
			for _, err := range errs {
				if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound) {
					t.Errorf("%s.%s = %q: %v", at.table, at.column, v, err)
				}
				if len(value) > 40 && strings.Contains(err.Error(), string(value)) {
					t.Errorf("%s.%s: the error tells what is stored: %v", at.table, at.column, err)
				}
			}
		}
		key := map[string]string{"calls": "n", "payloads": "call", "marks": "kind", "audit": "seq"}[at.table]
		if err := exec(t, fmt.Sprintf("UPDATE %[1]s SET %[2]s = (SELECT k.%[2]s FROM kept_%[1]s k WHERE k.%[3]s = %[1]s.%[3]s)", at.table, at.column, key)); err != nil {
			t.Fatal(err)
		}
		if now, _ := read(); now != whole {
			t.Fatalf("after it was mended:\n%s\nbefore:\n%s", now, whole)
		}
	})
}
