package form

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Secrets are what a schema marks as secret, of format password or writeOnly,
// at whatever depth. The schema need be no form.
type Secrets struct {
	names map[string]bool // of properties
	all   bool            // what is marked has no name, or the schema cannot be read
}

// FindSecrets looks at a schema.
func FindSecrets(schema []byte) *Secrets {
	s := &Secrets{names: map[string]bool{}}
	numbers := json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
		if dec.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		_, err := dec.ReadValue() // of whatever size: none is of interest
		return err
	})
	var root any
	if len(schema) > 0 && json.Unmarshal(schema, &root, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), json.WithUnmarshalers(numbers)) != nil {
		s.all = true
		return s
	}
	if marked(root, true) {
		s.all = marked(root, false)
		s.find(root)
	}
	return s
}

// Any reports whether there is a secret.
func (s *Secrets) Any() bool { return s.all || len(s.names) > 0 }

// find looks for the properties that are secret, or hold what is and has no name.
func (s *Secrets) find(v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			s.find(each)
		}
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name, p := range properties {
			if marked(p, false) {
				s.names[name] = true
			}
		}
		for _, each := range v {
			s.find(each)
		}
	}
}

// marked reports whether something in a schema is marked as secret: anything at
// all, or what has no name of its own. A reference may lead to what is, and is
// not followed.
func marked(v any, anything bool) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(each any) bool { return marked(each, anything) })
	case map[string]any:
		if v["format"] == "password" || v["writeOnly"] == true {
			return true
		}
		for word, each := range v {
			switch ref, _ := each.(string); {
			case word == "$ref" || word == "$dynamicRef":
				if !anything || !strings.HasPrefix(ref, "#") {
					return true
				}
			case !anything && (word == "properties" || word == "$defs" || word == "definitions"):
			case marked(each, anything):
				return true
			}
		}
	}
	return false
}

// Mask is content without what is secret in it.
func (s *Secrets) Mask(content jsontext.Value) jsontext.Value {
	if !s.Any() {
		return content
	}
	return s.mask(content)
}

func (s *Secrets) mask(v jsontext.Value) jsontext.Value {
	var parts []string
	switch v.Kind() {
	case '{':
		all, err := members(v)
		if err != nil {
			return hidden(v)
		}
		for _, m := range all {
			name, err := json.Marshal(m.name)
			if err != nil {
				return hidden(v)
			}
			shown := hidden(m.value)
			if !s.all && !s.names[m.name] {
				shown = s.mask(m.value)
			}
			parts = append(parts, string(name)+":"+string(shown))
		}
		return jsontext.Value("{" + strings.Join(parts, ",") + "}")
	case '[':
		var all []jsontext.Value
		if json.Unmarshal(v, &all) != nil {
			return hidden(v)
		}
		for _, each := range all {
			parts = append(parts, string(s.mask(each)))
		}
		return jsontext.Value("[" + strings.Join(parts, ",") + "]")
	}
	return v
}

func hidden(v jsontext.Value) jsontext.Value {
	return jsontext.Value(fmt.Sprintf(`"***(%d bytes)"`, len(v)))
}
