package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A message is one JSON-RPC message, framed but with its params still whole.
// Its byte slices alias the bytes that were parsed.
type message struct {
	ID       json.RawMessage // as it came; nil when absent
	Method   string          // empty for a response
	Params   json.RawMessage // an object; nil when absent
	Response bool            // a result or an error, and no method
	strict   bool            // all of it is [wellFormed]
}

// isCall reports whether the message wants a response.
func (m *message) isCall() bool { return !m.Response && m.ID != nil }

var envelopeMembers = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// parseMessage frames one JSON-RPC message. The grammar and UTF-8 of the whole
// are checked, and everything but the inside of params, which [parseParams]
// checks the same way on every transport. When it fails, the message's ID is
// still set if it could be read, so that the error can carry it.
func parseMessage(body []byte, limits Limits) (message, *Error) {
	m := message{strict: wellFormed(body)}
	members, err := envelope(body, m.strict)
	if members == nil {
		return message{}, err
	}
	id, idErr := parseID(members["id"])
	m.ID = id
	switch {
	case err != nil:
		return m, err
	case idErr != nil:
		return m, idErr
	}
	if v := members["jsonrpc"]; string(v) != `"2.0"` {
		return m, Errorf(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	}
	for name, v := range members {
		if name == "params" {
			continue
		}
		if nesting(v, limits.Nesting-1) {
			return m, Errorf(CodeInvalidRequest, "nesting is over the limit of %d levels (Limits.Nesting)", limits.Nesting)
		}
		if m.strict {
			continue
		}
		if err := strict(v); err != nil {
			return m, Errorf(CodeInvalidRequest, "%s", err)
		}
	}
	method, hasMethod := members["method"]
	if !hasMethod {
		_, hasResult := members["result"]
		_, hasError := members["error"]
		if m.ID == nil || hasResult == hasError {
			return m, Errorf(CodeInvalidRequest, "method is missing")
		}
		m.Response = true
		return m, nil
	}
	name, ok := unquote(method)
	if !ok || name == "" {
		return m, Errorf(CodeInvalidRequest, "method must be a string that is not empty")
	}
	m.Method = name
	// null is how some clients, the Go SDK's among them, say that there are none.
	if p, ok := members["params"]; ok && string(p) != "null" {
		if p[0] != '{' {
			return m, Errorf(CodeInvalidParams, "params must be an object")
		}
		m.Params = p
	}
	return m, nil
}

// envelope splits the top-level object. Members are nil if it is not one
// object; otherwise they are what was read even when there is an error, whose
// sender wants to know which request it belongs to.
func envelope(body []byte, strict bool) (map[string]json.RawMessage, *Error) {
	if strict && body[skipSpace(body, 0)] == '{' {
		return splitMembers(body, envelopeMembers, func(name, known string) *Error {
			return Errorf(CodeInvalidRequest, "member name %s differs from %q only in case", short(name), known)
		})
	}
	// Names inside params may repeat as far as this decoder cares: parseParams
	// looks, and can then answer with the request's id.
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	switch d.PeekKind() {
	case '{':
	case '[':
		return nil, Errorf(CodeInvalidRequest, "batches are not supported: send one message")
	case 0:
		_, err := d.ReadToken()
		return nil, syntaxError(err)
	default:
		return nil, Errorf(CodeInvalidRequest, "a message must be a JSON object")
	}
	var problem *Error
	twoIDs := false
	members := make(map[string]json.RawMessage, 4)
	err := eachMember(d, body, func(name string, value json.RawMessage) {
		if _, dup := members[name]; dup {
			problem = Errorf(CodeInvalidRequest, "duplicate member name %s", short(name))
			if name == "id" {
				twoIDs = true
			}
			return
		}
		if k := foldsTo(name, envelopeMembers); k != "" {
			problem = Errorf(CodeInvalidRequest, "member name %s differs from %q only in case", short(name), k)
		}
		members[name] = value
	})
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF {
			if twoIDs {
				delete(members, "id") // nobody can say which of them to answer
			}
			return members, problem
		} else if err == nil {
			err = errors.New("there is more after the message")
		}
	}
	return nil, syntaxError(err)
}

// splitMembers is the members of a [wellFormed] object. The error is folded's, of
// a name that differs from a known one only in case.
func splitMembers(object []byte, known []string, folded func(name, known string) *Error) (map[string]json.RawMessage, *Error) {
	var problem *Error
	members := make(map[string]json.RawMessage, 4)
	split(object, known, func(name string, isKnown bool, start, end int) {
		if !isKnown {
			if k := foldsTo(name, known); k != "" {
				problem = folded(name, k)
			}
		}
		members[name] = object[start:end:end]
	})
	return members, problem
}

// eachMember reads the object that is next in d, whose input is all of src, and
// calls f with each member, its value sliced from src.
func eachMember(d *jsontext.Decoder, src []byte, f func(name string, value json.RawMessage)) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		tok, err := d.ReadToken()
		if err != nil {
			return err
		}
		name := tok.String() // before the next read: the token does not outlive it
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		end := d.InputOffset()
		f(name, src[end-int64(len(v)):end:end])
	}
	_, err := d.ReadToken()
	return err
}

// parseID accepts what the specification's RequestId allows, a string or an
// integer of any size, and keeps its bytes. An id that is neither is an error
// and is not echoed.
func parseID(v json.RawMessage) (json.RawMessage, *Error) {
	if v == nil {
		return nil, nil
	}
	if v[0] == '"' || isInteger(string(v)) {
		return v, nil
	}
	return nil, Errorf(CodeInvalidRequest, "id must be a string or an integer")
}

// isInteger reports whether a valid JSON number has neither fraction nor
// exponent.
func isInteger(number string) bool {
	digits := strings.TrimPrefix(number, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// strict checks that no object inside v names a member twice.
func strict(v json.RawMessage) error {
	if len(v) == 0 || (v[0] != '{' && v[0] != '[') {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	if err := d.SkipValue(); err != nil {
		return describe(err)
	}
	return nil
}

// nesting reports whether v nests deeper than limit. It needs no valid JSON and
// no stack, and stops at the first bracket too many.
func nesting(v []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// unquote decodes a JSON string.
func unquote(v json.RawMessage) (string, bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	if n := len(v); n > 1 && v[n-1] == '"' && bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return string(v[1 : n-1]), true
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}

// foldsTo returns the known name that name equals by Unicode case folding and
// not exactly, or "". Another parser on the way may take the two for one: the
// folds include U+017F for s and U+212A for k.
func foldsTo(name string, known []string) string {
	for _, k := range known {
		if name == k {
			return ""
		}
	}
	for _, k := range known {
		if strings.EqualFold(name, k) {
			return k
		}
	}
	return ""
}

func syntaxError(err error) *Error {
	return Errorf(CodeParseError, "invalid JSON: %s", describe(err))
}

// describe says what is wrong with JSON and where, without its values.
func describe(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too soon")
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return fmt.Errorf("duplicate member name at %s", short(string(syntax.JSONPointer)))
	case errors.As(err, &syntax):
		return fmt.Errorf("syntax error at byte %d", syntax.ByteOffset)
	}
	return err
}

// short quotes a name for an error message, cut to a readable length.
func short(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
