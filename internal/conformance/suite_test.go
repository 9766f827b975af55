package conformance

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/npm"
)

// A suite runs the pinned conformance suite under the pinned Node.js.
type suite struct{ packages *npm.Packages }

// installSuite returns the suite, after installing it if that has not been done.
func installSuite(t *testing.T) suite {
	t.Helper()
	return suite{npm.Install(t, "internal/conformance", "the conformance suite")}
}

// run runs the suite's command line and returns what it printed. The suite's
// exit code says nothing that checks.json does not, so only a suite that could
// not run at all fails here.
func (s suite) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := s.packages.Command(ctx, npm.Script("@modelcontextprotocol/conformance", "dist", "index.js"), args...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("running the suite with %q: %v\n%s", args, err, out)
	}
	return string(out)
}
