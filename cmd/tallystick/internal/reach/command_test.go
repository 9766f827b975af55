//go:build unix

package reach

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
)

func TestNothingThatACommandHasStartedIsLeftBehind(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// It holds the pipe, and does not hear SIGTERM.
	script := `(trap "" TERM; exec sleep 1000 </dev/null >"$1" 2>/dev/null) & "$0"; true`
	dial, err := Transport(Options{Server: settings.Server{
		Command: []string{"sh", "-c", script, os.Args[0], pipe}, Env: map[string]string{"BE_A_SERVER": "1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, nil).Connect(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
	if err := held.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(held); err != nil {
		t.Errorf("it is still there: %v", err)
	}
}
