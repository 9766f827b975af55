//go:build unix

package sqlite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallystick/tallystick/store/sqlite"
)

// umask sets the process's umask and returns how to restore it. No test of this
// package runs in parallel.
func umask(mask int) (restore func()) {
	old := syscall.Umask(mask)
	return func() { syscall.Umask(old) }
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestOnlyTheUserCanReadTheFiles(t *testing.T) {
	for name, mask := range map[string]int{"an open umask": 0, "a strict umask": 0o777} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "folder")
			if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "store.db")
			restore := umask(mask)
			s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
			if err == nil {
				err = s.Commit(t.Context(), change("c"))
			}
			if err == nil {
				err = s.Backup(t.Context(), path+".backup")
			}
			restore()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, suffix := range []string{"", "-wal", "-shm", ".lock", ".backup"} {
				if m := mode(t, path+suffix); m != 0o600 {
					t.Errorf("%s has mode %04o", suffix, m)
				}
			}
			if m := mode(t, dir); m != 0o700 {
				t.Errorf("the folder has mode %04o", m)
			}
		})
	}
}

func TestAFileThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := open(t, path, nil).Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []fs.FileMode{0o640, 0o604, 0o660} {
		if err := os.Chmod(path, m); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%04o: error is %v", m, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path, nil)
}
