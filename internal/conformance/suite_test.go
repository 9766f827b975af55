package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// modules is where npm puts the suite and its Node.js.
const modules = "node_modules"

// A suite runs the pinned conformance suite under the pinned Node.js.
type suite struct {
	node   string // the Node.js binary
	script string // the suite's command line
}

// installSuite returns the suite, after installing what package-lock.json pins
// if that has not been done. Only the installing needs a network.
func installSuite(t *testing.T) suite {
	t.Helper()
	if testing.Short() {
		missing(t, "the conformance suite is left out of -short runs: run 'make conformance'")
	}
	if !installed() {
		npm, err := exec.LookPath("npm")
		if err != nil {
			missing(t, "the conformance suite needs npm to install it: 'apt-get install npm', or run 'npm ci' in internal/conformance elsewhere")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("'npm ci' in internal/conformance: %v\n%s", err, out)
		}
	}
	return suite{
		node:   findNode(t),
		script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}
}

// installed reports whether node_modules is what package-lock.json asks for:
// npm writes its own copy of the lock last.
func installed() bool {
	want, err := os.Stat("package-lock.json")
	if err != nil {
		return false
	}
	got, err := os.Stat(filepath.Join(modules, ".package-lock.json"))
	return err == nil && !got.ModTime().Before(want.ModTime())
}

// findNode returns a Node.js of version 22 or later: the pinned one, or on a
// platform without one the one on PATH.
func findNode(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	pinned := filepath.Join(modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(pinned); err == nil {
		abs, err := filepath.Abs(pinned)
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	const need = "the conformance suite needs Node.js 22 or later on PATH: npm's package 'node' has none for this platform"
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, need)
	}
	out, err := exec.CommandContext(t.Context(), node, "-p", "+process.versions.node.split('.')[0] >= 22").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		missing(t, need)
	}
	return node
}

// missing skips the test, or fails it where nothing may be skipped.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip("SKIPPED: " + what)
}

// run runs the suite's command line and returns what it printed. The suite's
// exit code says nothing that checks.json does not, so only a suite that could
// not run at all fails here.
func (s suite) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.node, append([]string{"--require", "./loopback.cjs", s.script}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("running the suite with %q: %v\n%s", args, err, out)
	}
	return string(out)
}
