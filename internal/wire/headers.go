package wire

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerSession = "Mcp-Session-Id"
)

// legacyVersions are the revisions that are spoken in sessions.
var legacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// modernHeader reports whether the protocol version header, if any, is not one
// of the 2025 era. A revision that nobody knows is modern: the answer to it is
// an error that the modern era defines.
func modernHeader(h http.Header) bool {
	return slices.ContainsFunc(h.Values(headerVersion), func(v string) bool { return !slices.Contains(legacyVersions, v) })
}

func mismatch(format string, args ...any) *Error { return Errorf(CodeHeaderMismatch, format, args...) }

// single returns the value of a header that must not repeat: two lines leave
// it open which one an intermediary has looked at.
func single(h http.Header, name string) (value string, present bool, err *Error) {
	switch v := h.Values(name); len(v) {
	case 0:
		return "", false, nil
	case 1:
		return strings.Trim(v[0], " \t"), true, nil
	}
	return "", true, mismatch("header %s is repeated", name)
}

// checkVersion compares the version header with the _meta of a modern request.
func (f *front) checkVersion(h http.Header, p params) *Error {
	header, inHeader, err := single(h, headerVersion)
	if err != nil {
		return err
	}
	meta, inMeta, err := p.version()
	switch {
	case err != nil:
		return err
	case !inMeta && header != Version:
		return f.unsupportedVersion(header)
	case !inMeta:
		return Errorf(CodeInvalidParams, "_meta %q is missing", mcp.MetaKeyProtocolVersion)
	case !inHeader:
		return mismatch("header MCP-Protocol-Version is missing")
	case header != meta:
		return mismatch("header MCP-Protocol-Version differs from _meta %q", mcp.MetaKeyProtocolVersion)
	case meta != Version:
		return f.unsupportedVersion(meta)
	}
	return nil
}

// checkMethod compares Mcp-Method with the body.
func checkMethod(h http.Header, method string) *Error {
	v, ok, err := single(h, headerMethod)
	switch {
	case err != nil:
		return err
	case !ok:
		return mismatch("header %s is missing", headerMethod)
	case v != method:
		return mismatch("header %s differs from the body's method", headerMethod)
	}
	return nil
}

// checkName compares Mcp-Name with the body for the methods that act on
// something named.
func checkName(h http.Header, m message, p params) *Error {
	member := nameMember(m.Method)
	if member == "" {
		return nil
	}
	name, err := p.name(m.Method)
	if err != nil {
		return err
	}
	v, ok, err := single(h, headerName)
	switch {
	case err != nil:
		return err
	case !ok:
		return mismatch("header %s is missing", headerName)
	}
	if v, ok = decodeHeader(v); !ok {
		return mismatch("header %s is not valid base64", headerName)
	}
	if v != name {
		return mismatch("header %s differs from params.%s", headerName, member)
	}
	return nil
}

// checkParams compares each Mcp-Param header of a tool with its argument.
func checkParams(h http.Header, bindings []ParamHeader, arguments json.RawMessage) *Error {
	for _, b := range bindings {
		name := headerParam + b.Header
		v, sent, err := single(h, name)
		if err != nil {
			return err
		}
		arg := lookUp(arguments, b.Path)
		switch {
		case arg == nil && sent:
			return mismatch("header %s is for argument %q, which is absent or null", name, strings.Join(b.Path, "."))
		case arg == nil:
			continue
		case !sent:
			return mismatch("header %s is missing for argument %q", name, strings.Join(b.Path, "."))
		}
		decoded, ok := decodeHeader(v)
		if !ok {
			return mismatch("header %s is not valid base64", name)
		}
		if !sameValue(decoded, arg) {
			return mismatch("header %s differs from argument %q", name, strings.Join(b.Path, "."))
		}
	}
	return nil
}

// lookUp follows path from the arguments' root; nil if it ends nowhere or at null.
func lookUp(v json.RawMessage, path []string) json.RawMessage {
	for _, name := range path {
		if len(v) == 0 || v[0] != '{' {
			return nil
		}
		members, err := object("arguments", v, nil)
		if err != nil {
			return nil
		}
		v = members[name]
	}
	if string(v) == "null" {
		return nil
	}
	return v
}

// sameValue reports whether a header's text is the argument's value: equal
// strings, true or false, or the same integer of any size. Other kinds of
// values have no header form.
func sameValue(header string, arg json.RawMessage) bool {
	switch c := arg[0]; {
	case c == '"':
		s, ok := unquote(arg)
		return ok && s == header
	case c == 't' || c == 'f':
		return header == string(arg)
	case c == '-' || '0' <= c && c <= '9':
		a, okA := integer(string(arg))
		b, okB := integer(header)
		return okA && okB && a == b
	}
	return false
}

// integer writes a JSON number that has an integer value as its digits, exactly:
// 9007199254740993 must not equal its neighbour, and 1.0 is 1.
func integer(number string) (string, bool) {
	rest, negative := strings.CutPrefix(number, "-")
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(rest), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return "", false
	}
	shift := 0
	if scaled {
		var err error
		// No argument needs an integer of more than some hundred digits, and an
		// exponent must not buy gigabytes of zeros.
		if shift, err = strconv.Atoi(exponent); err != nil || shift < -400 || shift > 400 {
			return "", false
		}
	}
	digits, point := whole+fraction, len(whole)+shift
	switch {
	case point > len(digits):
		digits += strings.Repeat("0", point-len(digits))
	case point < 0:
		digits, point = strings.Repeat("0", -point)+digits, 0
	}
	if point < len(digits) {
		if strings.Trim(digits[point:], "0") != "" {
			return "", false
		}
		digits = digits[:point]
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0", true
	}
	if negative {
		digits = "-" + digits
	}
	return digits, true
}

// decodeHeader undoes the =?base64?…?= form of a header value; anything that is
// not wrapped whole is literal. It fails on a wrong alphabet or padding.
func decodeHeader(v string) (string, bool) {
	encoded, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v, true
	}
	if encoded, ok = strings.CutSuffix(encoded, "?="); !ok {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return string(b), err == nil
}
