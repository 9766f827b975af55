// Package child runs programs for tests: it builds them, waits until they say
// where they listen, and ends them with the test.
package child

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Build builds the program in a folder, named from the test's own, and returns
// the binary. It has the race detector if the test has.
func Build(t testing.TB, folder string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(folder))
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, folder)...).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", folder, err, out)
	}
	return binary
}

// Serve starts a program that will print a line "listening on " and a URL, and
// returns the URL and a function that ends the program. That asks it to end by
// SIGTERM, and it must exit with 0: a race, a panic or a hang on the way out
// fails the test. It is called when the test ends, if not before; a second time
// it does nothing. What the program logged is shown if the test has failed.
//
// The command must not have a context that ends with the test.
func Serve(t testing.TB, cmd *exec.Cmd) (url string, end func()) {
	t.Helper()
	name := filepath.Base(cmd.Args[0])
	var log Log
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if u, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				select {
				case said <- u:
				default:
				}
			}
		}
	}()
	end = sync.OnceFunc(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping %s: %v", name, err)
		}
		slow := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer slow.Stop()
		<-read // Wait closes the pipe, so everything must have been read
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	})
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("%s logged:\n%s", name, log.Tail(20_000))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case url = <-said:
	case <-read:
		t.Fatalf("%s ended before it listened", name)
	case <-ctx.Done():
		t.Fatalf("%s did not listen within 30 s", name)
	}
	return url, end
}

// A Log keeps what a process writes. Its methods are safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // under mu
}

// Write keeps p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Tail returns the last n bytes.
func (l *Log) Tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.buf.Bytes()
	return string(all[max(0, len(all)-n):])
}
