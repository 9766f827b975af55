// Package reach makes the connections to servers that the settings name.
package reach

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/trace"
)

// Options of reaching a server.
type Options struct {
	Server settings.Server // expanded
	Tokens string          // the file with its OAuth tokens
	Trace  io.Writer       // nil: no trace
	// Answered is told of the status of each HTTP response. May be nil.
	Answered func(status int)
	// Said gets what a command says on its standard error, line by line.
	Said func(line string)
}

// Transport returns what makes a new transport for each connection.
func Transport(o Options) (func() (mcp.Transport, error), error) {
	var tracer *trace.Tracer
	if o.Trace != nil {
		var names []string
		for name := range o.Server.Headers {
			names = append(names, name)
		}
		tracer = trace.New(o.Trace, names...)
	}
	if o.Server.URL == "" {
		return func() (mcp.Transport, error) {
			var t mcp.Transport = command{o.command()}
			if tracer != nil {
				t = tracer.Transport(t)
			}
			return t, nil
		}, nil
	}
	web := Web(tracer)
	t := mcp.StreamableClientTransport{Endpoint: o.Server.URL, HTTPClient: &http.Client{
		CheckRedirect: web.CheckRedirect,
		Transport:     headers{origin: o.Server.Origin(), add: o.Server.Headers, answered: o.Answered, next: web.Transport},
	}}
	if o.Server.OAuth != nil {
		h, err := signin.Handler(signin.Options{URL: o.Server.URL, OAuth: *o.Server.OAuth, File: o.Tokens, HTTP: web})
		if err != nil {
			return nil, err
		}
		t.OAuthHandler = h
	}
	return func() (mcp.Transport, error) {
		again := t
		return &again, nil
	}, nil
}

// Web is an HTTP client that follows no redirect to another host: what is sent
// is for the server that was named. tracer may be nil.
func Web(tracer *trace.Tracer) *http.Client {
	var next http.RoundTripper = http.DefaultTransport
	if t, ok := next.(*http.Transport); ok {
		next = t.Clone()
	}
	if tracer != nil {
		next = tracer.HTTP(next)
	}
	return &http.Client{Transport: sameOrigin{next}, CheckRedirect: few}
}

// few bounds redirects. Its error is of the server's own address: of others,
// sameOrigin is first.
func few(_ *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return fmt.Errorf("more than %d redirects", len(via)-1)
	}
	return nil
}

// sameOrigin makes an error of a redirect to another host. It is found in the
// response, since an error of http.Client.CheckRedirect is told with the whole
// address redirected to, which may hold a secret.
type sameOrigin struct{ next http.RoundTripper }

func (s sameOrigin) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil || resp.StatusCode < 300 || resp.StatusCode > 399 || resp.Header.Get("Location") == "" {
		return resp, err
	}
	to, err := req.URL.Parse(resp.Header.Get("Location"))
	switch {
	case err != nil:
		err = errors.New("the server redirects to what is no address")
	case to.Scheme != req.URL.Scheme || to.Host != req.URL.Host:
		err = fmt.Errorf("the server redirects to %s: if that is right, use that URL", to.Scheme+"://"+to.Host)
	default:
		return resp, nil
	}
	resp.Body.Close()
	return nil, err
}

// headers adds the server's headers, and to nothing that goes elsewhere.
type headers struct {
	origin   string
	add      map[string]string
	answered func(int)
	next     http.RoundTripper
}

func (h headers) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme+"://"+req.URL.Host == h.origin && len(h.add) > 0 {
		req = req.Clone(req.Context())
		for name, value := range h.add {
			req.Header.Set(name, value)
		}
	}
	resp, err := h.next.RoundTrip(req)
	if err == nil && h.answered != nil {
		h.answered(resp.StatusCode)
	}
	return resp, err
}

// inherited is what a command gets of our environment: what programs need in
// order to run. Everything else may be a secret that is not for this server.
var inherited = []string{
	"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR",
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
}

func (o Options) command() *exec.Cmd {
	cmd := exec.Command(o.Server.Command[0], o.Server.Command[1:]...)
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if _, ours := o.Server.Env[name]; !ours && slices.Contains(inherited, strings.ToUpper(name)) {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	for name, value := range o.Server.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = grace // for what it has started and left behind
	if o.Said != nil {
		cmd.Stderr = &lines{said: o.Said}
	}
	apart(cmd)
	return cmd
}

// lines cuts what is written into lines, and long lines into pieces. It is used
// by one goroutine.
type lines struct {
	said func(string)
	open []byte
}

const longestLine = 4096

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		advance, line, _ := bufio.ScanLines(p, false)
		if advance == 0 { // no end of a line in it
			advance, line = len(p), p
			l.open = append(l.open, line...)
		} else {
			l.said(string(append(l.open, line...)))
			l.open = l.open[:0]
		}
		for len(l.open) >= longestLine {
			l.said(string(l.open[:longestLine]))
			l.open = append(l.open[:0], l.open[longestLine:]...)
		}
		p = p[advance:]
	}
	return n, nil
}
