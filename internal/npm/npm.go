// Package npm installs, for tests, what a folder's package-lock.json pins, and
// runs it under the Node.js that is pinned there too.
//
// Only the installing needs a network. Scripts of packages are not run by it.
package npm

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

// modules is where npm puts packages, below the folder of their lock.
const modules = "node_modules"

// Packages are those of one folder, installed.
type Packages struct {
	Folder string // absolute
	node   string // the Node.js binary
	shim   string // loopback.cjs
}

// Install returns the packages of a folder, named from the root of this
// repository, after installing what its package-lock.json pins if that has not
// been done. Several processes may do so at one time. What says whom the
// packages are for.
//
// It skips the test, or under CI=true fails it, where they cannot be had and with
// -short.
func Install(t testing.TB, folder, what string) *Packages {
	t.Helper()
	if testing.Short() {
		missing(t, what+" is left out of -short runs")
	}
	root := repository(t)
	p := &Packages{
		Folder: filepath.Join(root, filepath.FromSlash(folder)),
		shim:   filepath.Join(root, "internal", "npm", "loopback.cjs"),
	}
	unlock, err := lock(filepath.Join(p.Folder, ".npm.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if !p.installed() {
		npm, err := exec.LookPath("npm")
		if err != nil {
			missing(t, what+" needs npm: 'apt-get install npm', or run 'npm ci' in "+folder+" elsewhere")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		cmd.Dir = p.Folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("'npm ci' in %s: %v\n%s", folder, err, out)
		}
	}
	p.node = p.findNode(t, what)
	return p
}

// installed reports whether node_modules is what package-lock.json asks for:
// npm writes its own copy of the lock last.
func (p *Packages) installed() bool {
	want, err := os.Stat(filepath.Join(p.Folder, "package-lock.json"))
	if err != nil {
		return false
	}
	got, err := os.Stat(filepath.Join(p.Folder, modules, ".package-lock.json"))
	return err == nil && !got.ModTime().Before(want.ModTime())
}

// findNode returns a Node.js of version 22 or later: the pinned one, or on a
// platform without one the one on PATH.
func (p *Packages) findNode(t testing.TB, what string) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	pinned := filepath.Join(p.Folder, modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(pinned); err == nil {
		return pinned
	}
	need := what + " needs Node.js 22 or later on PATH: npm's package 'node' has none for this platform"
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

// Command returns a command that runs a script under the Node.js, in the
// packages' folder, from which the script is named. What it serves without
// naming a host, it serves on 127.0.0.1 alone.
func (p *Packages) Command(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.node, append([]string{"--require", p.shim, script}, args...)...)
	cmd.Dir = p.Folder
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Script names, from the packages' folder, a file of a package.
func Script(pkg string, file ...string) string {
	return filepath.Join(modules, filepath.FromSlash(pkg), filepath.Join(file...))
}

// repository returns the folder of go.mod. A test's working directory is that
// of its package.
func repository(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		up := filepath.Dir(at)
		if up == at {
			t.Fatal("there is no go.mod above the working directory")
		}
		at = up
	}
}

// missing skips the test, or fails it where nothing may be skipped.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip("SKIPPED: " + what)
}
