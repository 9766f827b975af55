//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package terminal

import "golang.org/x/sys/unix"

// discard throws away what has been typed into a terminal and not been read.
func discard(terminal uintptr) {
	const input = 1 // FREAD of fcntl.h
	_ = unix.IoctlSetPointerInt(int(terminal), unix.TIOCFLUSH, input)
}
