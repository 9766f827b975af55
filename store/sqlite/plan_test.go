package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/store"
)

// plan is what SQLite means to do for a statement: a line for each step.
func plan(t *testing.T, db *sql.DB, file string) []string {
	t.Helper()
	text, err := statements.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]any, 32)
	for i := range args {
		args[i] = i
	}
	n := 0 // the highest parameter of the statement
	for i := range args {
		if strings.Contains(string(text), fmt.Sprintf("?%d", i+1)) {
			n = i + 1
		}
	}
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+string(text), args[:n]...)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// No statement goes through a table from end to end, or sorts what it finds:
// its cost stays the same however many calls are stored. counts goes through what
// there is to do, in indexes that hold nothing else; lease_takeover, once
// a start, may look at every run.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "store.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, folder := range []string{"read", "write"} {
		files, err := statements.ReadDir("sql/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, step := range plan(t, s.reads, "sql/"+folder+"/"+f.Name()) {
				walks := strings.HasPrefix(step, "SCAN") && f.Name() != "counts.sql" && !strings.HasPrefix(step, "SCAN json_each") &&
					!strings.HasPrefix(step, "SCAN (subquery") && step != "SCAN CONSTANT ROW" && step != "SCAN 8-ROW VALUES CLAUSE"
				if walks || strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, "AUTOMATIC") {
					t.Errorf("%s: %s", f.Name(), step)
				}
			}
		}
	}
	for file, index := range map[string]string{
		"read/due": "calls_ready calls_due calls_lease", "read/list_all": "calls_all", "read/list_open": "calls_open", "read/list_live": "calls_live", "read/counts": "calls_ready calls_lease calls_open",
		"read/audit_call": "audit_call", "read/audit_tenant": "audit_tenant", "read/audit_both": "audit_call",
		"write/lease_takeover": "calls_lease", "write/marks_purge": "marks_until",
	} {
		steps := strings.Join(plan(t, s.reads, "sql/"+file+".sql"), "\n")
		for _, name := range strings.Fields(index) {
			if !strings.Contains(steps, name) {
				t.Errorf("%s does not use %s:\n%s", file, name, steps)
			}
		}
	}
}

// stock fills a store with so many calls of all states, by SQL, since it is
// about how many there are.
func stock(tb testing.TB, s *Store, n int) {
	tb.Helper()
	err := s.submit(context.Background(), 0, func(w *writer) error {
		return w.raw(fmt.Sprintf(`
WITH RECURSIVE i(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < %d)
INSERT INTO calls (id, tenant, created_at, state, open, live, version, epoch, holder, lease_until, due_at, doc)
SELECT 'call-' || i, 'tenant-' || (i %% 10), i,
       CASE i %% 100 WHEN 0 THEN 'running' WHEN 1 THEN 'ready' WHEN 2 THEN 'waiting' ELSE 'ended' END,
       i %% 100 = 2, i %% 100 < 3, 1, 1, '', CASE i %% 100 WHEN 0 THEN 1000000 + i END, 1000000 + i,
       CAST('{"id":"call-' || i || '","epoch":1,"state":"' || CASE i %% 100 WHEN 0 THEN 'running' WHEN 1 THEN 'ready' WHEN 2 THEN 'waiting' ELSE 'ended' END || '","action":{"name":"' || hex(zeroblob(200)) || '"}}' AS BLOB)
FROM i;
INSERT INTO payloads (call, args) SELECT n, CAST('{}' AS BLOB) FROM calls;`, n))
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkReads shows that reads cost the same however much is stored.
func BenchmarkReads(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		s, err := Open(context.Background(), Options{Path: filepath.Join(b.TempDir(), "store.db")})
		if err != nil {
			b.Fatal(err)
		}
		stock(b, s, n)
		ctx := context.Background()
		for name, read := range map[string]func() error{
			"Load": func() error { _, err := s.Load(ctx, fmt.Sprintf("call-%d", 1+rand.IntN(n))); return err },
			"Due":  func() error { _, err := s.Due(ctx, time.Unix(0, 1_000_000+int64(n)/2), 5, nil); return err },
			"List": func() error {
				_, err := s.List(ctx, store.Filter{Tenant: "tenant-2", Open: true, Limit: 5})
				return err
			},
		} {
			b.Run(fmt.Sprintf("%s/calls=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if err := read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
