package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/storetest"
)

// on opens a store on a disk and closes it with the test, which may fail if
// the power is off.
func on(t testing.TB, d *disk, now func() time.Time) *Store {
	t.Helper()
	s, err := Open(context.Background(), Options{Path: d.path(), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mustBoot ends the computer with the test.
func mustBoot(t testing.TB, found image) *disk {
	t.Helper()
	d, end, err := boot(t.TempDir(), found, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return d
}

func (d *disk) mustImage(t testing.TB, s survival) image {
	t.Helper()
	found, err := d.image(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// It is the same store on the other build of SQLite.
func TestTheStoreOnADiskThatCanBeCutOff(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clock func() time.Time) (store.Store, func() store.Store) {
		d := mustBoot(t, nil)
		s := on(t, d, clock)
		return s, func() store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d = mustBoot(t, d.mustImage(t, written))
			s = on(t, d, clock)
			return s
		}
	})
}

// Of 100 changes that were acknowledged all are there after a power loss. With
// synchronous=NORMAL none would be, which shows that the disk does lose what
// was not synced.
func TestWhatWasAcknowledgedSurvivesPowerLoss(t *testing.T) {
	const all = 100
	for mode, want := range map[string]int{"as it is": all, "NORMAL": 0} {
		t.Run(mode, func(t *testing.T) {
			d := mustBoot(t, nil)
			s := on(t, d, nil)
			if mode != "as it is" {
				// Outside of a transaction, and while the writer has nothing to do.
				if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA synchronous="+mode); err != nil {
					t.Fatal(err)
				}
			}
			for i := range all {
				if err := s.Commit(t.Context(), change(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			after := on(t, mustBoot(t, d.mustImage(t, lost)), nil)
			kept := 0
			for i := range all {
				if _, err := after.Load(t.Context(), fmt.Sprint(i)); err == nil {
					kept++
				}
			}
			if kept != want || commits(t, after) != want {
				t.Errorf("%d calls and %d entries of %d were kept, want %d", kept, commits(t, after), all, want)
			}
		})
	}
}

// whole fails unless SQLite finds the file in order.
func whole(s *Store) error {
	return s.submit(context.Background(), 0, func(w *writer) error {
		for _, check := range []string{"PRAGMA integrity_check", "PRAGMA foreign_key_check"} {
			var found string
			err := w.conn.QueryRowContext(context.Background(), check).Scan(&found)
			if err == sql.ErrNoRows && strings.Contains(check, "foreign") {
				continue
			}
			if err != nil || found != "ok" {
				return fmt.Errorf("%s: %q %w", check, found, err)
			}
		}
		return nil
	})
}
