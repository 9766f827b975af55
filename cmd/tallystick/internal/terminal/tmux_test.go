package terminal

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// A tmux is a terminal of its own in which this test binary asks questions.
type tmux struct {
	t      *testing.T
	socket string
}

// startTmux opens a terminal of so many columns and rows and asks in it.
func startTmux(t *testing.T, columns, rows int, questions ...client.Question) *tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing: apt-get install tmux")
		}
		t.Skip("NOT TESTED: forms on a real terminal, as tmux is missing: apt-get install tmux")
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
	if questions == nil {
		questions = []client.Question{}
	}
	raw, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := &tmux{t: t, socket: filepath.Join(dir, "s")}
	cmd := exec.Command("tmux", "-S", x.socket, "-u", "-f", config, "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), "exec '"+program+"'")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMUX") }),
		asks+"="+string(raw), "LC_ALL=C.UTF-8", "TZ=UTC")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { x.run("kill-server") })
	return x
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// screen is what stands there, with what has scrolled away.
func (x *tmux) screen() string {
	x.t.Helper()
	return x.run("capture-pane", "-p", "-S", "-")
}

// patience is how long a busy machine may take to draw a form.
const patience = time.Minute

// see waits until all of these stand on the screen.
func (x *tmux) see(texts ...string) string {
	x.t.Helper()
	missing := func(screen string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(patience)
	for {
		screen := x.screen()
		if !missing(screen) {
			return screen
		}
		select {
		case <-poll.C:
		case <-deadline:
			x.t.Fatalf("%q is not on the screen:\n%s", texts, screen)
		}
	}
}

// press sends keys by their names, and waits for what they lead to.
func (x *tmux) press(key string, texts ...string) string {
	x.t.Helper()
	x.run("send-keys", key)
	return x.see(texts...)
}

// write types text.
func (x *tmux) write(text string, texts ...string) string {
	x.t.Helper()
	x.run("send-keys", "-l", text)
	return x.see(texts...)
}

// interrupt sends the program a signal, as the system does when its time is up.
func (x *tmux) interrupt() {
	x.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(x.run("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		x.t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(os.Interrupt)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// without fails if one of these stands on the screen.
func (x *tmux) without(screen string, texts ...string) {
	x.t.Helper()
	for _, text := range texts {
		if strings.Contains(screen, text) {
			x.t.Errorf("%q is on the screen:\n%s", text, screen)
		}
	}
}

func refund() client.Question {
	q := formOf(yesNo + `,"amount":{"type":"integer","maximum":100,"title":"Amount"},"reason":{"type":"string","default":"because"},
		"why":{"type":"array","items":{"type":"string","enum":["late","broken","lost"]}}`)
	q.Arguments = []byte(`{"order":1234}`)
	q.Message = "Refund 40.00 EUR?\x1b[2J\rServer: trusted"
	return q
}

func TestTypeSeeAndSubmitOnATerminal(t *testing.T) {
	x := startTmux(t, 100, 50, refund())
	screen := x.see(`│ Refund 40.00 EUR?\x1b[2J\rServer: trusted`, "Server:     desk (https://desk.example:8443)", "┃ > — choose —", "> because")
	x.without(screen, "waiting for you")
	x.press("Enter", "this is required: choose one")
	x.press("Down", "> Yes, suggested by the server")
	x.press("Enter", "┃ Amount (amount)")
	x.write("101", "> 101")
	x.press("Enter", "at most 100")
	x.press("BSpace", "> 10")
	x.press("Enter", "┃ reason")
	x.write(" it broke", "> because it broke")
	x.press("Enter", "┃ why", "[ ] lost")
	x.press("Down", "> [ ] broken")
	x.press("x", "[•] broken")
	screen = x.press("Enter", "Accepting sends:", `│   "amount": 10,`, `│   "reason": "because it broke",`, `│     "broken"`, "> — choose —", "Accept: send this")
	x.without(screen, "RESULT", "┃ why")
	x.press("Down", "> Accept: send this")
	screen = x.press("Enter", "Accepted.", `RESULT accept {"delete_all":true,"amount":10,"reason":"because it broke","why":["broken"]}`, "END")
	x.without(screen, "┃", "waiting for you")
}

func TestCtrlCTakesTheFormAway(t *testing.T) {
	x := startTmux(t, 100, 50, refund(), formOf(yesNo))
	x.see("┃ > — choose —", "Amount (amount)")
	x.press("C-c", "Ctrl-C: the question is not answered.", "CANCEL", "RESULT none")
	x.see("┃ > — choose —", "delete_all") // the next question
	x.press("Escape", "Leave the form?", "┃ > — choose —")
	x.press("Down", "> Back to the form")
	x.press("Down", "> Decline")
	screen := x.press("Enter", "Declined.", "RESULT decline", "END")
	x.without(screen, "┃")
}

func TestAFormThatIsGoneLeavesTheTerminal(t *testing.T) {
	x := startTmux(t, 100, 50, refund())
	x.see("┃ > — choose —")
	x.interrupt()
	screen := x.see("The question is gone: it was answered elsewhere, or its call has ended.", "RESULT interrupt", "END")
	x.without(screen, "┃")
}

// case S61
func TestNothingIsOpenedWithoutAKeypress(t *testing.T) {
	x := startTmux(t, 100, 50, client.Question{Server: "desk", Method: "tools/call", Name: "pay", Arguments: []byte("{}"), Key: "k", Kind: client.URL, URL: "https://xn--pypal-4ve.example/pay"})
	screen := x.see("Host:       xn--pypal-4ve.example", "Written:    pаypal.example", "Warning: ", "┃ > — choose —")
	x.without(screen, "OPEN ")
	screen = x.press("Enter", "choose one")
	x.without(screen, "OPEN ")
	x.press("Down", "> Open the address")
	x.press("Enter", "OPEN https://xn--pypal-4ve.example/pay", "Opened xn--pypal-4ve.example.", "┃ > — choose —")
	x.press("Down", "> Open the address")
	x.press("Down", "> Accept: I have done it")
	x.press("Enter", "Accepted.", "RESULT accept", "END")
}

func TestAFormOnASmallScreen(t *testing.T) {
	x := startTmux(t, 40, 12, refund())
	x.see("┃ > — choose —")
	x.press("Down", "> Yes, suggested by")
	x.press("Enter", "┃ Amount (amount)")
	x.press("Enter", "┃ reason")
	x.press("Enter", "┃ why", "[ ] lost")
	x.press("Enter", "Accepting sends:", "Accept: send this")
	x.press("Up", "> Dismiss")
	x.press("Enter", "RESULT cancel", "END")
}

func TestProgressStaysInItsPlace(t *testing.T) {
	for _, columns := range []int{100, 30} {
		x := startTmux(t, columns, 20)
		drawn := func(screen string) {
			t.Helper()
			if n := strings.Count(screen, "waiting for you"); n != 1 {
				t.Errorf("it stands there %d times:\n%s", n, screen)
			}
		}
		for _, spinner := range []string{"⠹ waiting", "⠦ waiting", "⠋ waiting"} {
			drawn(x.see(spinner, "waiting for you"))
		}
		x.interrupt()
		x.without(x.see("END"), "waiting")
	}
}
