package trace

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxLearnt bounds each of what a masker remembers, in names: a hostile server
// has no use for more. What is beyond is masked.
const maxLearnt = 10_000

// learn remembers which tools and questions a message describes, and what
// their schemas mark as secret.
func (m *masker) learn(raw []byte) {
	numbers := json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
		if dec.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		_, err := dec.ReadValue() // of whatever size: none is of interest
		return err
	})
	var v any
	if json.Unmarshal(raw, &v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), json.WithUnmarshalers(numbers)) == nil {
		m.find(v)
	}
}

// find looks for schemas in a message.
func (m *masker) find(v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			m.find(each)
		}
	case map[string]any:
		for name, each := range v {
			switch schema, _ := each.(map[string]any); {
			case schema == nil:
			case name == "inputSchema":
				m.schema(schema)
				if tool, ok := v["name"].(string); ok {
					learn(&m.tools, tool)
				}
				continue
			case name == "requestedSchema":
				m.schema(schema)
				continue
			case name == "inputRequests":
				for key := range schema {
					learn(&m.asked, key)
				}
			}
			m.find(each)
		}
	}
}

// learn reports whether there was room for the name.
func learn(names *map[string]bool, name string) bool {
	if *names == nil {
		*names = map[string]bool{}
	}
	if len(*names) >= maxLearnt && !(*names)[name] {
		return false
	}
	(*names)[name] = true
	return true
}

// schema learns the names of all properties that a schema marks as secret, at
// whatever depth.
func (m *masker) schema(root map[string]any) {
	r := &reader{root: root, steps: maxSteps}
	if r.secret(root) {
		m.all = true
	}
	m.properties(r, root)
}

func (m *masker) properties(r *reader, v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			m.properties(r, each)
		}
	case map[string]any:
		all, _ := v["properties"].(map[string]any)
		for name, property := range all {
			if r.secret(property) && !learn(&m.marked, name) {
				m.all = true
			}
		}
		for _, each := range v {
			m.properties(r, each)
		}
	}
}

// maxSteps bounds what references can make of a schema, in schemas looked at.
// What is not looked at is taken to be secret.
const maxSteps = 100_000

// A reader reads one schema.
type reader struct {
	root  any
	steps int // left
}

// What a schema is made of that has no name of its own: one schema or several,
// and several by a name that is none of a property.
var (
	parts = []string{"items", "prefixItems", "contains", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
		"allOf", "anyOf", "oneOf", "if", "then", "else"}
	named = []string{"patternProperties", "dependentSchemas"}
	refs  = []string{"$ref", "$dynamicRef"}
)

// secret reports whether a value of this schema is secret, or holds what is
// secret and has no name.
func (r *reader) secret(schema any) bool {
	if r.steps--; r.steps < 0 {
		return true
	}
	switch s := schema.(type) {
	case []any:
		return slices.ContainsFunc(s, r.secret)
	case map[string]any:
		if s["format"] == "password" || s["writeOnly"] == true {
			return true
		}
		for _, word := range parts {
			if r.secret(s[word]) {
				return true
			}
		}
		for _, word := range named {
			all, _ := s[word].(map[string]any)
			if slices.ContainsFunc(slices.Collect(maps.Values(all)), r.secret) {
				return true
			}
		}
		for _, word := range refs {
			if ref, ok := s[word].(string); ok {
				if to, ok := r.at(ref); !ok || r.secret(to) {
					return true
				}
			}
		}
	}
	return false
}

// at finds what a reference within the schema leads to. Others, by URL or by
// anchor, are not followed.
func (r *reader) at(ref string) (any, bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path == "" {
		return r.root, ok
	}
	if path[0] != '/' {
		return nil, false
	}
	v := r.root
	for part := range strings.SplitSeq(path[1:], "/") {
		in, _ := v.(map[string]any)
		if v, ok = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]; !ok {
			return nil, false
		}
	}
	return v, true
}
