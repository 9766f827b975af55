//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"github.com/tallystick/tallystick/store"
)

// lock takes the lock file, or fails with store.ErrLocked. The kernel gives it
// back when the process ends, however that ends. The file itself stays: to
// delete it would let two processes hold the lock of two files.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = store.ErrLocked
	case err == nil:
		if err = f.Chmod(0o600); err == nil {
			return f, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}
