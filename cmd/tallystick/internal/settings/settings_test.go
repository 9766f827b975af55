package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.String("config", "", "")
	f.String("memory", "", "")
	f.Duration("deadline", 0, "")
	f.Duration("timeout", 0, "")
	f.Bool("no-input", false, "")
	f.Bool("quiet", false, "")
	f.Bool("json", false, "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsOverrideTheEnvironmentWhichOverridesTheFile(t *testing.T) {
	path := file(t, `{"memory": "/of/file", "deadline": "3h", "timeout": "30s", "quiet": true}`)
	t.Setenv("TALLYSTICK_CONFIG", path)
	t.Setenv("TALLYSTICK_MEMORY", "/of/env")
	t.Setenv("TALLYSTICK_TIMEOUT", "40s")
	t.Setenv("TALLYSTICK_NO_INPUT", "1")
	t.Setenv("TALLYSTICK_POWER", "all") // of somebody else
	s, err := Load(flags(t, "--memory", "/of/flag", "--json"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Settings{Path: path, Memory: "/of/flag", Deadline: 3 * time.Hour, Timeout: 40 * time.Second, NoInput: true, Quiet: true}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if s, err = Load(flags(t, "--config", file(t, ""))); err != nil || s.Memory != "/of/env" || s.Quiet {
		t.Errorf("with another file: %+v, %v", s, err)
	}
}

func TestABooleanOfTheEnvironmentIsOneOrAnError(t *testing.T) {
	t.Setenv("TALLYSTICK_CONFIG", file(t, `{"noInput": false}`))
	for value, want := range map[string]bool{"1": true, "true": true, "0": false, "false": false} {
		t.Setenv("TALLYSTICK_NO_INPUT", value)
		if s, err := Load(flags(t)); err != nil || s.NoInput != want {
			t.Errorf("%q: %+v, %v", value, s, err)
		}
	}
	for _, value := range []string{"yes", "on", "no", "2", ""} {
		t.Setenv("TALLYSTICK_NO_INPUT", value)
		if _, err := Load(flags(t)); value != "" && (err == nil || !strings.Contains(err.Error(), "TALLYSTICK_NO_INPUT is \""+value+"\": write true or false")) {
			t.Errorf("%q: %v", value, err)
		} else if value == "" && err != nil {
			t.Errorf("an empty one: %v", err)
		}
	}
}

func TestWithoutAnythingTheMemoryIsInTheStateFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the XDG folders are those of Linux; run this there")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	s, err := Load(flags(t))
	if err != nil || s.Memory != home+"/.local/state/tallystick/calls.db" || s.Path != home+"/.config/tallystick/config.json" {
		t.Errorf("%+v, %v", s, err)
	}
	t.Setenv("XDG_STATE_HOME", "/state")
	t.Setenv("XDG_CONFIG_HOME", home+"/conf")
	if s, err = Load(flags(t)); err != nil || s.Memory != "/state/tallystick/calls.db" || s.Path != home+"/conf/tallystick/config.json" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAFileThatWasNamedMustBeThere(t *testing.T) {
	if _, err := Load(flags(t, "--config", filepath.Join(t.TempDir(), "none.json"))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestSettingsThatOthersMayReadAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes on Windows")
	}
	path := file(t, "{}")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Error(err)
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"polcy": []}`: "unknown member at /polcy",
		`{"memory": 7}`: "/memory does not fit",
		`{"servers": {"a": {"url": "https://x/"}, "a": {"url": "https://y/"}}}`: "duplicate",
		`{"servers"`: "not JSON",
		`{"servers": {"a b": {"url": "https://x/"}}}`:                                                   "a name is of letters",
		`{"servers": {"a": {}}}`:                                                                        "neither a URL nor a command",
		`{"servers": {"a": {"url": "ftp://x"}}}`:                                                        "write https://HOST/PATH",
		`{"servers": {"a": {"url": "https://me:secret@x/"}}}`:                                           "holds a user or password",
		`{"servers": {"a": {"url": "https://x/#y"}}}`:                                                   "fragment",
		`{"servers": {"a": {"url": "https://x/", "command": ["y"]}}}`:                                   "both a URL and a command",
		`{"servers": {"a": {"command": ["y"], "headers": {"X": "1"}}}}`:                                 "headers and OAuth are for a URL",
		`{"servers": {"a": {"url": "https://x/", "env": {"X": "1"}}}}`:                                  "environment variables are for a command",
		`{"servers": {"a": {"url": "https://x/", "headers": {"X Y": "1"}}}}`:                            "not one that HTTP can carry",
		`{"servers": {"a": {"url": "https://x/", "headers": {"X": "1\r\nY: 2"}}}}`:                      "not one that HTTP can carry",
		`{"servers": {"a": {"url": "https://x/", "headers": {"authorization": "secret"}, "oauth":{}}}}`: "use one of them",
		`{"servers": {"a": {"url": "https://x/", "oauth": {"machine": true}}}}`:                         "a machine needs both",
		`{"policy": [{"do": "accept"}]}`:                                                                `"ask", "refuse" or "reply"`,
		`{"policy": [{"do": "reply"}]}`:                                                                 `replies without an "answer"`,
		`{"policy": [{"do": "ask", "answer": {}}]}`:                                                     "does not reply",
		`{"policy": [{"do": "reply", "answer": "secret!"}]}`:                                            "/policy/0/answer does not fit",
	} {
		_, err := ReadFile(file(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		} else if strings.Contains(err.Error(), "secret!") || strings.Contains(err.Error(), "me:") {
			t.Errorf("%s: the error tells a secret: %v", text, err)
		}
	}
	if _, err := ReadFile(file(t, strings.Repeat(" ", maxFile+1))); err == nil {
		t.Error("a file over the limit was read")
	}
}

func TestAChangeKeepsTheRestAndIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.json")
	add := func(name, url string) {
		t.Helper()
		err := Change(path, func(f *File) error {
			if f.Servers == nil {
				f.Servers = map[string]Server{}
			}
			f.Servers[name] = Server{URL: url}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("one", "https://one.example/mcp")
	answer := `{"content":{"count":9007199254740993}}`
	err := Change(path, func(f *File) error {
		f.Policy = []Rule{{Name: "t*", Do: "reply", Answer: &Answer{Action: "accept", Content: []byte(`{"count":9007199254740993}`)}}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	add("two", "https://two.example/mcp")
	f, err := ReadFile(path)
	if err != nil || len(f.Servers) != 2 || len(f.Policy) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if got := string(f.Policy[0].Answer.Content); !strings.Contains(got, "9007199254740993") {
		t.Errorf("%s has become %s", answer, got)
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	refused := errors.New("no")
	if err := Change(path, func(*File) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := Change(path, func(f *File) error { f.Servers["bad"] = Server{}; return nil }); err == nil {
		t.Error("a server without a URL was written")
	}
}

func TestNobodyWhoChangesTheSettingsAtOnceLosesAServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.json")
	const many = 12
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			err := Change(path, func(f *File) error {
				if f.Servers == nil {
					f.Servers = map[string]Server{}
				}
				f.Servers[fmt.Sprint("s", i)] = Server{URL: "https://one.example/mcp"}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if f, err := ReadFile(path); err != nil || len(f.Servers) != many {
		t.Errorf("%v: %d servers of %d", err, len(f.Servers), many)
	}
}

func TestSecretsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("TOKEN", "s3cret")
	s := Server{URL: "https://x/", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}", "X": "$TOKEN ${}"}}
	got, err := s.Expanded()
	if err != nil || got.Headers["Authorization"] != "Bearer s3cret" || got.Headers["X"] != "$TOKEN ${}" {
		t.Errorf("%+v, %v", got, err)
	}
	if s.Headers["Authorization"] != "Bearer ${TOKEN}" {
		t.Error("the settings have changed")
	}
	s.Headers["Y"] = "${TALLYSTICK_NOT_SET}"
	if _, err = s.Expanded(); err == nil || !strings.Contains(err.Error(), "TALLYSTICK_NOT_SET") {
		t.Error(err)
	}
	t.Setenv("TOKEN", "a\nX-Other: b")
	s.Headers = map[string]string{"X": "${TOKEN}"}
	if _, err = s.Expanded(); err == nil {
		t.Error("a line break in a variable went into a header")
	}
}

func TestAServerIsFoundByNameURLOrCommand(t *testing.T) {
	s := &Settings{Servers: map[string]Server{"desk": {URL: "https://desk.example/mcp"}}}
	for arg, want := range map[string]Server{
		"desk":                            {URL: "https://desk.example/mcp"},
		"http://127.0.0.1:80/mcp":         {URL: "http://127.0.0.1:80/mcp"},
		CommandName([]string{"a b", `"`}): {Command: []string{"a b", `"`}},
	} {
		name, got, err := s.Find(arg)
		if err != nil || name != arg || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %+v, %v", arg, name, got, err)
		}
	}
	var missing *NoServer
	if _, _, err := s.Find("dsek"); !errors.As(err, &missing) || !strings.Contains(err.Error(), "known are desk") {
		t.Error(err)
	}
	var p *Problem
	for _, arg := range []string{"https://me@x/", `["`, `[]`, `[""]`} {
		if _, _, err := s.Find(arg); !errors.As(err, &p) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
