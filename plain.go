package tallystick

import (
	"bytes"
	"io"
	"reflect"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tallystick/tallystick/internal/canon"
)

// plain is what a schema says, if it says no more than the types of values, the
// properties of objects and the items of arrays: most do, since they are made
// from Go types. It reads JSON text once, and makes no values of it.
//
// What it accepts is valid, has no defaults to be filled in, and has no name
// twice. What it does not accept may be valid all the same: the validator proper
// decides, and says what is wrong.
type plain struct {
	types      types
	properties map[string]*plain
	required   []string
	closed     bool   // has no other properties
	items      *plain // nil: anything
}

type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeInteger
	typeNumber
	typeString
	typeArray
	typeObject
	anyType types = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber | typeInteger,
	"string": typeString, "array": typeArray, "object": typeObject,
}

var anything = &plain{types: anyType}

// plainOf returns nil for a schema that says more than a plain one can.
func plainOf(s *jsonschema.Schema) *plain { return plainAt(s, 0) }

func plainAt(s *jsonschema.Schema, depth int) *plain {
	if s == nil || depth > canon.MaxDepth {
		return nil
	}
	p := &plain{types: anyType, required: s.Required}
	if s.Type != "" || s.Types != nil {
		p.types = typeNames[s.Type]
		for _, name := range s.Types {
			p.types |= typeNames[name]
		}
	}
	if s.Properties != nil {
		p.properties = make(map[string]*plain, len(s.Properties))
	}
	for name, of := range s.Properties {
		if p.properties[name] = plainAt(of, depth+1); p.properties[name] == nil {
			return nil
		}
	}
	if s.Items != nil {
		if p.items = plainAt(s.Items, depth+1); p.items == nil {
			return nil
		}
	}
	if s.AdditionalProperties != nil {
		if !reflect.DeepEqual(s.AdditionalProperties, &jsonschema.Schema{Not: &jsonschema.Schema{}}) {
			return nil
		}
		p.closed = true
	}
	// The rest must say nothing about values.
	rest := *s
	rest.Type, rest.Types, rest.Required, rest.Properties, rest.Items, rest.AdditionalProperties = "", nil, nil, nil, nil, nil
	rest.Title, rest.Description, rest.Comment, rest.Examples, rest.PropertyOrder, rest.Extra = "", "", "", nil, nil, nil
	rest.Deprecated, rest.ReadOnly, rest.WriteOnly = false, false, false
	if !reflect.DeepEqual(rest, jsonschema.Schema{}) {
		return nil
	}
	return p
}

// plainReader is a decoder that is used again: its memory is most of what
// reading takes.
type plainReader struct {
	dec   jsontext.Decoder
	input bytes.Buffer
}

var plainReaders = sync.Pool{New: func() any { return new(plainReader) }}

// accepts reports whether raw is certainly valid. A nil plain accepts nothing.
func (p *plain) accepts(raw []byte) bool {
	if p == nil {
		return false
	}
	r := plainReaders.Get().(*plainReader)
	defer func() {
		r.input = bytes.Buffer{}
		r.dec.Reset(&r.input) // lets go of raw
		plainReaders.Put(r)
	}()
	r.input = *bytes.NewBuffer(raw)
	r.dec.Reset(&r.input)
	if !p.value(&r.dec, 0) {
		return false
	}
	_, err := r.dec.ReadToken()
	return err == io.EOF
}

func (p *plain) value(d *jsontext.Decoder, depth int) bool {
	switch d.PeekKind() {
	case '{':
		return p.types&typeObject != 0 && depth < canon.MaxDepth && p.object(d, depth+1)
	case '[':
		return p.types&typeArray != 0 && depth < canon.MaxDepth && p.array(d, depth+1)
	case '0':
		v, err := d.ReadValue()
		return err == nil && p.number(v)
	case '"':
		return p.types&typeString != 0 && d.SkipValue() == nil
	case 't', 'f':
		return p.types&typeBoolean != 0 && d.SkipValue() == nil
	case 'n':
		return p.types&typeNull != 0 && d.SkipValue() == nil
	}
	return false
}

// number leaves those to the validator proper that are long, or an integer
// only after a calculation.
func (p *plain) number(v jsontext.Value) bool {
	if len(v) > 15 || bytes.ContainsAny(v, "eE") {
		return false
	}
	if bytes.IndexByte(v, '.') >= 0 {
		return p.types&typeNumber != 0
	}
	return p.types&typeInteger != 0
}

func (p *plain) array(d *jsontext.Decoder, depth int) bool {
	items := p.items
	if items == nil {
		items = anything
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for d.PeekKind() != ']' {
		if !items.value(d, depth) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil
}

func (p *plain) object(d *jsontext.Decoder, depth int) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	missing := len(p.required) // no name comes twice
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil || len(name) < 2 || bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
		of := p.properties[string(name[1:len(name)-1])]
		if of == nil && p.closed {
			return false
		}
		for _, r := range p.required {
			if r == string(name[1:len(name)-1]) {
				missing--
			}
		}
		if of == nil {
			of = anything
		}
		if !of.value(d, depth) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil && missing == 0
}
