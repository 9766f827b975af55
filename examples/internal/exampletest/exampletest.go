// Package exampletest runs the examples as processes, for their tests.
package exampletest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Build compiles the program in the current folder.
func Build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// A Process is an example that serves over HTTP.
type Process struct {
	URL string
	t   *testing.T
	cmd *exec.Cmd
}

// Start starts a program on a free port of this machine, and returns once it
// serves. It is ended with the test.
func Start(t *testing.T, binary string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: cmd}
	t.Cleanup(p.Kill)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			p.URL = url
			go func() { _, _ = io.Copy(io.Discard, out) }() // so that it never blocks on its output
			p.wait()
			return p
		}
	}
	t.Fatalf("%s did not say where it listens: %v", binary, lines.Err())
	return nil
}

// wait waits until the MCP endpoint does not say any more that it is not ready.
func (p *Process) wait() {
	p.t.Helper()
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		req, err := http.NewRequest("GET", p.URL+"/mcp", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer ann")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				return
			}
		}
	}
	p.t.Fatal("it does not get ready")
}

// Stop ends the process as an operator does, and fails the test if it minds.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("it ended with %v", err)
	}
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // killed
	}
}

// Connect connects a client of the official SDK, in the name of token's holder.
func (p *Process) Connect(token string, o *mcp.ClientOptions) *mcp.ClientSession {
	p.t.Helper()
	return Connect(p.t, &mcp.StreamableClientTransport{Endpoint: p.URL + "/mcp", HTTPClient: &http.Client{Transport: Bearer(token)}}, o)
}

// Connect connects a client of the official SDK.
func Connect(t *testing.T, over mcp.Transport, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "exampletest", Version: "1"}, o).Connect(context.Background(), over, nil)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() }) // the process may have ended
	return session
}

// Call calls a tool and returns the result and its first text.
func Call(t *testing.T, s *mcp.ClientSession, tool string, args any) (*mcp.CallToolResult, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("calling %s: %v", tool, err)
	}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			return res, text.Text
		}
	}
	return res, ""
}

// Bearer sends a token with each request.
type Bearer string

// RoundTrip implements [http.RoundTripper].
func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// Yes answers every question with yes.
func Yes(_ context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
}
