package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of all that is acknowledged by now into a new file of
// mode 0600, while the store works on. The copy opens like any store. It is
// complete once Backup returns nil; before that it has the suffix .part. A
// file that exists is not overwritten.
func (s *Store) Backup(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("backup %s: %w", path, fs.ErrExist), err)
	}
	part := path + ".part"
	err = s.read(ctx, func() error { return s.copyTo(ctx, part) })
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		err = syncFolder(path)
	}
	if err != nil {
		return fmt.Errorf("backup %s: %w", path, err)
	}
	return nil
}

// copyTo removes what it has made when it fails.
func (s *Store) copyTo(ctx context.Context, path string) (err error) {
	// SQLite writes into an empty file, and leaves its mode alone.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	db, err := openDB(s.path, "deferred", 1)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return f.Sync()
}
