//go:build unix

package reach

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// apart keeps the terminal's Ctrl-C from the command: it is for us, who then
// ask the server to cancel. What the command starts is in its group too.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup ends the processes of a group, whose leader has ended: with SIGTERM,
// and what is left of them after the grace with SIGKILL.
func endGroup(group int) error {
	err := syscall.Kill(-group, syscall.SIGTERM)
	for end := time.Now().Add(grace); err == nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // nothing tells of the end of processes that are not our children
		err = syscall.Kill(-group, 0)
	}
	if err == nil {
		err = syscall.Kill(-group, syscall.SIGKILL)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) { // EPERM: macOS of those that have ended
		return fmt.Errorf("ending what the command has left behind: %w", err)
	}
	return nil
}
