package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
)

// served is a desk in this process, and what the command needs to reach it.
type served struct {
	url    string
	people desk.People
	env    []string
}

func serveDesk(t *testing.T) served {
	t.Helper()
	data := t.TempDir()
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- desk.Serve(ctx, desk.Options{Data: data, Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Ready: func(url string) { ready <- url }})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var s served
	select {
	case url := <-ready:
		s.url = url + "/mcp"
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	var err error
	if s.people, err = desk.LoadPeople(data); err != nil {
		t.Fatal(err)
	}
	shop, err := desk.OpenShop(data)
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close()
	if _, err := shop.Stock(ctx); err != nil {
		t.Fatal(err)
	}
	s.env = home(t)
	return s
}

// home is an environment with nothing in it from before.
func home(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home)
}

// running is a command at work.
type running struct {
	*exec.Cmd
	errs *bufio.Reader
	out  bytes.Buffer
}

func (s served) start(t *testing.T, person string, args ...string) *running {
	t.Helper()
	if person != "" {
		args = append(args, "--header", "Authorization: Bearer "+s.people.Named(person).Token)
	}
	r := &running{Cmd: exec.CommandContext(t.Context(), "tallystick", args...)}
	r.Env, r.Stdout = s.env, &r.out
	errs, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.errs = bufio.NewReader(errs)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) interrupt(t *testing.T) {
	t.Helper()
	if err := r.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// end returns the exit code and the rest of what it said.
func (r *running) end(t *testing.T) (int, string) {
	t.Helper()
	rest, err := io.ReadAll(r.errs)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := r.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.ProcessState.ExitCode(), string(rest)
}

// case S74: the first Ctrl-C ends the task at the server too.
func TestCtrlCCancelsTheTaskAndReports(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s, arguments, _ := withJobs(t)
	r := s.start(t, "", "call", s.url, "job", "{"+arguments+"}", "--json")
	until(t, r.errs, "working: half of it")
	r.interrupt(t)
	code, rest := r.end(t)
	if code != 6 || !strings.Contains(rest, "cancelling ") {
		t.Errorf("exit code %d; it said\n%s", code, rest)
	}
	var said struct{ State, Outcome, Task string }
	if err := json.Unmarshal(r.out.Bytes(), &said); err != nil || said.State != "cancelled" || said.Outcome != "cancelled" || said.Task == "" {
		t.Errorf("%+v, %v", said, err)
	}
}

// case S74: the second Ctrl-C lets go, and says how to come back.
func TestASecondCtrlCLetsGoOfTheCall(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s, arguments, end := withJobs(t)
	// What has been begun is not broken off by a cancel.
	r := s.start(t, "", "call", s.url, "job", `{"stubborn":true,`+arguments+"}")
	until(t, r.errs, "working: half of it")
	r.interrupt(t)
	until(t, r.errs, "Ctrl-C again lets go of it")
	r.interrupt(t)
	code, rest := r.end(t)
	at := strings.Index(rest, "tallystick resume ")
	if code != 12 || at < 0 {
		t.Fatalf("exit code %d; it said\n%s", code, rest)
	}
	finish(t, end)
	r = s.start(t, "", "resume", strings.Fields(rest[at:])[2], "--quiet")
	if code, rest = r.end(t); code != 6 && code != 0 {
		t.Errorf("resumed: exit code %d; it said\n%s", code, rest)
	}
}

// case S74: what is told to end lets go of the call, and does not cancel it.
func TestSIGTERMLetsGoOfTheCall(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s, arguments, end := withJobs(t)
	r := s.start(t, "", "call", s.url, "job", "{"+arguments+"}")
	until(t, r.errs, "working: half of it")
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, rest := r.end(t)
	if code != 12 || !strings.Contains(rest, "tallystick resume ") {
		t.Fatalf("exit code %d; it said\n%s", code, rest)
	}
	finish(t, end)
	r = s.start(t, "", "resume") // finds it by itself
	if code, rest = r.end(t); code != 0 || strings.TrimSpace(r.out.String()) != "all of it" {
		t.Errorf("resumed: exit code %d, %s; it said\n%s", code, r.out.String(), rest)
	}
}

func noSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED: what signals do, as none can be sent on Windows: run this on another system")
	}
}

// A call has one driver: others look on, and cancel through it. The request is
// broken off then, and nobody can say what it has done.
func TestOtherProcessesLookOnAndCancelThroughTheDriver(t *testing.T) {
	t.Parallel()
	s := served{env: home(t)}
	first := s.start(t, "", "call", "wait", "--", "far")
	said := until(t, first.errs, "far is waiting")
	id := regexp.MustCompile(`(?m)^(\w+) working`).FindStringSubmatch(said)
	if id == nil {
		t.Fatalf("no id in:\n%s", said)
	}
	second := s.start(t, "", "watch", id[1], "--json")
	until(t, second.errs, "is at this call; looking on")
	third := s.start(t, "", "cancel", id[1], "--json")
	if code, rest := third.end(t); code != 1 || !regexp.MustCompile(`"state":"unknown".*"outcome":"failed","exit":1,`).MatchString(third.out.String()) {
		t.Errorf("the third: exit code %d, %s; it said\n%s", code, third.out.String(), rest)
	}
	if code, rest := first.end(t); code != 1 || !strings.Contains(rest, "whether the call was done is unknown") {
		t.Errorf("the first: exit code %d; it said\n%s", code, rest)
	}
	code, rest := second.end(t)
	if code != 1 || !strings.Contains(second.out.String(), `"event":"end"`) {
		t.Errorf("the second: exit code %d, %s; it said\n%s", code, second.out.String(), rest)
	}
}

// case S74: nothing is begun after the command was told to end.
func TestResumeBeginsNothingMoreAfterASignal(t *testing.T) {
	noSignals(t)
	t.Parallel()
	for name, signals := range map[string][]os.Signal{"SIGTERM": {syscall.SIGTERM}, "SIGHUP": {syscall.SIGHUP}, "two Ctrl-C": {os.Interrupt, os.Interrupt}} {
		t.Run(name, func(t *testing.T) {
			s, arguments, _ := withJobs(t)
			for range 2 {
				r := s.start(t, "", "start", s.url, "job", `{"stubborn":true,`+arguments+"}")
				if code, rest := r.end(t); code != 0 {
					t.Fatalf("exit code %d; it said\n%s", code, rest)
				}
			}
			r := s.start(t, "", "resume", "--json")
			until(t, r.errs, "half of it")
			for i, signal := range signals {
				if err := r.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if i < len(signals)-1 {
					until(t, r.errs, "cancelling ")
				}
			}
			code, rest := r.end(t)
			if code != 12 || strings.Contains(rest, "half of it") || strings.Count(r.out.String(), `"outcome":"detached"`) != 2 || strings.Count(r.out.String(), "not begun") != 1 {
				t.Errorf("exit code %d, %s; it said\n%s", code, r.out.String(), rest)
			}
		})
	}
}

// The time of a command is one for all that it does.
func TestResumeBeginsNothingMoreWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	s, arguments, _ := withJobs(t)
	for range 2 {
		r := s.start(t, "", "start", s.url, "job", "{"+arguments+"}")
		if code, rest := r.end(t); code != 0 {
			t.Fatalf("exit code %d; it said\n%s", code, rest)
		}
	}
	r := s.start(t, "", "resume", "--json", "--timeout", "1s")
	code, rest := r.end(t)
	if out := r.out.String(); code != 12 || strings.Count(out, `"outcome":"detached"`) != 2 || strings.Count(out, "not begun, as the time of --timeout is over") != 1 {
		t.Errorf("exit code %d, %s; it said\n%s", code, out, rest)
	}
}

func TestLookingOnTakesNoTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	s, h := heldCall(t)
	m := openMemoryOf(t, s)
	over := make(chan struct{})
	close(over)
	f := &follower{app: &app{ctx: t.Context(), Settings: &settings.Settings{Timeout: time.Hour, Quiet: true}, screen: terminal.NewScreen(os.Stderr)}, answers: &respondent{}, over: over}
	e, left, err := f.lookOn(m, h.Status(), nil)
	if err != nil || !left || e.code != exit.Detached || !strings.HasPrefix(e.text, noTime) {
		t.Errorf("%+v, %v, %v", e, left, err)
	}
}

// Who reads the progress may go; the call is seen through all the same.
func TestAPipeThatNobodyReadsEndsNoCall(t *testing.T) {
	noSignals(t)
	t.Parallel()
	s, arguments, end := withJobs(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "tallystick", "call", s.url, "job", "{"+arguments+"}", "--trace")
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, &out, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	until(t, bufio.NewReader(read), "half of it")
	read.Close()
	finish(t, end)
	if err := cmd.Wait(); err != nil || out.String() != "all of it\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
