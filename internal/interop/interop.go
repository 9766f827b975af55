// Package interop holds our server against clients that others wrote, and has
// servers that others wrote for our client to be held against. All of them, and
// the Node.js they run under, are pinned by package-lock.json.
package interop

import (
	"context"
	"os/exec"
	"testing"

	"github.com/tallystick/tallystick/internal/child"
	"github.com/tallystick/tallystick/internal/npm"
)

// install installs the packages if that has not been done, or skips the test;
// with CI=true it fails it.
func install(t testing.TB) *npm.Packages {
	t.Helper()
	return npm.Install(t, "internal/interop", "what others wrote")
}

// StartMRTRServer starts a server with the official TypeScript SDK on a free
// port of 127.0.0.1, which is ended with the test. It serves revision
// 2026-07-28 alone; initialize gets -32022. Nobody has to say who they are, and
// it keeps nothing between requests.
//
// Of its tools, confirm {what} asks a boolean ok and tells what was answered,
// declined and cancelled included; two_rounds asks a name and then a colour,
// with a signed requestState (any other is -32602); several asks street, floor
// and lift at once; later has two rounds that ask nothing; visit asks to open a
// page; plain {a, b} adds; broken is an error. The prompt letter and the
// resource mrtr://note ask what they are about.
func StartMRTRServer(t testing.TB) (url string) {
	t.Helper()
	url, _ = child.Serve(t, install(t).Command(context.Background(), "mrtr-server.mjs"))
	return url
}

// MRTRServerCommand is the same server over standard input and output. It
// serves the 2025 era too, to whoever opens with initialize.
func MRTRServerCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	return install(t).Command(context.Background(), "mrtr-server.mjs", "--stdio")
}

// StartEverything starts @modelcontextprotocol/server-everything, of the 2025
// era, on a free port of 127.0.0.1. It is ended with the test.
//
// Its tool trigger-elicitation-request asks live, with a form of every kind of
// field, and is there only for clients that declared elicitation; so is
// trigger-url-elicitation {url}, for elicitation.url, which with errorPath is
// the error -32042 instead. echo {message} and get-sum {a, b} complete.
func StartEverything(t testing.TB) (url string) {
	t.Helper()
	url, _ = child.Serve(t, install(t).Command(context.Background(), "everything.mjs"))
	return url
}

// EverythingCommand is the same server over standard input and output.
func EverythingCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	return install(t).Command(context.Background(), npm.Script("@modelcontextprotocol/server-everything", "dist", "index.js"), "stdio")
}
