//go:build unix

package sqlite_test

import "syscall"

// umask sets the process's umask and returns how to restore it. No test of this
// package runs in parallel.
func umask(mask int) (restore func()) {
	old := syscall.Umask(mask)
	return func() { syscall.Umask(old) }
}
