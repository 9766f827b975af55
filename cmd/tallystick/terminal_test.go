package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// browse is a browser that opens one page.
func browse() {
	resp, err := http.Get(os.Args[len(os.Args)-1])
	if err == nil {
		resp.Body.Close()
	}
}

// A window is a terminal of its own in which the command runs.
type window struct {
	t      *testing.T
	socket string
}

// open runs the command in a terminal.
func (s served) open(t *testing.T, args ...string) *window {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing: apt-get install tmux")
		}
		t.Skip("NOT TESTED: the command on a real terminal, as tmux is missing: apt-get install tmux")
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
	w := &window{t: t, socket: filepath.Join(dir, "s")}
	var line strings.Builder
	line.WriteString("tallystick")
	for _, arg := range args {
		line.WriteString(" '" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
	}
	line.WriteString("; echo exit code $?.")
	cmd := exec.Command("tmux", "-S", w.socket, "-u", "-f", config, "new-session", "-d", "-x", "100", "-y", "40", line.String())
	cmd.Env = append(slices.DeleteFunc(slices.Clone(s.env), func(v string) bool { return strings.HasPrefix(v, "TMUX") }), "LC_ALL=C.UTF-8", "TZ=UTC")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { w.run("kill-server") })
	return w
}

func (w *window) run(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// see waits until all of this stands there.
func (w *window) see(texts ...string) string {
	w.t.Helper()
	screen := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		screen = w.run("capture-pane", "-p", "-S", "-")
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(screen, s) }) {
			return screen
		}
	}
	w.t.Fatalf("it does not say %q:\n%s", texts, screen)
	return ""
}

func (w *window) press(keys ...string) {
	w.t.Helper()
	w.run(append([]string{"send-keys"}, keys...)...)
}

func TestAPersonApprovesOnATerminal(t *testing.T) {
	t.Parallel()
	s := serveDesk(t)
	w := s.open(t, "call", s.url, "refund", `{"orderId":"A-1001"}`, "--header", "Authorization: Bearer "+s.people.Named("ann").Token)
	w.see(`"orderId": "A-1001"`, "Refund 40.00 EUR to Kim Berg for a kettle?", "— choose —", "127.0.0.1")
	w.press("Enter") // is no yes
	w.see("choose one")
	w.press("Down", "Enter")
	w.see("Accepting sends", `"confirm": true`, "Accept: send this")
	w.press("Down", "Enter")
	w.see(`{"receipt":"R-1","of":"A-1001","paid":"40.00 EUR"}`, "exit code 0.")
}

// case S74: Ctrl-C is no signal within a form, and cancels the call all the same.
func TestCtrlCInAFormCancelsTheCall(t *testing.T) {
	t.Parallel()
	s := serveDesk(t)
	w := s.open(t, "call", s.url, "refund", `{"orderId":"A-1001"}`, "--header", "Authorization: Bearer "+s.people.Named("ann").Token)
	w.see("— choose —")
	w.press("C-c")
	w.see("cancelling ", "exit code 6.")
}

// case S83: the bar, the server's word, the time and the id are on the screen,
// and Ctrl-C ends the task.
func TestProgressIsShownAndCtrlCEndsTheTask(t *testing.T) {
	t.Parallel()
	s, arguments, _ := withJobs(t)
	w := s.open(t, "call", s.url, "job", "{"+arguments+"}")
	w.see("working", "left", "half of it")
	w.press("C-c")
	w.see("exit code 6.")
}

func TestSigningInOnATerminal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("xdg-open is the browser of Linux: run this there")
	}
	t.Parallel()
	site := newSite()
	t.Cleanup(site.Close)
	s := served{env: home(t)}
	w := s.open(t, "servers", "add", "site", site.URL+"/mcp", "--oauth")
	w.see("To sign in to site", "127.0.0.1", "— choose —")
	if site.Came() != 0 {
		t.Error("the page was opened before anybody said so")
	}
	w.press("Down", "Enter")
	w.see("signed in to site", "exit code 0.")
	w = s.open(t, "call", "site", "greet")
	w.see("hello", "exit code 0.")

	w = s.open(t, "servers", "login", "site")
	w.see("— choose —")
	w.press("C-c")
	w.see("exit code 10.")
}
