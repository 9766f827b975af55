package trace

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxShown bounds what is kept of one message in order to show it, in bytes.
const maxShown = 1 << 20

// secretHeaders are masked by name; so is any whose name says that it is one.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "Mcp-Session-Id"}

// paramHeaders begins the names of headers that repeat arguments.
const paramHeaders = "mcp-param-"

// addresses are the headers that hold a URL, whose query may be secret.
var addresses = []string{"Location", "Content-Location", "Referer"}

// A Tracer prints the messages of any number of transports, a line each. It is
// safe for concurrent use.
type Tracer struct {
	mu    sync.Mutex // of w
	w     io.Writer
	mask  masker
	count atomic.Int64 // of HTTP exchanges
	hide  []string     // headers whose values are not shown either
}

// New makes a tracer that prints to w. The values of the headers named, which
// the settings have, are masked too.
func New(w io.Writer, headers ...string) *Tracer { return &Tracer{w: w, hide: headers} }

func (t *Tracer) line(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, "trace: "+format+"\n", args...)
}

// HTTP wraps a round tripper. What it carries is not changed.
func (t *Tracer) HTTP(next http.RoundTripper) http.RoundTripper { return roundTripper{t, next} }

type roundTripper struct {
	*Tracer
	next http.RoundTripper
}

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	n := t.count.Add(1)
	t.line("→ #%d %s %s", n, req.Method, visible(t.shown(req.URL)))
	t.headers("→", n, req.Header)
	if req.Body != nil && req.Body != http.NoBody {
		out := req.Clone(req.Context())
		out.Body = t.body("→", n, req.Header, req.Body)
		req = out
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		t.line("← #%d %s", n, visible(err.Error()))
		return resp, err
	}
	t.line("← #%d %s", n, visible(resp.Status))
	t.headers("←", n, resp.Header)
	if resp.Body != nil {
		resp.Body = t.body("←", n, resp.Header, resp.Body)
	}
	return resp, nil
}

// address is a URL as it is shown.
func (t *Tracer) address(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return masked(text)
	}
	return t.shown(u)
}

func (t *Tracer) shown(of *url.URL) string {
	u := *of
	u.RawQuery, u.User = t.query(u.RawQuery), nil
	if u.Fragment != "" {
		u.Fragment, u.RawFragment = masked(u.Fragment), ""
	}
	return u.String()
}

// query masks all values of a query: OAuth puts codes and states there.
func (t *Tracer) query(raw string) string {
	var parts []string
	for part := range strings.SplitSeq(raw, "&") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case ok:
			part = name + "=" + masked(value)
		case part != "":
			part = masked(part)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "&")
}

func (t *Tracer) headers(arrow string, n int64, h http.Header) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			switch {
			case t.secretHeader(name):
				value = masked(value)
			case slices.ContainsFunc(addresses, func(other string) bool { return strings.EqualFold(name, other) }):
				value = t.address(value)
			}
			t.line("%s #%d   %s: %s", arrow, n, visible(name), visible(value))
		}
	}
}

func (t *Tracer) secretHeader(name string) bool {
	same := func(other string) bool { return strings.EqualFold(name, other) }
	if slices.ContainsFunc(secretHeaders, same) || slices.ContainsFunc(t.hide, same) {
		return true
	}
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, paramHeaders) {
		return true
	}
	for _, part := range []string{"token", "secret", "key", "auth", "password"} {
		if strings.Contains(lower, part) && lower != "www-authenticate" {
			return true
		}
	}
	return false
}

// body shows a body while it is read: a stream's events as they come, JSON when
// all of it has come, and of anything else how long it was.
func (t *Tracer) body(arrow string, n int64, h http.Header, b io.ReadCloser) io.ReadCloser {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return &body{ReadCloser: b, t: t, prefix: fmt.Sprintf("%s #%d ", arrow, n), kind: kind}
}

// A body is read by one goroutine at a time.
type body struct {
	io.ReadCloser
	t      *Tracer
	prefix string
	kind   string

	kept  bytes.Buffer // the message, or the event's line, so far
	size  int64        // of all of it, or of the line
	ended bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.take(p[:n])
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *body) take(p []byte) {
	for b.kind == "text/event-stream" {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		b.keep(p[:i])
		b.event()
		p = p[i+1:]
	}
	b.keep(p)
}

func (b *body) keep(p []byte) {
	b.size += int64(len(p))
	if room := maxShown - b.kept.Len(); len(p) > room {
		p = p[:max(room, 0)]
	}
	b.kept.Write(p)
}

// event shows one line of a stream, if it carries data.
func (b *body) event() {
	defer func() { b.kept.Reset(); b.size = 0 }()
	data, ok := bytes.CutPrefix(bytes.TrimSuffix(b.kept.Bytes(), []byte("\r")), []byte("data:"))
	switch {
	case !ok || len(bytes.TrimSpace(data)) == 0:
	case b.size > maxShown:
		b.t.line("%s(an event of %d bytes)", b.prefix, b.size)
	default:
		b.t.line("%s%s", b.prefix, b.t.mask.message(data))
	}
}

func (b *body) end() {
	if b.ended {
		return
	}
	b.ended = true
	switch {
	case b.size == 0:
	case b.kind == "text/event-stream":
		b.event()
	case b.kind == "application/json" && b.size <= maxShown:
		b.t.line("%s%s", b.prefix, b.t.mask.message(b.kept.Bytes()))
	default:
		b.t.line("%s(%d bytes of %s)", b.prefix, b.size, visible(b.kind))
	}
}
