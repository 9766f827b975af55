//go:build !unix

package terminal

import "os"

var goneSignal = os.Kill // nobody sends it: the tests that do are skipped
