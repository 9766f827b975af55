package terminal

import "golang.org/x/sys/unix"

// discard throws away what has been typed into a terminal and not been read.
func discard(terminal uintptr) {
	_ = unix.IoctlSetInt(int(terminal), unix.TCFLSH, unix.TCIFLUSH)
}
