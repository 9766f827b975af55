package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/sqlite"
	"github.com/tallystick/tallystick/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store and closes it with the test.
func open(t testing.TB, path string, now func() time.Time) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clock func() time.Time) (store.Store, func() store.Store) {
		path := filepath.Join(t.TempDir(), "store.db")
		s := open(t, path, clock)
		return s, func() store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path, clock)
			return s
		}
	})
}
