//go:build unix

package client

import (
	"errors"
	"syscall"
)

// processExists reports whether there is a process with this number.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
