package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestEveryConnectionIsSetUpToBeDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	pragma := func(name string) (got string) {
		t.Helper()
		err := s.submit(t.Context(), 0, func(w *writer) error {
			return w.conn.QueryRowContext(context.Background(), "PRAGMA "+name).Scan(&got)
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000",
		"trusted_schema": "0", "cell_size_check": "1", "temp_store": "2", "secure_delete": "2",
	} {
		if got := pragma(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if _, err := s.reads.Exec("DELETE FROM calls"); err == nil {
		t.Error("a reader's connection writes")
	}
	if err := s.Commit(t.Context(), change("c")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// All is in the one file then, which can be copied as it is.
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", suffix, err)
		}
	}
}
