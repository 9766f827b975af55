// Package settings is what the command is told once: servers, rules, and where
// it keeps its memory.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// maxFile bounds a settings file, in bytes.
const maxFile = 1 << 20

// A File is what a settings file holds: one JSON object.
type File struct {
	Memory   string            `json:"memory,omitzero"`   // path
	Deadline string            `json:"deadline,omitzero"` // as time.ParseDuration reads it
	Timeout  string            `json:"timeout,omitzero"`
	NoInput  bool              `json:"noInput,omitzero"`
	Quiet    bool              `json:"quiet,omitzero"`
	Servers  map[string]Server `json:"servers,omitzero"`
	Policy   []Rule            `json:"policy,omitzero"`
}

// Settings are the file's, overridden by the environment, overridden by flags.
type Settings struct {
	Path     string // of the file, which need not be there
	Memory   string
	Deadline time.Duration // of a call; zero: the client's default
	Timeout  time.Duration // of waiting for it; zero: none
	NoInput  bool
	Quiet    bool
	Servers  map[string]Server
	Policy   []Rule
}

// Problem is an error that says what to do about it.
type Problem struct{ Text string }

func (p *Problem) Error() string { return p.Text }

func problem(format string, args ...any) error { return &Problem{fmt.Sprintf(format, args...)} }

// members maps what may be set in several places to its name in the file.
var members = map[string]string{
	"memory": "memory", "deadline": "deadline", "timeout": "timeout", "no-input": "noInput", "quiet": "quiet",
}

// variables are the environment's names of what is a boolean in the file.
var variables = map[string]string{"noInput": "TALLYSTICK_NO_INPUT", "quiet": "TALLYSTICK_QUIET"}

// Load reads the settings that hold for a command with these flags, of which
// those of members and "config" count. A file that is not there is empty,
// unless it was named.
func Load(flags *pflag.FlagSet) (*Settings, error) { return load(flags, false) }

// LoadOrBegin is Load for a command that makes the file if it is not there.
func LoadOrBegin(flags *pflag.FlagSet) (*Settings, error) { return load(flags, true) }

func load(flags *pflag.FlagSet, begins bool) (*Settings, error) {
	path, named, err := filePath(flags)
	if err != nil {
		return nil, err
	}
	f, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && (begins || !named) {
		f, err = &File{}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Settings{Path: path, Servers: f.Servers, Policy: f.Policy}
	return s, s.layer(f, flags)
}

// layer puts the environment over the file, and the flags over both.
func (s *Settings) layer(f *File, flags *pflag.FlagSet) error {
	k := koanf.New("/")
	fromEnv := env.Provider("/", env.Opt{Prefix: "TALLYSTICK_", TransformFunc: func(name, value string) (string, any) {
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TALLYSTICK_")), "_", "-")
		if value == "" {
			return "", nil // as if it were not set
		}
		return members[flag], value // no name: not ours
	}})
	fromFlags := posflag.ProviderWithFlag(flags, "/", k, func(fl *pflag.Flag) (string, any) {
		if !fl.Changed {
			return "", nil
		}
		return members[fl.Name], posflag.FlagVal(flags, fl)
	})
	for _, p := range []koanf.Provider{f, fromEnv, fromFlags} {
		if err := k.Load(p, nil); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
	}
	s.Memory = k.String("memory")
	for name, to := range map[string]*bool{"noInput": &s.NoInput, "quiet": &s.Quiet} {
		b, err := strconv.ParseBool(k.String(name))
		if err != nil { // the file and flags are booleans already
			return problem("%s is %q: write true or false", variables[name], k.String(name))
		}
		*to = b
	}
	for name, to := range map[string]*time.Duration{"deadline": &s.Deadline, "timeout": &s.Timeout} {
		text := k.String(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return problem("%s is %q: write a length of time, like 90s, 20m or 24h", name, text)
		}
		*to = d
	}
	if s.Memory == "" {
		folder, err := stateFolder()
		if err != nil {
			return err
		}
		s.Memory = filepath.Join(folder, "calls.db")
	}
	return nil
}

// Read is for koanf: what other places may override.
func (f *File) Read() (map[string]any, error) {
	m := map[string]any{"noInput": f.NoInput, "quiet": f.Quiet}
	for name, text := range map[string]string{"memory": f.Memory, "deadline": f.Deadline, "timeout": f.Timeout} {
		if text != "" {
			m[name] = text
		}
	}
	return m, nil
}

// ReadBytes is for koanf, which calls Read of what needs no parser.
func (f *File) ReadBytes() ([]byte, error) { return nil, errors.ErrUnsupported }

// filePath is where the settings are, and whether somebody said so.
func filePath(flags *pflag.FlagSet) (path string, named bool, err error) {
	if fl := flags.Lookup("config"); fl != nil && fl.Changed {
		return fl.Value.String(), true, nil
	}
	if path := os.Getenv("TALLYSTICK_CONFIG"); path != "" {
		return path, true, nil
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", false, problem("there is no folder for settings: %v. Name a file with --config", err)
	}
	return filepath.Join(folder, "tallystick", "config.json"), false, nil
}

// stateFolder is $XDG_STATE_HOME/tallystick or what the system has for it.
func stateFolder() (string, error) {
	if folder := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "tallystick"), nil
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		folder, err := os.UserCacheDir()
		if runtime.GOOS == "darwin" {
			folder, err = os.UserConfigDir()
		}
		if err != nil {
			return "", problem("there is no folder for the memory: %v. Name a file with --memory", err)
		}
		return filepath.Join(folder, "tallystick"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", problem("there is no folder for the memory: %v. Name a file with --memory", err)
	}
	return filepath.Join(home, ".local", "state", "tallystick"), nil
}

// ReadFile reads a settings file. One that others may read or change is
// refused: it may hold secrets, and says what is answered without asking.
func ReadFile(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, problem("settings %s: mode %04o lets others read or change them: run chmod 600 %s", path, perm, path)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if len(b) > maxFile {
		return nil, problem("settings %s: over 1 MiB", path)
	}
	f := &File{}
	if len(bytes.TrimSpace(b)) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(b, f, json.RejectUnknownMembers(true)); err != nil {
		return nil, problem("settings %s: %v", path, reason(err))
	}
	return f, f.check(path)
}

// reason keeps values out of what is said of a file that does not parse.
func reason(err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return fmt.Errorf("not JSON at byte %d: %w", syntactic.ByteOffset, syntactic.Err)
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		if errors.Is(semantic.Err, json.ErrUnknownName) {
			return fmt.Errorf("unknown member at %s", semantic.JSONPointer)
		}
		return fmt.Errorf("%s does not fit: a %v is wanted", semantic.JSONPointer, semantic.GoType)
	}
	return err
}

func (f *File) check(path string) error {
	for name, s := range f.Servers {
		if err := s.check(name); err != nil {
			return problem("settings %s: %v", path, err)
		}
	}
	for i, r := range f.Policy {
		if err := r.check(); err != nil {
			return problem("settings %s: rule %d of the policy: %v", path, i+1, err)
		}
	}
	return nil
}
