package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/sqlite"
	"github.com/tallystick/tallystick/store/storetest"
)

func TestAPathIsTakenAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c=d#e%41&_pragma=x;'", "store.db?mode=memory")
	s := open(t, path, nil)
	if err := s.Commit(t.Context(), change("c")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, err := open(t, path, nil).Load(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{}); err == nil {
		t.Error("no path was accepted")
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir()}); err == nil {
		t.Error("a folder was accepted")
	}
}

func TestABackupOpensLikeAStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store.db"), nil)
	if err := s.Commit(t.Context(), change("kept")); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "it's a backup.db")
	if err := s.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), change("later")); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), backup); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second backup into the same file: %v", err)
	}
	b := open(t, backup, nil)
	if _, err := b.Load(t.Context(), "kept"); err != nil {
		t.Error(err)
	}
	if _, err := b.Load(t.Context(), "later"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// full makes a store with some calls in it and returns its bytes.
func full(t *testing.T, path string) []byte {
	t.Helper()
	s := open(t, path, nil)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		c := storetest.Full(id)
		c.Args = make([]byte, 20_000)
		ch := change(id)
		ch.After = c
		if err := s.Commit(t.Context(), ch); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// use opens a damaged file and reads all that is in it. It returns the first
// error.
func use(t *testing.T, path string) error {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if _, err := s.Load(t.Context(), id); err != nil {
			return err
		}
	}
	if _, err := s.Due(t.Context(), time.Now(), 10, nil); err != nil {
		return err
	}
	if _, err := s.List(t.Context(), store.Filter{Tenant: storetest.Full("a").Owner.Tenant}); err != nil {
		return err
	}
	_, err = s.Audit(t.Context(), store.AuditQuery{})
	return err
}

func TestADamagedFileIsCorruptAndNoPanic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	sound := full(t, path)
	garble := func(from, to int) []byte {
		b := append([]byte(nil), sound...)
		for i := from; i < to; i++ {
			b[i] ^= 0x5a
		}
		return b
	}
	for name, damaged := range map[string][]byte{
		"empty":            {},
		"half":             sound[:len(sound)/2],
		"one page":         sound[:4096],
		"header cut":       sound[:50],
		"not SQLite":       []byte("a file of somebody else, long enough to hold a header, but without one\n" + strings.Repeat("x", 4096)),
		"header garbled":   garble(0, 16),
		"schema garbled":   garble(100, 4096),
		"from page two on": garble(4096, len(sound)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := use(t, path); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("error is %v", err)
			}
		})
	}
	// Damage to one page may hit what nobody reads. What is read is as it was
	// or an error, and never a panic.
	for page := 1; page < len(sound)/4096; page++ {
		if err := os.WriteFile(path, garble(page*4096+8, page*4096+300), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := use(t, path); err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("page %d: error is %v", page+1, err)
		}
	}
}

func TestACutOffFirstStartIsNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path, nil)
}
