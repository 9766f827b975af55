//go:build !unix

package client

// processExists cannot tell here: the lease does.
func processExists(int) bool { return true }
