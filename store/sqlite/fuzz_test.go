package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// FuzzRows: whatever stands in one column of a row, each way of reading gives what is
// there or ErrCorrupt, and after the row is mended all is as it was.
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
	exec := func(t testing.TB, query string, args ...any) (err error) {
		t.Helper()
		failed := s.submit(context.Background(), 0, func(w *writer) error {
			_, err = w.conn.ExecContext(context.Background(), query, args...)
			return nil
		})
		if failed != nil {
			t.Fatal(failed)
		}
		return err
	}
	mend := ""                      // what the last change was in
	for _, query := range []string{ // what is tried are the readers, not the disk
		"DROP TRIGGER audit_stays", "CREATE TABLE kept_calls AS SELECT * FROM calls", "CREATE TABLE kept_payloads AS SELECT * FROM payloads",
		"CREATE TABLE kept_marks AS SELECT * FROM marks", "CREATE TABLE kept_audit AS SELECT * FROM audit",
	} {
		if err := exec(f, query); err != nil {
			f.Fatal(err)
		}
	}
	read := func() (errs []error) {
		s.recent.commit(nil, true) // nothing is to be known from before
		s.recent.wrote(nil)
		ctx := context.Background()
		c, err := s.Load(ctx, "c")
		if err == nil && c.ID != "c" {
			err = fmt.Errorf("it is the call %q", c.ID)
		}
		errs = append(errs, err)
		_, err = s.List(ctx, store.Filter{Tenant: "t"})
		errs = append(errs, err)
		_, err = s.List(ctx, store.Filter{Tenant: "t", Live: true, Open: true, After: "c"})
		errs = append(errs, err)
		_, err = s.Mark(ctx, subject)
		errs = append(errs, err)
		_, err = s.Audit(ctx, store.AuditQuery{Call: "c", Tenant: "t"})
		errs = append(errs, err)
		_, err = s.Audit(ctx, store.AuditQuery{})
		errs = append(errs, err)
		_, err = s.Due(ctx, time.Now(), 10, []string{"u"})
		errs = append(errs, err)
		_, err = s.Counts(ctx)
		return slices.DeleteFunc(append(errs, err), func(err error) bool { return err == nil })
	}
	if errs := read(); len(errs) > 0 {
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
		key := map[string]string{"calls": "n", "payloads": "call", "marks": "kind", "audit": "seq"}[at.table]
		if err := exec(t, mend+"UPDATE "+at.table+" SET "+at.column+" = ?", v); err != nil {
			t.Fatal(err)
		}
		mend = fmt.Sprintf("UPDATE %[1]s SET %[2]s = (SELECT k.%[2]s FROM kept_%[1]s k WHERE k.%[3]s = %[1]s.%[3]s); ", at.table, at.column, key)
		for _, err := range read() {
			if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s.%s = %q: %v", at.table, at.column, v, err)
			}
			if len(value) > 40 && strings.Contains(err.Error(), string(value)) {
				t.Errorf("%s.%s: the error tells what is stored: %v", at.table, at.column, err)
			}
		}
	})
}
