//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package sqlite

import (
	"errors"
	"os"
)

// lock fails: without a lock that ends with the process, two could have the
// file open.
func lock(string) (*os.File, error) {
	return nil, errors.ErrUnsupported
}
