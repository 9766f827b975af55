//go:build unix

package terminal

import (
	"os"
	"syscall"
)

var goneSignal os.Signal = syscall.SIGUSR1
