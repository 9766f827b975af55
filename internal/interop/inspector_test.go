package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/npm"
)

// An inspected is what the Inspector's command line came to.
type inspected struct {
	exit   int
	stdout string // the result, as JSON
	stderr string // the error, as JSON
}

// inspect runs one request of the Inspector's command line as ann.
func inspect(t *testing.T, url, era string, args ...string) inspected {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := install(t).Command(ctx, npm.Script("@modelcontextprotocol/inspector", "clients", "launcher", "build", "index.js"),
		append([]string{"--cli", "--server-url", url, "--transport", "http", "--header", "Authorization: Bearer ann",
			"--stored-auth-only", "--format", "json", "--protocol-era", era}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // where it keeps what it knows
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("the Inspector with %q: %v\n%s%s", args, err, &out, &log)
	}
	return inspected{cmd.ProcessState.ExitCode(), out.String(), log.String()}
}

// result is the result that was printed.
func (i inspected) result(t *testing.T) *result {
	t.Helper()
	var printed struct {
		Result *result `json:"result"`
	}
	if err := json.Unmarshal([]byte(i.stdout), &printed); err != nil || printed.Result == nil {
		t.Fatalf("the Inspector printed no result (%v), exit %d: %s%s", err, i.exit, i.stdout, i.stderr)
	}
	return printed.Result
}

func tool(name string, args ...string) []string {
	all := []string{"--method", "tools/call", "--tool-name", name}
	if len(args) > 0 {
		all = append(all, "--tool-args-json", args[0])
	}
	return all
}

// inEachEra runs a test in both eras at one time: the Inspector takes long to
// start.
func inEachEra(t *testing.T, f func(t *testing.T, era string)) {
	t.Helper()
	t.Run("eras", func(t *testing.T) {
		for _, era := range []string{"modern", "legacy"} {
			t.Run(era, func(t *testing.T) {
				t.Parallel()
				f(t, era)
			})
		}
	})
}

func TestTheInspectorPrintsWhatItIsTold(t *testing.T) {
	install(t)
	url, _ := newDesk(t).serve(t)
	inEachEra(t, func(t *testing.T, era string) {
		list := inspect(t, url, era, "--method", "tools/list")
		if list.exit != 0 || strings.Count(list.stdout, `"inputSchema"`) != 8 || !strings.Contains(list.stdout, `"name":"refund"`) {
			t.Errorf("the list: %+v", list)
		}
		sum := inspect(t, url, era, tool("add", `{"a":1,"b":2}`)...)
		if got := (line{Result: sum.result(t)}).String(); sum.exit != 0 || got != "result: 3" {
			t.Errorf("add: exit %d, %s", sum.exit, got)
		}
		for _, c := range []struct{ name, args, want string }{
			{"broken", "{}", "isError: it is broken"},
			{"refund", `{"order":7}`, "isError: validating"},
		} {
			failed := inspect(t, url, era, tool(c.name, c.args)...)
			if got := (line{Result: failed.result(t)}).String(); failed.exit != 5 || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: exit %d, %s", c.name, failed.exit, got)
			}
		}
	})
}

// The Inspector's command line declares nothing by which it could be asked. So
// it is told that, or that somebody else is asked; neither is a yes.
func TestTheInspectorIsNeverTakenForAYes(t *testing.T) {
	install(t)
	d := newDesk(t)
	url, end := d.serve(t)
	const cannot = "this needs a client that declares elicitation.form"
	inEachEra(t, func(t *testing.T, era string) {
		asked := inspect(t, url, era, tool("refund", `{"order":"1"}`)...)
		if asked.exit == 0 || !strings.Contains(asked.stdout+asked.stderr, cannot) {
			t.Errorf("a tool that asks its requester: %+v", asked)
		}
		elsewhere := inspect(t, url, era, tool("refund_large", `{"order":"2"}`)...)
		if r := elsewhere.result(t); elsewhere.exit != 5 || r.Meta.Outcome != "pending" || r.Meta.Call == "" {
			t.Errorf("a tool that asks somebody else: %+v", elsewhere)
		}
		prompt := inspect(t, url, era, "--method", "prompts/get", "--prompt-name", "letter")
		if prompt.exit == 0 || !strings.Contains(prompt.stderr, cannot) {
			t.Errorf("a prompt that asks: %+v", prompt)
		}
		resource := inspect(t, url, era, "--method", "resources/read", "--uri", "desk://note")
		if resource.exit == 0 || !strings.Contains(resource.stderr, cannot) {
			t.Errorf("a resource that asks: %+v", resource)
		}
	})
	end()
	d.wantRefunds(t)
	if answers := d.trail(t, "answered", "effect started"); len(answers) != 0 {
		t.Errorf("on record: %q", answers)
	}
}
