package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// TestEveryOlderSchemaIsBroughtUpToDate fills a file of each version with the
// rows of testdata, which the release of that version wrote, and opens it.
func TestEveryOlderSchemaIsBroughtUpToDate(t *testing.T) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version <= len(files); version++ {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			rows, err := os.ReadFile(fmt.Sprintf("testdata/v%05d.sql", version))
			if err != nil {
				t.Fatalf("add the rows of this version: %v", err)
			}
			path := filepath.Join(t.TempDir(), "store.db")
			older(t, path, int64(version), string(rows))
			s, err := Open(t.Context(), Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c, err := s.Load(t.Context(), "kept\x00")
			if err != nil {
				t.Fatal(err)
			}
			if c.Version != 3 || c.State != record.Waiting || string(c.Args) != `{"order":1}` || len(c.Questions) != 1 || len(c.Effects) != 1 {
				t.Errorf("the call is %+v", c)
			}
			m, err := s.Mark(t.Context(), record.SubjectMark("acme", "refund", "1"))
			if err != nil || m.Call != "kept\x00" || string(m.Result) != `{"id":7}` {
				t.Errorf("the mark is %+v, %v", m, err)
			}
			trail, err := s.Audit(t.Context(), store.AuditQuery{Tenant: "acme"})
			if err != nil || len(trail) != 1 || trail[0].Event != "opened" {
				t.Errorf("the trail is %+v, %v", trail, err)
			}
			if n, err := s.Counts(t.Context()); err != nil || n != (store.Counts{Open: 1}) {
				t.Errorf("there is to do: %+v, %v", n, err)
			}
			if all, err := s.List(t.Context(), store.Filter{Tenant: "acme", Open: true}); err != nil || len(all) != 1 {
				t.Errorf("with an open question: %v, %v", all, err)
			}
			ch := record.Change{ID: "new", After: &record.Call{ID: "new", Owner: record.Principal{Tenant: "acme"}}, MaxLive: 1}
			if err := s.Commit(t.Context(), ch); !errors.Is(err, store.ErrQuota) {
				t.Errorf("the kept call is not counted: %v", err)
			}
		})
	}
}

// older makes a file of that version with these rows; version 0 has no tables.
func older(t *testing.T, path string, version int64, rows string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := openDB(path, "immediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if version > 0 {
		p, err := provider(db)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.UpTo(context.Background(), version); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(rows); err != nil {
		t.Fatal(err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	older(t, path, 1, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (4711, 1)")
	_, err := Open(t.Context(), Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("error is %v", err)
	}
}

func TestAnotherProgramsDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	older(t, path, 0, "CREATE TABLE customers (name TEXT)")
	_, err := Open(t.Context(), Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("error is %v", err)
	}
}

func TestAGarbledRowIsCorrupt(t *testing.T) {
	for _, sql := range []string{
		"UPDATE calls SET doc = CAST('{' AS BLOB)",
		"UPDATE calls SET doc = zeroblob(17000000)",
		"UPDATE calls SET doc = CAST('{\"id\":\"other\",\"state\":\"ready\"}' AS BLOB)",
		"UPDATE calls SET state = 'ended'",
		"UPDATE calls SET epoch = 9",
		"UPDATE calls SET holder = char(65533)",
	} {
		inside(t, func(t *testing.T, s *Store, free func()) {
			free()
			if err := s.Commit(t.Context(), change("c")); err != nil {
				t.Fatal(err)
			}
			if err := s.submit(t.Context(), 0, func(w *writer) error { return w.raw(sql) }); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Load(t.Context(), "c"); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: Load: %v", sql, err)
			}
			if _, err := s.List(t.Context(), store.Filter{}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: List: %v", sql, err)
			}
		})
	}
}
