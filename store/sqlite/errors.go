package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"syscall"

	lib "modernc.org/sqlite/lib"

	"github.com/tallystick/tallystick/store"
)

// classify says in the store's words what an error of SQLite or the system
// means to a caller. SQLite's own messages name tables and columns, never what
// is in them.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{store.ErrConflict, store.ErrQuota, store.ErrFull, store.ErrCorrupt, store.ErrLocked, store.ErrClosed, store.ErrNotFound} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("store: the connection to the file was lost: %w", err)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	}
	code, ok := resultCode(err)
	if !ok {
		return err
	}
	switch code & 0xff {
	case lib.SQLITE_FULL:
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_MISMATCH:
		return fmt.Errorf("%w (%w)", store.ErrCorrupt, err)
	}
	// The -shm file is extended before anything is written through it.
	if code == lib.SQLITE_IOERR_SHMSIZE {
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	}
	return err
}

// corrupt says that a row cannot be what this store has written.
func corrupt(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", store.ErrCorrupt, what, err)
}
