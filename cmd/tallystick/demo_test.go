package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// walk prepares the command with a folder for temporary files that is checked
// to be empty in the end.
func walk(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	temp := t.TempDir()
	cmd = exec.CommandContext(t.Context(), "tallystick", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "TMP="+temp)
	out = &bytes.Buffer{}
	cmd.Stderr = out
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left behind in the temporary folder: %v, %v", left, err)
		}
	})
	return cmd, out
}

var processes = regexp.MustCompile(`\(process (\d+)\)`)

// noneLeft checks that the processes that the output names are gone.
func noneLeft(t *testing.T, out string) {
	t.Helper()
	found := processes.FindAllStringSubmatch(out, -1)
	if len(found) == 0 {
		t.Error("the output names no server process")
	}
	if runtime.GOOS == "windows" {
		return // there is no signal 0
	}
	for _, m := range found {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if err := p.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func TestDemoShowsWhatItPromises(t *testing.T) {
	t.Parallel()
	cmd, out := walk(t, "demo", "--yes")
	cmd.Stdout = out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	got := out.String()
	for _, want := range []string{
		"\n1. An approval", "? Refund 40.00 EUR to Kim Berg for a kettle? yes (--yes)",
		`← input_required approve "Refund 40.00 EUR to Kim Berg for a kettle?"`,
		"\n2. The same retry", "the response is the same, byte for byte",
		"\n3. The model calls", "the shop's ledger has 1 refund for A-1001, 40.00 EUR; the shop was asked once",
		"\n4. A tampered state", "invalid_request_state",
		"\n5. The order changes", `← input_required approve~2 "Refund 31.50 EUR`,
		"\n6. A second person", "(pending)",
		"\n7. A long job", "SIGKILL", "8 parts of 8, each once",
		"\n8. A job cancelled", "← cancelled",
		"\n9. A question that expires", "(expired)",
		"\n10. An effect", "On hold", "the shop's ledger has 1 payout for A-1006, 305.00 EUR; the shop was asked once",
		"\n11. The audit trail", "refused state_of_another_principal", "effect held payout [A-1006]", "stopped died",
		"All of it was so",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("there are escape codes in output that goes to no terminal")
	}
	if strings.Contains(got, "NOT SO") {
		t.Error("something was not so")
	}
	if n := len(processes.FindAllString(got, -1)); n != 5 {
		t.Errorf("the output names a server process %d times; want 5: started, twice killed and started again", n)
	}
	noneLeft(t, got)
	if t.Failed() {
		t.Log(got)
	}
}

// until reads lines up to the first with text in it.
func until(t *testing.T, r *bufio.Reader, text string) string {
	t.Helper()
	var all strings.Builder
	for {
		line, err := r.ReadString('\n')
		all.WriteString(line)
		if strings.Contains(line, text) {
			return all.String()
		}
		if err != nil {
			t.Fatalf("%v before a line with %q:\n%s", err, text, all.String())
		}
	}
}

func TestInterruptEndsTheServerToo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no interrupt to send on Windows")
	}
	t.Parallel()
	for _, at := range []string{"? Refund 40.00 EUR", "a task, at once"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			args := []string{"demo", "--yes"}
			if at[0] == '?' {
				args = args[:1] // and nobody answers
			}
			cmd, errs := walk(t, args...)
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stdout)
			got := until(t, lines, at)
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(lines)
			if err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || !strings.Contains(errs.String(), "interrupted") {
				t.Errorf("it ended with %v, %s", err, errs)
			}
			noneLeft(t, got+string(rest))
		})
	}
}

func TestServerDoesNotOutliveAKilledWalk(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "tallystick", "demo", "--data", t.TempDir())
	if _, err := cmd.StdinPipe(); err != nil { // nobody answers
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := until(t, bufio.NewReader(stdout), "? Refund 40.00 EUR")
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(said)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(end) {
			t.Fatal("the server is still there")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serving starts "demo --serve" and returns its address and ann's token.
func serving(t *testing.T, data string) (cmd *exec.Cmd, url, token string) {
	t.Helper()
	cmd, errs := walk(t, "demo", "--serve", "--metrics", "--data", data)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	said := until(t, lines, "Ctrl-C ends it")
	go io.Copy(io.Discard, lines) // ends with the command
	m := regexp.MustCompile(`on (http://127\.0\.0\.1:\d+)/mcp(?s:.*)Bearer (ann-\w+)`).FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("no address or token in:\n%s%s", said, errs)
	}
	return cmd, m[1], m[2]
}

// What "demo --serve" says to try is run as it stands, by a shell.
func TestTheDemosHintWorks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED: the hint, as its quotes are those of a Unix shell: run this on another system")
	}
	t.Parallel()
	data := t.TempDir()
	cmd, errs := walk(t, "demo", "--serve", "--data", data)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	hint := regexp.MustCompile("(?m)^tallystick call .*$").FindString(until(t, lines, "Ctrl-C ends it"))
	go io.Copy(io.Discard, lines) // ends with the command
	shell := exec.CommandContext(t.Context(), "sh", "-c", hint+" --yes approve")
	shell.Env = home(t)
	var said strings.Builder
	shell.Stderr = &said
	out, err := shell.Output()
	if err != nil || string(out) != `{"receipt":"R-1","of":"A-1001","paid":"40.00 EUR"}`+"\n" {
		t.Errorf("%q: %s, %v\n%s", hint, out, err, said.String())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs)
	}
}

func TestServeLeavesTheDeskRunning(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	cmd, url, token := serving(t, data)

	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund","arguments":{"orderId":"A-1001"},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	post := func(token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token,
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "refund",
		} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	if code, got := post(token); code != http.StatusOK || !strings.Contains(got, "input_required") {
		t.Errorf("the hint's request: %d %s", code, got)
	}
	if code, _ := post("nobody"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}

	resp, err := http.Get(url + "/waiting")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("what waits, without a token: %d", resp.StatusCode)
	}

	resp, err = http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{"tallystick_open", "tallystick_queue_depth", "tallystick_commit_batch_size_bucket{"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %s in the metrics: %v\n%s", want, err, text)
		}
	}

	// A walk in the same folder is told why it cannot be, and fails.
	second, errs := walk(t, "demo", "--yes", "--data", data)
	second.Stdout = errs
	if err := second.Run(); err == nil || !strings.Contains(errs.String(), "one process per folder") {
		t.Errorf("a second process in the folder: %v\n%s", err, errs)
	}

	if runtime.GOOS == "windows" {
		return
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestTokensOutliveTheServer(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM to send on Windows")
	}
	t.Parallel()
	data := t.TempDir()
	var tokens []string
	for range 2 {
		cmd, url, token := serving(t, data)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/waiting", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var items []any
		if err := json.NewDecoder(resp.Body).Decode(&items); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("what waits for ann: %d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
		tokens = append(tokens, token)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
	if tokens[0] != tokens[1] {
		t.Error("a restart made other tokens: " + fmt.Sprint(len(tokens[0]), len(tokens[1])))
	}
}
