//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package terminal

// discard does nothing: what was typed is read, and dropped, before a page is
// shown, unless the machine is very busy.
func discard(uintptr) {}
