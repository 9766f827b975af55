//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package npm

import (
	"errors"
	"os"
	"syscall"
)

// lock waits until no other process holds the lock file, and takes it. The
// kernel gives it back when the process ends, however that ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
