// Package form reads the schema that a server asks with as fields for a person
// to fill in, and makes the content of the answer from what they have typed.
//
// It makes up nothing: a field that the person leaves out is left out, and
// defaults are suggestions to be shown.
package form

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// A Kind is how a field is filled in.
type Kind int

// Kinds of fields.
const (
	Text    Kind = iota // typed
	Number              // typed, kept digit by digit
	Integer             // typed, kept digit by digit
	YesNo               // one of two choices
	One                 // one choice
	Many                // any number of choices
)

// A Field is one property of the object that the server asks for. Its texts
// are the server's and not escaped.
type Field struct {
	Name               string
	Title, Description string
	Kind               Kind
	Required           bool
	Secret             bool     // of format password, or writeOnly: not to be shown
	Choices            []Choice // of YesNo, One and Many
	Default            jsontext.Value

	format               string
	pattern              *regexp.Regexp
	minLength, maxLength *int
	minimum, maximum     string // decimal numbers, or empty
	above, below         string // bounds that are not allowed themselves
	minItems, maxItems   *int
}

// A Choice is a value that can be chosen, under the title that the server gives
// it: "Yes" and "No" of a YesNo.
type Choice struct {
	Value     jsontext.Value
	Title     string
	Suggested bool // the field's default, or among it
}

// A Form is the fields of a schema, in the order that it has them in.
type Form struct {
	Fields []Field
	check  *jsonschema.Resolved
}

// Limits of what is shown as a form.
const (
	MaxFields  = 100     // in a form
	MaxChoices = 100_000 // in a field
)

// Parse reads a requestedSchema of elicitation (revision 2026-07-28): an object
// with properties of one simple type each. Its error names the property that is
// something else.
func Parse(schema []byte) (*Form, error) {
	var s struct {
		Type       string         `json:"type"`
		Properties jsontext.Value `json:"properties"`
		Required   []string       `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("the schema of the question cannot be read: %w", err)
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("the question asks for a value of type %s, not for an object", quoted(s.Type))
	}
	properties, err := members(s.Properties)
	if err != nil {
		return nil, fmt.Errorf("the properties of the question's schema: %w", err)
	}
	if len(properties) > MaxFields {
		return nil, fmt.Errorf("the question has %d properties; %d can be shown as a form", len(properties), MaxFields)
	}
	f := &Form{}
	for _, p := range properties {
		field, err := parseField(p.value)
		if err != nil {
			return nil, fmt.Errorf("property %s: %w", quoted(p.name), err)
		}
		field.Name = p.name
		field.Required = slices.Contains(s.Required, p.name)
		f.Fields = append(f.Fields, field)
	}
	for _, name := range s.Required {
		if !slices.ContainsFunc(f.Fields, func(f Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("property %s: it is required, and the schema does not say what it is", quoted(name))
		}
	}
	if f.check, err = resolve(schema); err != nil {
		return nil, fmt.Errorf("the schema of the question: %w", err)
	}
	return f, nil
}

func resolve(schema []byte) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := s.UnmarshalJSON(schema); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

func quoted(name string) string { return `"` + safetext.Short(name, 80) + `"` }

type member struct {
	name  string
	value jsontext.Value
}

// members reads an object in its order. Absent is empty.
func members(raw jsontext.Value) ([]member, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if d.PeekKind() != '{' {
		return nil, errors.New("they are no object")
	}
	_, err := d.ReadToken()
	var all []member
	for err == nil && d.PeekKind() == '"' {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil {
			break
		}
		m := member{name: name.String()}
		if m.value, err = d.ReadValue(); err == nil {
			m.value = m.value.Clone()
			all = append(all, m)
		}
	}
	return all, err
}

// A property is what may stand in a PrimitiveSchemaDefinition.
type property struct {
	Type        jsontext.Value   `json:"type"`
	Title       string           `json:"title"`
	Description string           `json:"description"`
	Default     jsontext.Value   `json:"default"`
	Format      string           `json:"format"`
	WriteOnly   bool             `json:"writeOnly"`
	Pattern     string           `json:"pattern"`
	MinLength   *int             `json:"minLength"`
	MaxLength   *int             `json:"maxLength"`
	Minimum     jsontext.Value   `json:"minimum"`
	Maximum     jsontext.Value   `json:"maximum"`
	Above       jsontext.Value   `json:"exclusiveMinimum"`
	Below       jsontext.Value   `json:"exclusiveMaximum"`
	Enum        []jsontext.Value `json:"enum"`
	EnumNames   []string         `json:"enumNames"`
	OneOf       []titled         `json:"oneOf"`
	AnyOf       []titled         `json:"anyOf"` // of items
	Items       *property        `json:"items"`
	MinItems    *int             `json:"minItems"`
	MaxItems    *int             `json:"maxItems"`

	// What makes it something else.
	Properties jsontext.Value `json:"properties"`
	Ref        jsontext.Value `json:"$ref"`
	AllOf      jsontext.Value `json:"allOf"`
	Not        jsontext.Value `json:"not"`
	If         jsontext.Value `json:"if"`
}

type titled struct {
	Const jsontext.Value `json:"const"`
	Title string         `json:"title"`
}

func parseField(raw jsontext.Value) (Field, error) {
	var p property
	if err := json.Unmarshal(raw, &p); err != nil {
		return Field{}, fmt.Errorf("it cannot be read as a simple property: %w", err)
	}
	for _, more := range []jsontext.Value{p.Properties, p.Ref, p.AllOf, p.Not, p.If} {
		if len(more) > 0 {
			return Field{}, errors.New("it is more than a simple value")
		}
	}
	f := Field{Title: p.Title, Description: p.Description, Default: p.Default, Secret: p.WriteOnly || p.Format == "password"}
	if string(f.Default) == "null" {
		f.Default = nil
	}
	var typ string
	if err := json.Unmarshal(p.Type, &typ); err != nil {
		return f, errors.New("it has no type, or more than one")
	}
	if typ != "string" && len(p.Enum)+len(p.OneOf) > 0 || typ != "array" && p.Items != nil || len(p.AnyOf) > 0 {
		return f, fmt.Errorf("choices of type %s cannot be shown as a list", quoted(typ))
	}
	var err error
	switch typ {
	case "boolean":
		f.Kind = YesNo
		f.Choices = []Choice{{Value: jsontext.Value("true"), Title: "Yes"}, {Value: jsontext.Value("false"), Title: "No"}}
	case "number", "integer":
		f.Kind = Number
		if typ == "integer" {
			f.Kind = Integer
		}
		err = f.bounds(p)
	case "string":
		err = f.text(p)
	case "array":
		err = f.list(p)
	default:
		err = fmt.Errorf("values of type %s cannot be filled in", quoted(typ))
	}
	f.suggest()
	return f, err
}

func (f *Field) text(p property) error {
	if len(p.Enum)+len(p.OneOf) > 0 {
		f.Kind = One
		return f.choices(p.Enum, p.EnumNames, p.OneOf)
	}
	f.format, f.minLength, f.maxLength = p.Format, p.MinLength, p.MaxLength
	if p.Pattern != "" {
		var err error
		if f.pattern, err = regexp.Compile(p.Pattern); err != nil {
			return errors.New("its pattern cannot be checked here")
		}
	}
	return nil
}

func (f *Field) bounds(p property) error {
	for bound, raw := range map[*string]jsontext.Value{&f.minimum: p.Minimum, &f.maximum: p.Maximum, &f.above: p.Above, &f.below: p.Below} {
		if len(raw) > 0 && exact(string(raw)) == nil {
			return errors.New("a bound of it is no number of a sane size")
		}
		*bound = string(raw)
	}
	return nil
}

func (f *Field) list(p property) error {
	i := p.Items
	if i == nil || len(i.Properties)+len(i.Ref)+len(i.AllOf)+len(i.Not)+len(i.If) > 0 || i.Items != nil || len(i.OneOf) > 0 ||
		len(i.Type) > 0 && string(i.Type) != `"string"` || len(i.Enum)+len(i.AnyOf) == 0 {
		return errors.New("a list that is no choice among strings cannot be filled in")
	}
	f.Kind, f.minItems, f.maxItems = Many, p.MinItems, p.MaxItems
	return f.choices(i.Enum, i.EnumNames, i.AnyOf)
}

// choices takes them from enum, or from titled constants.
func (f *Field) choices(enum []jsontext.Value, names []string, consts []titled) error {
	if len(enum) > 0 && len(consts) > 0 {
		return errors.New("its choices are given twice")
	}
	for i, v := range enum {
		c := titled{Const: v}
		if len(names) == len(enum) {
			c.Title = names[i]
		}
		consts = append(consts, c)
	}
	if len(consts) > MaxChoices {
		return fmt.Errorf("it has %d choices; %d can be shown", len(consts), MaxChoices)
	}
	there := map[string]bool{}
	for _, c := range consts {
		if c.Const.Kind() != '"' {
			return errors.New("a choice of it is no string")
		}
		if there[identity(c.Const)] {
			return errors.New("a choice of it is given twice")
		}
		there[identity(c.Const)] = true
		f.Choices = append(f.Choices, Choice{Value: c.Const, Title: c.Title})
	}
	return nil
}

// suggest marks the choices that the default has.
func (f *Field) suggest() {
	defaults := []jsontext.Value{f.Default}
	if f.Kind == Many && json.Unmarshal(f.Default, &defaults) != nil {
		return
	}
	suggested := map[string]bool{}
	for _, d := range defaults {
		suggested[identity(d)] = true
	}
	for i, c := range f.Choices {
		f.Choices[i].Suggested = suggested[identity(c.Value)]
	}
}

// identity is the same of two booleans or strings that are, however they are
// written, and of nothing else.
func identity(v jsontext.Value) string { return v.Kind().String() + unquoted(v) }

// unquoted is the text of a JSON string, and any other value as it is.
func unquoted(v jsontext.Value) string {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return strings.TrimSpace(string(v))
	}
	return s
}
