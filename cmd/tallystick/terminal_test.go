package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/tmux"
)

// browse is a browser that opens one page.
func browse() {
	resp, err := http.Get(os.Args[len(os.Args)-1])
	if err == nil {
		resp.Body.Close()
	}
}

// open runs the command in a terminal.
func (s served) open(t *testing.T, args ...string) *tmux.Window {
	t.Helper()
	var line strings.Builder
	line.WriteString("tallystick")
	for _, arg := range args {
		line.WriteString(" '" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
	}
	line.WriteString("; echo exit code $?.")
	return tmux.Open(t, 100, 40, line.String(), s.env)
}

// openWithPID is open, and a file that has the id of the command's process.
func (s served) openWithPID(t *testing.T, args ...string) (w *tmux.Window, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "pid")
	line := `sh -c 'echo $$ >"$0"; exec tallystick "$@"'`
	for _, arg := range append([]string{file}, args...) {
		line += " " + quoted(arg)
	}
	return tmux.Open(t, 100, 40, line+"; echo exit code $?.", s.env), file
}

func sendSignal(t *testing.T, file string, s os.Signal) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A form that is open when the command is told to end says so, and
// how to come back.
func TestAFormSaysThatTheCommandWasToldToEnd(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s := serveDesk(t)
	header := []string{"--header", "Authorization: Bearer " + s.people.Named("ann").Token}
	for name, with := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			s := served{url: s.url, people: s.people, env: home(t)}
			driver, driverPID := s.openWithPID(t, append([]string{"call", s.url, "refund", `{"orderId":"A-1001"}`}, header...)...)
			driver.See("— choose —")
			id := s.firstCall(t)
			other, otherPID := s.openWithPID(t, append([]string{"answer", id}, header...)...)
			other.See("looking on", "— choose —")
			for _, w := range []struct {
				*tmux.Window
				pid, end string
			}{{other, otherPID, "the command was told to end: the call goes on (" + id}, {driver, driverPID, "the command was told to end: the call is on disk (" + id}} {
				sendSignal(t, w.pid, with)
				screen := w.See("exit code 12.")
				word, end := strings.Index(screen, "The question is not answered, and stays open: the command was told to end. Come back with"), strings.Index(screen, w.end)
				if word < 0 || end < word || !strings.Contains(screen[word:], "tallystick answer "+id) || !strings.Contains(screen, "tallystick resume "+id) || strings.Contains(screen, "answered elsewhere") {
					t.Errorf("it says\n%s", screen)
				}
			}
		})
	}
}

// A form that is open when the process goes that was at the call says who asks now.
func TestAFormSaysThatThisCommandIsAtTheCallNow(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s := served{env: home(t)}
	driver, pid := s.openWithPID(t, "call", "wipe", "--", "far")
	driver.See("— choose —")
	watch := s.open(t, "watch", s.firstCall(t))
	watch.See("looking on", "— choose —")
	sendSignal(t, pid, os.Kill)
	screen := watch.See("This command goes on with it.", "— choose —")
	if strings.Contains(screen, "answered elsewhere") || strings.Count(screen, "Delete everything?") != 2 {
		t.Errorf("it says\n%s", screen)
	}
	watch.Press("Down", "Enter")
	watch.See("Accepting sends", "Accept: send this")
	watch.Press("Down", "Enter")
	watch.See("delete_all", "exit code 0.")
}

// firstCall is the id of the first call that is remembered.
func (s served) firstCall(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "tallystick", "tasks")
	list.Env = s.env
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.Split(string(out), "\n")[1])[0]
}

func TestAPersonApprovesOnATerminal(t *testing.T) {
	t.Parallel()
	s := serveDesk(t)
	w := s.open(t, "call", s.url, "refund", `{"orderId":"A-1001"}`, "--header", "Authorization: Bearer "+s.people.Named("ann").Token)
	w.See(`"orderId": "A-1001"`, "Refund 40.00 EUR to Kim Berg for a kettle?", "— choose —", "127.0.0.1")
	w.Press("Enter") // is no yes
	w.See("choose one")
	w.Press("Down", "Enter")
	w.See("Accepting sends", `"confirm": true`, "Accept: send this")
	w.Press("Down", "Enter")
	w.See(`{"receipt":"R-1","of":"A-1001","paid":"40.00 EUR"}`, "exit code 0.")
}

// case S74: Ctrl-C is no signal within a form, and cancels the call all the same.
func TestCtrlCInAFormCancelsTheCall(t *testing.T) {
	t.Parallel()
	s := serveDesk(t)
	w := s.open(t, "call", s.url, "refund", `{"orderId":"A-1001"}`, "--header", "Authorization: Bearer "+s.people.Named("ann").Token)
	w.See("— choose —")
	w.Press("C-c")
	w.See("cancelling ", "exit code 6.")
}

// case S83: the bar, the server's word, the time and the id are on the screen,
// and Ctrl-C ends the task.
func TestProgressIsShownAndCtrlCEndsTheTask(t *testing.T) {
	t.Parallel()
	s, arguments, _ := withJobs(t)
	w := s.open(t, "call", s.url, "job", "{"+arguments+"}")
	w.See("working", "left", "half of it")
	w.Press("C-c")
	w.See("exit code 6.")
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
	w.See("To sign in to site", "127.0.0.1", "— choose —")
	if site.Came() != 0 {
		t.Error("the page was opened before anybody said so")
	}
	w.Press("Down", "Enter")
	w.See("signed in to site", "exit code 0.")
	w = s.open(t, "call", "site", "greet")
	w.See("hello", "exit code 0.")

	w = s.open(t, "servers", "login", "site")
	w.See("— choose —")
	w.Press("C-c")
	w.See("exit code 10.")
}
