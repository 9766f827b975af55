package client

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

const (
	paramPrefix = "Mcp-Param-"
	maxDepth    = 16 // of properties within properties
)

// A paramHeader is an argument that a tool wants in a header as well
// (x-mcp-header in its input schema).
type paramHeader struct {
	path   []string
	header string
}

// property is what counts of a schema here.
type property struct {
	Header     json.RawMessage     `json:"x-mcp-header"`
	Properties map[string]property `json:"properties"`
}

// paramHeaders reads them from an input schema, of whatever type the SDK has it.
func paramHeaders(schema any) []paramHeader {
	b, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	var root property
	if unmarshal(b, &root) != nil {
		return nil
	}
	return root.collect(nil, nil)
}

func (p property) collect(at []string, found []paramHeader) []paramHeader {
	for name, inner := range p.Properties {
		path := append(at[:len(at):len(at)], name)
		var header string
		if unmarshal(inner.Header, &header) == nil && isToken(header) {
			found = append(found, paramHeader{path, header})
		}
		if len(path) < maxDepth {
			found = inner.collect(path, found)
		}
	}
	return found
}

// isToken reports whether s can be part of a header's name (RFC 9110).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

// paramValues are the headers for these arguments. An argument that is absent,
// null or no string, number or boolean has none.
func paramValues(bindings []paramHeader, arguments json.RawMessage) map[string]string {
	var headers map[string]string
	for _, b := range bindings {
		v := arguments
		for _, name := range b.path {
			var object map[string]json.RawMessage
			if unmarshal(v, &object) != nil {
				v = nil
				break
			}
			v = object[name]
		}
		text, ok := headerValue(v)
		if !ok {
			continue
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[paramPrefix+b.header] = encodeHeader(text)
	}
	return headers
}

// headerValue is a value as text.
func headerValue(v json.RawMessage) (string, bool) {
	if len(v) == 0 {
		return "", false
	}
	switch v[0] {
	case '"':
		var s string
		err := unmarshal(v, &s)
		return s, err == nil
	case 't', 'f':
		return string(v), true
	case 'n', '{', '[':
		return "", false
	}
	// Of numbers integers alone are allowed, and those that every reader of
	// JSON keeps exactly.
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53-1 {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// encodeHeader writes what a header cannot hold as it is in base64.
func encodeHeader(s string) string {
	plain := !strings.HasPrefix(s, "=?base64?") && strings.Trim(s, " \t") == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return (r < ' ' && r != '\t') || r > '~' })
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}
