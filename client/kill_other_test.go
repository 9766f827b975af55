//go:build !unix

package client_test

// runChild: nothing kills a process here as a crash would.
func runChild() bool { return false }
