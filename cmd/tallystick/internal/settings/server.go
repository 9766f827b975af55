package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Server is reached by its URL or by a command that speaks MCP on its
// standard input and output.
type Server struct {
	URL     string            `json:"url,omitzero"`
	Headers map[string]string `json:"headers,omitzero"` // "${NAME}" in a value is an environment variable
	OAuth   *OAuth            `json:"oauth,omitzero"`

	Command []string          `json:"command,omitzero"`
	Env     map[string]string `json:"env,omitzero"` // beyond what every program needs; "${NAME}" as in Headers
}

// OAuth says how to get tokens for a server.
type OAuth struct {
	// ClientID is of a client that the authorisation server knows already. Empty:
	// one is registered when signing in.
	ClientID string `json:"clientId,omitzero"`
	// ClientSecret of that client; "${NAME}" in it is an environment variable.
	ClientSecret string `json:"clientSecret,omitzero"`
	// Machine: the client acts for itself (client credentials), not for a person.
	Machine bool `json:"machine,omitzero"`
}

// A Rule rules on questions, as a client.Rule does.
type Rule struct {
	Server string  `json:"server,omitzero"`
	Name   string  `json:"name,omitzero"` // of the tool or prompt, or the URI
	Key    string  `json:"key,omitzero"`
	Kind   string  `json:"kind,omitzero"`
	Do     string  `json:"do"` // "ask", "refuse" or "reply"
	Answer *Answer `json:"answer,omitzero"`
}

// An Answer is what a rule replies, as a client.Answer is.
type Answer struct {
	Action  string         `json:"action,omitzero"`
	Content jsontext.Value `json:"content,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
}

func (r Rule) check() error {
	switch r.Do {
	case "ask", "refuse":
		if r.Answer != nil {
			return fmt.Errorf(`it has an answer, and does not reply: "do" is %q`, r.Do)
		}
	case "reply":
		if r.Answer == nil {
			return errors.New(`it replies without an "answer"`)
		}
	default:
		return fmt.Errorf(`"do" is "ask", "refuse" or "reply", not %q`, r.Do)
	}
	return nil
}

var (
	serverName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	headerName  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")
	headerValue = regexp.MustCompile(`^[\t\x20-\x7e\x80-\xff]*$`)
	variable    = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	varName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// IsName reports whether a server can have this name.
func IsName(name string) bool { return serverName.MatchString(name) }

// NoServer is the error for a server that is in no settings, and no URL.
type NoServer struct{ text string }

func (n *NoServer) Error() string { return n.text }

func (s Server) check(name string) error {
	if !IsName(name) {
		return fmt.Errorf("server %q: a name is of letters, digits, '.', '_' and '-', at most 64", name)
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	return nil
}

// Check finds what cannot be meant.
func (s Server) Check() error {
	switch {
	case s.URL == "" && len(s.Command) == 0:
		return errors.New("it has neither a URL nor a command")
	case s.URL != "" && len(s.Command) > 0:
		return errors.New("it has both a URL and a command")
	case s.URL == "" && (len(s.Headers) > 0 || s.OAuth != nil):
		return errors.New("headers and OAuth are for a URL")
	case s.URL != "" && len(s.Env) > 0:
		return errors.New("environment variables are for a command")
	case len(s.Command) > 0 && s.Command[0] == "":
		return errors.New("the command is empty")
	}
	for name, value := range s.Headers {
		if !headerName.MatchString(name) || !headerValue.MatchString(value) {
			return fmt.Errorf("header %q is not one that HTTP can carry", name)
		}
		if s.OAuth != nil && strings.EqualFold(name, "Authorization") {
			return errors.New("it has an Authorization header and OAuth: use one of them")
		}
	}
	for name := range s.Env {
		if !varName.MatchString(name) {
			return fmt.Errorf("%q is no name of an environment variable", name)
		}
	}
	if o := s.OAuth; o != nil && (o.ClientID == "" && (o.ClientSecret != "" || o.Machine) || o.Machine && o.ClientSecret == "") {
		return errors.New("OAuth: a client secret needs a client id, and a machine needs both")
	}
	return checkURL(s.URL)
}

func checkURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("URL %q cannot be read", text)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("URL %q: write https://HOST/PATH", text)
	case u.User != nil:
		return errors.New("the URL holds a user or password, and would be shown: use a header")
	case u.Fragment != "":
		return fmt.Errorf("URL %q has a fragment, which is not sent", text)
	}
	return nil
}

// Origin is the scheme and host of the server's URL.
func (s Server) Origin() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Find returns the server that is meant by a name of the settings, by a URL,
// or by what CommandName made of a command. The name is the one under which
// calls are remembered. Errors: [Problem], [NoServer].
func (s *Settings) Find(arg string) (name string, server Server, err error) {
	if known, ok := s.Servers[arg]; ok {
		return arg, known, nil
	}
	switch {
	case strings.HasPrefix(arg, "http://"), strings.HasPrefix(arg, "https://"):
		server.URL = arg
	case strings.HasPrefix(arg, "["):
		if err := json.Unmarshal([]byte(arg), &server.Command); err != nil {
			return "", server, problem("%q is no command", arg)
		}
	default:
		names := "none is known"
		if len(s.Servers) > 0 {
			names = "known are " + strings.Join(slices.Sorted(maps.Keys(s.Servers)), ", ")
		}
		return "", server, &NoServer{fmt.Sprintf("no server %q: %s", arg, names)}
	}
	if err := server.Check(); err != nil {
		return "", server, &Problem{err.Error()}
	}
	return arg, server, nil
}

// CommandName is the name under which calls to a command that is in no
// settings are remembered: a JSON array of its arguments, so that Find finds
// it again.
func CommandName(args []string) string {
	b, _ := json.Marshal(args) // strings always marshal
	return string(b)
}

// Expanded replaces each "${NAME}" in headers, environment and client secret
// by the environment variable. One that is not set is an error.
func (s Server) Expanded() (Server, error) {
	var missing []string
	expand := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(ref string) string {
			name := ref[2 : len(ref)-1]
			value, ok := os.LookupEnv(name)
			if !ok && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
			return value
		})
	}
	all := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[k] = expand(v)
		}
		return out
	}
	s.Headers, s.Env = all(s.Headers), all(s.Env)
	if s.OAuth != nil {
		o := *s.OAuth
		o.ClientSecret = expand(o.ClientSecret)
		s.OAuth = &o
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return s, problem("the settings of this server need environment variables that are not set: %s", strings.Join(missing, ", "))
	}
	if err := s.Check(); err != nil {
		return s, &Problem{err.Error()}
	}
	return s, nil
}
