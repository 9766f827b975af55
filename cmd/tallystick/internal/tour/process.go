package tour

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// LogFile is where the server process logs, in the data folder.
const LogFile = "desk.log"

// A process is the refund desk as a process of its own.
type process struct {
	command []string // the program and its arguments, but for the address
	logPath string
	url     string // once it was up; a restart takes the same
	cmd     *exec.Cmd
	stdin   io.Closer // the process drains when this closes, however we end
	exited  chan struct{}
}

func newProcess(command []string, data string) *process {
	return &process{command: command, logPath: filepath.Join(data, LogFile)}
}

// start starts the process and waits until it serves.
func (s *process) start(ctx context.Context) error {
	addr := "127.0.0.1:0"
	if s.url != "" {
		addr = strings.TrimPrefix(s.url, "http://")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has it, too
	cmd := exec.Command(exe)
	cmd.Args = append(append([]string(nil), s.command...), "--addr", addr)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the server process: %w", err)
	}
	s.cmd, s.stdin, s.exited = cmd, stdin, make(chan struct{})
	up := make(chan string, 1)
	go func() { // owned by the process: it ends with its output
		defer close(s.exited)
		lines := bufio.NewScanner(stdout)
		if lines.Scan() {
			up <- strings.TrimPrefix(lines.Text(), "listening on ")
		}
		close(up)
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}()
	select {
	case url, ok := <-up:
		if !ok {
			<-s.exited
			return errors.New("the server process ended at once")
		}
		s.url = url
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(30 * time.Second):
		return errors.New("the server process did not get ready in 30 s")
	}
}

func (s *process) pid() int { return s.cmd.Process.Pid }

// kill ends the process as a crash does: on Unix with SIGKILL.
func (s *process) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	<-s.exited
	return nil
}

// stop lets the process drain, but not for ever. It may be called at any time.
func (s *process) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.stdin.Close()
	select {
	case <-s.exited:
	case <-time.After(15 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// lastWords is the end of the process's log.
func (s *process) lastWords() string {
	raw, err := os.ReadFile(s.logPath)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
