package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

var headerValues = []string{
	"", "eu", "42", "042", "-0", "9007199254740993", "9007199254740992", "1e24", "1000000000000000000000000", "1E400", "true", "null", "eu\x00", "ſ", "\xff", "=?base64?ZXU=?=", "=?base64?ZXU?=", "=?base64?Z XU=?=",
	"=?BASE64?ZXU=?=", "=?base64?=", "=?base64??=", "=?base64?7aCA?=", "*/*", "application/json, text/event-stream", "application/json;q=0", "APPLICATION/JSON; charset=utf-8", "application/jsonp", "http://localhost",
	"http://LOCALHOST:80", "null", "http://[::1]:8080", "https://evil.example@localhost", "http://localhost.evil.example", "http://127.1", "http://0x7f.1", "//localhost", "file:///etc/passwd", "::ffff:127.0.0.1",
}

// FuzzHeaders: what a header is taken to say, a slow reader takes it to say too;
// and one that agrees with the body in every byte is accepted.
func FuzzHeaders(f *testing.F) {
	for i, v := range headerValues {
		for _, arg := range []string{`"eu"`, `42`, `9007199254740993`, `1e24`, `true`, `"\u0065u"`, `-0`, `1e400`, `{}`, `"eu\u0000"`} {
			f.Add(v, headerValues[(i+1)%len(headerValues)], []byte(arg))
		}
	}
	h := NewHTTP(newFake(), HTTPOptions{Server: newSDKServer()})
	f.Fuzz(func(t *testing.T, value, other string, arg []byte) {
		if decoded, ok := decodeHeader(value); !strings.ContainsAny(value, "\r\n") { // net/http lets none through
			wantDecoded(t, value, decoded, ok)
		}
		if wellFormed(arg) && skipSpace(arg, 0) == 0 && len(bytes.TrimRight(arg, " \t\r\n")) == len(arg) {
			checkSame(t, value, arg)
		}
		if isJSON(value) && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "application/json") {
			t.Fatalf("%q is taken for JSON", value)
		}
		if all := strings.ToLower(value + "," + other); accepts([]string{value, other}) && !strings.Contains(all, "*/*") &&
			!(strings.Contains(all, "application/") && strings.Contains(all, "text/")) {
			t.Fatalf("%q and %q are taken for both forms", value, other)
		}
		checkOrigins(t, h, value, other)
		checkAgreement(t, h, value, other, arg)
	})
}

var wrapped = regexp.MustCompile(`(?s)^=\?base64\?(.*)\?=$`)

func wantDecoded(t *testing.T, value, decoded string, ok bool) {
	t.Helper()
	m := wrapped.FindStringSubmatch(value)
	switch {
	case m == nil && (decoded != value || !ok):
		t.Fatalf("%q, which is literal, is %q, %v", value, decoded, ok)
	case m != nil && ok && base64.StdEncoding.EncodeToString([]byte(decoded)) != m[1]:
		t.Fatalf("%q is read as %q", value, decoded)
	case m != nil && !ok:
		if b, err := base64.StdEncoding.DecodeString(m[1]); err == nil && base64.StdEncoding.EncodeToString(b) == m[1] {
			t.Fatalf("%q is not read", value)
		}
	}
}

var (
	plainInteger = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,300})$`)
	looseNumber  = regexp.MustCompile(`^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$`)
)

// checkSame holds sameValue against rational numbers and the standard library.
func checkSame(t *testing.T, header string, arg []byte) {
	t.Helper()
	same := sameValue(header, arg)
	var v any
	d := json.NewDecoder(bytes.NewReader(arg))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", arg, err)
	}
	switch v := v.(type) {
	case string:
		if same != (header == v) {
			t.Fatalf("%q is %s: %t", header, arg, same)
		}
	case bool:
		if same != (header == fmt.Sprint(v)) {
			t.Fatalf("%q is %s: %t", header, arg, same)
		}
	case json.Number:
		if !same {
			if header == string(v) && plainInteger.MatchString(header) {
				t.Fatalf("%q is not %s", header, arg)
			}
			return
		}
		if !looseNumber.MatchString(header) {
			t.Fatalf("%q is taken for a number", header)
		}
		x, _ := new(big.Rat).SetString(header)
		y, _ := new(big.Rat).SetString(string(v))
		if x == nil || y == nil || x.Cmp(y) != 0 || !x.IsInt() {
			t.Fatalf("%q is taken for %s", header, arg)
		}
	default:
		if same {
			t.Fatalf("%q is taken for %s", header, arg)
		}
	}
}

// checkOrigins: an Origin is allowed only if a URL parser says that it is of the
// same host, or of loopback where the server is.
func checkOrigins(t *testing.T, h *HTTP, origin, host string) {
	t.Helper()
	if isLoopback(host) {
		name := hostOf(host)
		if a, err := netip.ParseAddr(name); !strings.EqualFold(name, "localhost") && (err != nil || !a.Unmap().IsLoopback()) {
			t.Fatalf("%q is taken for loopback", host)
		}
	}
	for _, local := range []bool{true, false} {
		if !h.allowedOrigin(origin, host, local) {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			t.Fatalf("%q is allowed", origin)
		}
		if local && isLoopback(u.Host) {
			continue
		}
		if !strings.EqualFold(hostOf(u.Host), hostOf(host)) {
			t.Fatalf("%q is allowed at %q", origin, host)
		}
	}
}

// hostOf is a host without its port and brackets.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789abcdefghijklmnopqrstuvwxyz-") == "" && (strings.Count(host, ":") == 1 || strings.HasSuffix(host[:i], "]")) {
		host = host[:i]
	}
	return strings.Trim(host, "[]")
}

// checkAgreement: headers and body that agree byte for byte are accepted, in
// plain or wrapped, and what is accepted agrees.
func checkAgreement(t *testing.T, h *HTTP, value, name string, arg []byte) {
	t.Helper()
	if !utf8.ValidString(name) || name == "" || !wellFormed(arg) || nesting(arg, 50) {
		return
	}
	quoted, _ := json.Marshal(name)
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"arguments":{"region":%s,"deep":{"n":7}},%s}}`, quoted, arg, modernMeta)
	m, bad := parseMessage(body, h.limits)
	if bad != nil {
		t.Fatalf("%s: %v", body, bad)
	}
	p, bad := parseParams(m.Params, m.strict, h.limits)
	if bad != nil {
		t.Fatalf("%s: %v", body, bad)
	}
	wrap := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	head := http.Header{headerVersion: {Version}, headerMethod: {"tools/call"}, headerName: {wrap(name)}}
	if _, bad := h.checkCall(head, m, p); bad != nil && name != "routed" {
		t.Fatalf("%s: %v", body, bad)
	}
	head[headerName] = []string{value}
	if _, bad := h.checkCall(head, m, p); bad == nil {
		if says, ok := decodeHeader(strings.Trim(value, " \t")); !ok || says != name {
			t.Fatalf("header %q is taken for %q", value, name)
		}
	}
	// The bound argument of the one tool that has headers.
	bindings := h.handler.ParamHeaders("routed")
	head = http.Header{"Mcp-Param-Region": {value}, "Mcp-Param-N": {"7"}}
	if bad := checkParams(head, bindings, p.members["arguments"]); bad == nil {
		if says, ok := decodeHeader(strings.Trim(value, " \t")); !ok || !sameValue(says, bytes.TrimSpace(arg)) {
			t.Fatalf("header %q is taken for %s", value, arg)
		}
	}
	var text string
	if json.Unmarshal(arg, &text) == nil && bytes.HasPrefix(bytes.TrimSpace(arg), []byte(`"`)) {
		head["Mcp-Param-Region"] = []string{wrap(text)}
		if bad := checkParams(head, bindings, p.members["arguments"]); bad != nil {
			t.Fatalf("%q for %s: %v", wrap(text), arg, bad)
		}
	}
}

// pieces gives a stream in pieces of some size, as a pipe may.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func (*pieces) Close() error { return nil }

// said keeps what was written, a line each.
type said struct{ lines []string }

func (s *said) Write(b []byte) (int, error) {
	s.lines = append(s.lines, string(b))
	return len(b), nil
}

func (*said) Close() error { return nil }

// FuzzLines: each line of a stream that says anything is one message or costs one
// error, in order, however the stream is cut, and the stream is read to its end.
func FuzzLines(f *testing.F) {
	for i, v := range nasty {
		f.Add([]byte(v+"\n"+nasty[(i+1)%len(nasty)]+"\r\n\n"+legacyCall), uint16(i))
	}
	f.Add([]byte(strings.Repeat("x", 1001)+"\n"+strings.Repeat(" ", 3000)+"\n\x00\n"+initialize), uint16(0))
	const most = 1000
	limits := Limits{BodyBytes: most}
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		out := &said{}
		conn, err := Stdio(&pieces{stream, 1 + int(size)}, out, limits).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		taken := 0
		for {
			msg, err := conn.Read(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jsonrpc.EncodeMessage(msg); err != nil {
				t.Fatal(err)
			}
			taken++
		}
		want, long := 0, 0
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			text := trimSpace(line)
			switch {
			case len(line)+1 > most+len("\r\n")+1 && len(text) == 0:
				long++ // nothing but blanks, and too many: it may cost an error, and need not
			case len(text) > 0:
				want++
			}
		}
		if got := taken + len(out.lines); got < want || got > want+long {
			t.Fatalf("%d messages and %d errors of %d lines", taken, len(out.lines), want)
		}
		for _, line := range out.lines {
			var m struct {
				ID     json.RawMessage
				Error  *struct{ Code int }
				Result any
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.Error == nil || m.Error.Code == 0 || m.Result != nil || strings.IndexByte(line, '\n') != len(line)-1 {
				t.Fatalf("%q is no error on a line: %v", line, err)
			}
		}
	})
}
