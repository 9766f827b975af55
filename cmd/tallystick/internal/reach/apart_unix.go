//go:build unix

package reach

import (
	"os/exec"
	"syscall"
)

// apart keeps the terminal's Ctrl-C from the command: it is for us, who then
// ask the server to cancel.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
