package conformance

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buildServer builds the fixtures' server, once for a test.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "server")
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "./server")...).CombinedOutput(); err != nil {
		t.Fatalf("building the fixtures' server: %v\n%s", err, out)
	}
	return binary
}

// startServer starts the fixtures' server as a process of its own on a free
// port of 127.0.0.1 and returns its URL once it is ready. When the test ends
// the server is asked to drain, and must exit with 0: a race, a panic or a
// hang on the way out fails the test.
func startServer(t *testing.T, binary, data string) string {
	t.Helper()
	var log logBuffer
	cmd := exec.Command(binary, "-addr", "127.0.0.1:0", "-data", data)
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if u, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				select {
				case url <- u:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping the fixtures' server: %v", err)
		}
		slow := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer slow.Stop()
		<-read // Wait closes the pipe, so everything must have been read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the fixtures' server ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the fixtures' server logged:\n%s", log.tail(20_000))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case u := <-url:
		return u
	case <-read:
		t.Fatal("the fixtures' server ended before it was ready")
	case <-ctx.Done():
		t.Fatal("the fixtures' server was not ready after 30 s")
	}
	return ""
}

// A logBuffer keeps what a process logs; the process and the test share it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // under mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// tail returns the last n bytes.
func (b *logBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.buf.Bytes()
	return string(all[max(0, len(all)-n):])
}

func TestServerKeepsItsStateInItsFolder(t *testing.T) {
	binary := buildServer(t)
	data := filepath.Join(t.TempDir(), "data")
	for range 2 { // the second start finds keys and calls of the first
		t.Run("start", func(t *testing.T) { startServer(t, binary, data) })
	}
	if left, err := os.ReadDir(data); err != nil || len(left) == 0 {
		t.Errorf("the server left %v in its folder (%v), want its store and keys", left, err)
	}
}
