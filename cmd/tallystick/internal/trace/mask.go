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

// schemas are the members that say what is secret in answers.
var schemas = map[string]bool{"requestedSchema": true, "inputSchema": true}

// A masker masks messages. It learns from the schemas that it sees which
// values of answers are secret: those of format "password", and what is
// writeOnly.
type masker struct {
	mu     sync.Mutex
	marked map[string]bool // names of properties
}

// message returns one JSON value on one line, masked. What is not JSON is
// described and not shown.
func (m *masker) message(raw []byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(raw)
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := m.copy(dec, enc, false); err != nil {
		return fmt.Sprintf("(%d bytes that are not JSON)", len(raw))
	}
	return visible(strings.TrimSuffix(out.String(), "\n"))
}

// copy copies one value, and masks within it. answer says that it is part of
// what a schema describes.
func (m *masker) copy(dec *jsontext.Decoder, enc *jsontext.Encoder, answer bool) error {
	kind := dec.PeekKind()
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
			err = m.member(dec, enc, answer)
		} else {
			err = m.copy(dec, enc, answer)
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

func (m *masker) member(dec *jsontext.Decoder, enc *jsontext.Encoder, answer bool) error {
	t, err := dec.ReadToken()
	if err != nil {
		return err
	}
	name := t.String()
	if err := enc.WriteToken(jsontext.String(name)); err != nil {
		return err
	}
	if secrets[name] || answer && m.marked[name] {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return enc.WriteToken(jsontext.String(masked(string(v))))
	}
	return m.copy(dec, enc, answer || answers[name])
}

func masked(text string) string { return fmt.Sprintf("***(%d bytes)", len(text)) }

// learn remembers what the schemas in a message mark as secret.
func (m *masker) learn(raw []byte) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := dec.ReadToken()
		if err != nil {
			return
		}
		if t.Kind() != '"' || !schemas[t.String()] || dec.PeekKind() != '{' {
			continue
		}
		v, err := dec.ReadValue()
		if err != nil {
			return
		}
		var schema struct {
			Properties map[string]struct {
				Format    any `json:"format"`
				WriteOnly any `json:"writeOnly"`
			} `json:"properties"`
		}
		if json.Unmarshal(v, &schema, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
			continue
		}
		for name, p := range schema.Properties {
			if p.Format == "password" || p.WriteOnly == true {
				if m.marked == nil {
					m.marked = map[string]bool{}
				}
				if len(m.marked) < 10_000 { // a hostile server has no use for more
					m.marked[name] = true
				}
			}
		}
	}
}

// visible escapes what a terminal would not show as it is.
func visible(text string) string { return plainjson.Escape(text) }

// Answer is the content of an answer on one line, without what the schema that
// it answers marks as secret.
func Answer(schema, content []byte) string {
	var m masker
	m.message(slices.Concat([]byte(`{"requestedSchema":`), schema, []byte("}")))
	shown := m.message(slices.Concat([]byte(`{"content":`), content, []byte("}")))
	return strings.TrimSuffix(strings.TrimPrefix(shown, `{"content":`), "}")
}
