package reach

import (
	"os/exec"
	"syscall"
)

// apart keeps the terminal's Ctrl-C from the command: it is for us, who then
// ask the server to cancel.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// endGroup does nothing: Windows has no groups to end. The end of its input is
// what ends a server there.
func endGroup(int) error { return nil }
