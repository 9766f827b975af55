package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
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

func TestServerKeepsItsStateOverARestart(t *testing.T) {
	binary := buildServer(t)
	data := filepath.Join(t.TempDir(), "data")
	const tool = "test_input_required_result_request_state"
	var asked struct {
		RequestState string `json:"requestState"`
	}
	t.Run("first start", func(t *testing.T) {
		call(t, startServer(t, binary, data), tool, `"arguments":{}`, &asked)
		if asked.RequestState == "" {
			t.Fatal("the first round has no requestState")
		}
	})
	t.Run("second start", func(t *testing.T) {
		var answered struct {
			ResultType string `json:"resultType"`
		}
		retry := `"arguments":{},"requestState":"` + asked.RequestState + `","inputResponses":{"confirm":{"action":"accept","content":{"ok":true}}}`
		call(t, startServer(t, binary, data), tool, retry, &answered)
		if answered.ResultType != "complete" {
			t.Errorf("the retry's result is %q, want complete", answered.ResultType)
		}
	})
}

// call makes one modern tools/call with more members for its params, and
// decodes its result.
func call(t *testing.T, url, tool, params string, result any) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + params + `,"_meta":{
		"io.modelcontextprotocol/protocolVersion":"` + revision + `",
		"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": revision, "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var message struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(answer, &message); err != nil || message.Result == nil {
		t.Fatalf("%s answers %d %s (%v)", tool, resp.StatusCode, answer, err)
	}
	if err := json.Unmarshal(message.Result, result); err != nil {
		t.Fatal(err)
	}
}
