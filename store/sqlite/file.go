package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tallystick/tallystick/store"
)

// prepare makes the folder of path if there is none, and returns the path by
// which every process knows the file: symbolic links would let two processes
// lock two names of it.
func prepare(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		if err := os.Chmod(dir, 0o700); err != nil { // whatever the umask has taken
			return "", err
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// createFile makes an empty file if there is none, before SQLite would with
// whatever mode; SQLite gives -wal and -shm the mode of the file. An existing
// one is looked at.
func createFile(path string, lock *os.File) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return checkFile(path, lock)
	case err != nil:
		return err
	}
	// The folder too, or a power loss could take the file with all in it.
	return errors.Join(f.Chmod(0o600), f.Sync(), f.Close(), syncFolder(path))
}

func checkFile(path string, lock *os.File) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if suffix != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", path+suffix)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("others can read or write %s (mode %04o); run: chmod 600 '%s'", path+suffix, info.Mode().Perm(), path+suffix)
		}
		// To SQLite an empty file is a new database. It is one only if the
		// first start was cut off before anything was stored.
		if suffix == "" && info.Size() == 0 && hasBegun(lock) {
			return fmt.Errorf("%w: %s was in use before and is empty now", store.ErrCorrupt, path)
		}
	}
	return nil
}

// begun notes in the lock file that the database has its tables.
func begun(lock *os.File) error {
	if hasBegun(lock) {
		return nil
	}
	if _, err := lock.WriteAt([]byte("A Tallystick store lies beside this file. Keep it.\n"), 0); err != nil {
		return err
	}
	return lock.Sync()
}

func hasBegun(lock *os.File) bool {
	info, err := lock.Stat()
	return err == nil && info.Size() > 0
}

// syncFolder makes the name of a new file durable.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // a folder cannot be opened for it
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
