// Package trace prints what goes over the wire, without its secrets.
package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/plainjson"
)

// secrets are the members that are masked wherever they stand.
var secrets = map[string]bool{
	"requestState": true, "tallystick/idempotencyKey": true,
	"access_token": true, "refresh_token": true, "id_token": true, "client_secret": true, "registration_access_token": true,
	"password": true,
}

// answers are the members that hold what schemas describe.
var answers = map[string]bool{"content": true, "arguments": true}

// A masker masks messages. It learns from the schemas that it sees which
// values of answers are secret: those of format "password", and what is
// writeOnly. What is answered to a schema that it has not seen is masked.
type masker struct {
	mu     sync.Mutex
	marked map[string]bool // names of properties
	tools  map[string]bool // whose schemas were seen
	asked  map[string]bool // keys of questions that were seen
	all    bool            // what is secret has no name: everything is
}

// A place is where in a message a value stands.
type place int

const (
	elsewhere place = iota
	answer          // it is part of what a schema describes that was seen
	unseen          // it is the object that a schema describes that was not seen
	responses       // it is the object of answers by key
	unasked         // it is the answer to a question that was not seen
)

// message returns one JSON value on one line, masked. What is not JSON is
// described and not shown.
func (m *masker) message(raw []byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(raw)
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := m.copy(dec, enc, m.hides(raw), elsewhere); err != nil {
		return fmt.Sprintf("(%d bytes that are not JSON)", len(raw))
	}
	return visible(strings.TrimSuffix(out.String(), "\n"))
}

// hides reports whether a message has arguments for a tool whose schema was
// not seen.
func (m *masker) hides(raw []byte) bool {
	var call struct {
		Method any `json:"method"`
		Params struct {
			Name any `json:"name"`
		} `json:"params"`
	}
	if json.Unmarshal(raw, &call, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return false // it is no call
	}
	name, _ := call.Params.Name.(string)
	return call.Method == "tools/call" && !m.tools[name]
}

// copy copies one value that stands at a place, and masks within it.
func (m *masker) copy(dec *jsontext.Decoder, enc *jsontext.Encoder, hides bool, here place) error {
	kind := dec.PeekKind()
	if kind != '{' && here == unseen {
		return mask(dec, enc)
	}
	if kind != '{' && kind != '[' {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return enc.WriteValue(v)
	}
	begin, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if err := enc.WriteToken(begin); err != nil {
		return err
	}
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		if kind == '{' {
			err = m.member(dec, enc, hides, here)
		} else {
			err = m.copy(dec, enc, hides, here)
		}
		if err != nil {
			return err
		}
	}
	end, err := dec.ReadToken()
	if err != nil {
		return err
	}
	return enc.WriteToken(end)
}

func (m *masker) member(dec *jsontext.Decoder, enc *jsontext.Encoder, hides bool, here place) error {
	t, err := dec.ReadToken()
	if err != nil {
		return err
	}
	name := t.String()
	if err := enc.WriteToken(jsontext.String(name)); err != nil {
		return err
	}
	if secrets[name] || here == unseen || here == answer && (m.all || m.marked[name]) {
		return mask(dec, enc)
	}
	return m.copy(dec, enc, hides, m.within(here, name, hides))
}

// within is the place of a member of what stands here.
func (m *masker) within(here place, name string, hides bool) place {
	switch {
	case here == answer:
		return answer
	case here == responses && !m.asked[name]:
		return unasked
	case here == responses:
		return elsewhere
	case here == unasked && name == "content", hides && name == "arguments":
		return unseen
	case name == "inputResponses":
		return responses
	case answers[name]:
		return answer
	}
	return here
}

// mask writes how long a value is in its place.
func mask(dec *jsontext.Decoder, enc *jsontext.Encoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	return enc.WriteToken(jsontext.String(masked(string(v))))
}

func masked(text string) string { return fmt.Sprintf("***(%d bytes)", len(text)) }

// visible escapes what a terminal would not show as it is.
func visible(text string) string { return plainjson.Escape(text) }

// Answer is the content of an answer on one line, without what the schema that
// it answers marks as secret.
func Answer(schema, content []byte) string {
	m := masker{all: !jsontext.Value(schema).IsValid()}
	m.message(slices.Concat([]byte(`{"requestedSchema":`), schema, []byte("}")))
	shown := m.message(slices.Concat([]byte(`{"content":`), content, []byte("}")))
	return strings.TrimSuffix(strings.TrimPrefix(shown, `{"content":`), "}")
}
