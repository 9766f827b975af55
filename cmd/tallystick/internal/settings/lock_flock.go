//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package settings

import (
	"errors"
	"os"
	"syscall"
)

// lock waits until nobody else holds the lock file, and takes it. The
// kernel gives it back when the process ends, however that ends. The file
// itself stays: to delete it would let two hold the lock of two files.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
