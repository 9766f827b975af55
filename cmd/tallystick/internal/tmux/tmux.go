// Package tmux is a terminal for tests, to be typed into and looked at.
package tmux

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is how long a busy machine may take to draw what is waited for.
const patience = time.Minute

// A Window is one terminal. It is closed with its test.
type Window struct {
	t      testing.TB
	socket string
}

// Open runs a shell command in a terminal of so many columns and rows. Without
// tmux it skips the test, and fails it with CI=true.
func Open(t testing.TB, columns, rows int, command string, env []string) *Window {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing: apt-get install tmux")
		}
		t.Skip("NOT TESTED: what happens on a real terminal, as tmux is missing: apt-get install tmux")
	}
	dir, err := os.MkdirTemp("", "tmux") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, []byte("set -g remain-on-exit on\nset -g escape-time 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &Window{t: t, socket: filepath.Join(dir, "s")}
	cmd := exec.Command("tmux", "-S", w.socket, "-u", "-f", config, "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), command)
	cmd.Env = append(slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "TMUX") }), "LC_ALL=C.UTF-8", "TZ=UTC")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { w.Run("kill-server") })
	return w
}

// Run runs a tmux command and returns what it printed.
func (w *Window) Run(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Screen is what stands there, with what has scrolled away.
func (w *Window) Screen() string {
	w.t.Helper()
	return w.Run("capture-pane", "-p", "-S", "-")
}

// See waits until all of these stand on the screen.
func (w *Window) See(texts ...string) string {
	w.t.Helper()
	missing := func(screen string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(patience)
	for {
		screen := w.Screen()
		if !missing(screen) {
			return screen
		}
		select {
		case <-poll.C:
		case <-deadline:
			w.t.Fatalf("%q is not on the screen:\n%s", texts, screen)
		}
	}
}

// Press sends keys by their names.
func (w *Window) Press(keys ...string) {
	w.t.Helper()
	w.Run(append([]string{"send-keys"}, keys...)...)
}
