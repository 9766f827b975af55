package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// raw runs SQL that the store itself has no use for.
func (w *writer) raw(sql string) error {
	_, err := w.conn.ExecContext(context.Background(), sql)
	return err
}

// change makes a call.
func change(id string) record.Change {
	return record.Change{ID: id, After: &record.Call{ID: id, State: record.Ready, UpdatedAt: time.Unix(1, 0)}, Audit: []record.Entry{{Call: id, Event: "opened"}}}
}

// inside runs f in a bubble, where "all wait" can be known, with a store whose
// writer is held up: what f submits until it calls free becomes one batch.
func inside(t *testing.T, f func(t *testing.T, s *Store, free func())) {
	path := filepath.Join(t.TempDir(), "store.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		gate := make(chan struct{})
		go s.submit(context.Background(), 0, func(*writer) error { <-gate; return nil })
		synctest.Wait()
		f(t, s, func() {
			synctest.Wait() // all that is to be in the batch waits for the writer
			close(gate)
			synctest.Wait()
		})
	})
}

// later runs f at once and keeps its error for when it is asked for.
func later(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

func commits(t *testing.T, s *Store) int {
	t.Helper()
	rows, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

func TestARefusalInABatchUndoesItselfAlone(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		var results []func() error
		for i := range 10 {
			// The odd ones write first and are refused then.
			results = append(results, later(func() error {
				return s.submit(t.Context(), 0, func(w *writer) error {
					if err := w.do("audit_insert", fmt.Sprint(i), "", 0, []byte("{}")); err != nil || i%2 == 0 {
						return err
					}
					return store.ErrConflict
				})
			}))
		}
		free()
		for i, result := range results {
			if err := result(); errors.Is(err, store.ErrConflict) != (i%2 == 1) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := commits(t, s); n != 5 {
			t.Errorf("%d of 5 were kept", n)
		}
	})
}

func TestAFaultInABatchIsTheTroubleOfOneAlone(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		before := later(func() error { return s.Commit(t.Context(), change("before")) })
		synctest.Wait()
		bad := later(func() error {
			return s.submit(t.Context(), 0, func(w *writer) error {
				return errors.Join(w.do("audit_insert", "bad", "", 0, []byte("{}")), w.raw("no such statement"))
			})
		})
		synctest.Wait()
		after := later(func() error { return s.Commit(t.Context(), change("after")) })
		free()
		if err := errors.Join(before(), after()); err != nil {
			t.Error(err)
		}
		if bad() == nil {
			t.Error("the bad one was acknowledged")
		}
		if n := commits(t, s); n != 2 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestACommitThatFailsIsHeardByTheWholeBatch(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		good := later(func() error { return s.Commit(t.Context(), change("good")) })
		// The foreign key is looked at by COMMIT itself.
		orphan := later(func() error {
			return s.submit(t.Context(), 0, func(w *writer) error { return w.do("payload_insert", 4711, nil, nil) })
		})
		free()
		for _, result := range []func() error{good, orphan} {
			if err := result(); err == nil || !strings.Contains(err.Error(), "committing") {
				t.Errorf("error is %v", err)
			}
		}
		if n := commits(t, s); n != 0 {
			t.Errorf("%d entries", n)
		}
		if err := s.Commit(t.Context(), change("good")); err != nil {
			t.Errorf("the store is of no use afterwards: %v", err)
		}
	})
}

func TestAContextCountsUntilTheBatchIsTaken(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := later(func() error { return s.Commit(ctx, change("waiting")) })
		synctest.Wait()
		cancel()
		if err := waiting(); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
		free()
		if n := commits(t, s); n != 0 {
			t.Errorf("%d entries", n)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		err := s.submit(ctx, 0, func(w *writer) error {
			cancel() // it is taken: too late
			return w.do("audit_insert", "taken", "", 0, []byte("{}"))
		})
		if n := commits(t, s); err != nil || n != 1 {
			t.Errorf("%v, %d entries", err, n)
		}
	})
}

func TestABatchIsBounded(t *testing.T) {
	w := &writer{s: &Store{jobs: make(chan *job, 2*maxJobs)}}
	for range 2 * maxJobs {
		w.s.jobs <- &job{size: 1}
	}
	if n := len(w.gather(&job{})); n != maxJobs {
		t.Errorf("a batch of %d", n)
	}
	w.s.jobs <- &job{size: maxBytes}
	if n := len(w.gather(&job{size: maxBytes})); n != 1 {
		t.Errorf("a batch of %d large jobs", n)
	}
}

func TestALostConnectionIsReplaced(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		free()
		err := s.submit(t.Context(), 0, func(w *writer) error {
			err := w.do("audit_insert", "lost", "", 0, []byte("{}"))
			w.disconnect() // as when it could not even roll back
			return errors.Join(err, errors.New("the connection is lost"))
		})
		if err == nil {
			t.Error("a change without a connection was acknowledged")
		}
		for _, id := range []string{"a", "b"} {
			if err := s.Commit(t.Context(), change(id)); err != nil {
				t.Fatal(err)
			}
		}
		if n := commits(t, s); n != 2 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestCloseAnswersEverybody(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		closed := later(s.Close)
		synctest.Wait()
		late := later(func() error { return s.Commit(t.Context(), change("late")) })
		free()
		if err := closed(); err != nil {
			t.Error(err)
		}
		if err := late(); !errors.Is(err, store.ErrClosed) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestAFullDiskIsSaidAndOvercome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pages := func(n int) {
		t.Helper()
		if err := s.submit(t.Context(), 0, func(w *writer) error { return w.raw(fmt.Sprintf("PRAGMA max_page_count = %d", n)) }); err != nil {
			t.Fatal(err)
		}
	}
	big := func(id string) record.Change {
		c := change(id)
		c.After.Args = make([]byte, 100<<10)
		return c
	}
	if err := s.Commit(t.Context(), big("before")); err != nil {
		t.Fatal(err)
	}
	pages(1) // as small as it is
	for range 2 {
		if err := s.Commit(t.Context(), big("c")); !errors.Is(err, store.ErrFull) {
			t.Fatalf("error is %v", err)
		}
	}
	if c, err := s.Load(t.Context(), "before"); err != nil || len(c.Args) != 100<<10 {
		t.Fatalf("what was acknowledged is gone: %v", err)
	}
	if _, err := s.Load(t.Context(), "c"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("what was refused is there: %v", err)
	}
	pages(1 << 20)
	if err := s.Commit(t.Context(), big("c")); err != nil {
		t.Fatalf("there is space again: %v", err)
	}
}

func TestTheAuditTrailIsAppendOnly(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		free()
		if err := s.Commit(t.Context(), change("c")); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"UPDATE audit SET doc = '{}'", "DELETE FROM audit"} {
			if err := s.submit(t.Context(), 0, func(w *writer) error { return w.raw(sql) }); err == nil {
				t.Errorf("%s: done", sql)
			}
		}
	})
}

func TestATenantWithoutLiveCallsTakesNoSpace(t *testing.T) {
	inside(t, func(t *testing.T, s *Store, free func()) {
		free()
		for _, c := range []record.Change{change("a"), change("b"), {ID: "a", Version: 1, Remove: true}, {ID: "b", Version: 1, After: &record.Call{ID: "b", State: record.Ended}}} {
			if err := s.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		if err := s.reads.QueryRow("SELECT count(*) FROM tenants").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d tenants, %v", n, err)
		}
	})
}

func TestAnOldSQLiteIsRefused(t *testing.T) {
	for version, ok := range map[string]bool{"3.51.3": true, "3.52.0": true, "4.0.0": true, "3.51.2": false, "3.9.9": false, "2.99.99": false, "": false, "x": false} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}
