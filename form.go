package tallystick

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/mail"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// A form is a flat schema that a client can show: what elicitation allows.
type form struct {
	schema   json.RawMessage
	resolved *jsonschema.Resolved
	props    map[string]*jsonschema.Schema
}

var forms sync.Map // reflect.Type → *form or error

// formOf makes the form of T once and remembers it. That T cannot be one is
// an error at the first Ask, before anything is sent.
func formOf[T any]() (*form, error) {
	t := reflect.TypeFor[T]()
	if v, ok := forms.Load(t); ok {
		if f, ok := v.(*form); ok {
			return f, nil
		}
		return nil, v.(error)
	}
	f, err := inferForm(t)
	if err != nil {
		err = fmt.Errorf("%v cannot be asked for in a form: %w", t, err)
		forms.Store(t, err)
		return nil, err
	}
	forms.Store(t, f)
	return f, nil
}

var timeType = reflect.TypeFor[time.Time]()

func inferForm(t reflect.Type) (*form, error) {
	if t.Kind() != reflect.Struct {
		return nil, errors.New("it is no struct")
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		return nil, err
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			name = field.Name
		}
		p := s.Properties[name]
		if p == nil || !field.IsExported() || field.Anonymous {
			continue
		}
		if len(p.Types) == 2 && slices.Contains(p.Types, "null") { // a pointer: optional
			p.Type = p.Types[1-slices.Index(p.Types, "null")]
			p.Types = nil
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
		if t := field.Type; p.Type == "string" && (t == timeType || t.Kind() == reflect.Pointer && t.Elem() == timeType) {
			p.Format = "date-time"
		}
		if err := refine(p, field.Tag.Get("form")); err != nil {
			return nil, fmt.Errorf("field %s: %w", field.Name, err)
		}
		if p.Default != nil { // what has a default can be left out
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
	}
	s.AdditionalProperties = nil // what is more than asked is ignored
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return parseForm(raw)
}

// refine applies a field's form tag.
func refine(p *jsonschema.Schema, tag string) error {
	if tag == "" {
		return nil
	}
	var last string
	for _, part := range strings.Split(tag, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok { // a comma within the title
			if last != "title" {
				return fmt.Errorf("form tag %q: want key=value", part)
			}
			p.Title += "," + part
			continue
		}
		if err := refineOne(p, key, value); err != nil {
			return fmt.Errorf("form tag %q: %w", part, err)
		}
		last = key
	}
	return nil
}

func refineOne(p *jsonschema.Schema, key, value string) error {
	number := func(dst **float64) error {
		f, err := strconv.ParseFloat(value, 64)
		*dst = &f
		return err
	}
	count := func(dst **int) error {
		n, err := strconv.Atoi(value)
		*dst = &n
		return err
	}
	switch key {
	case "title":
		p.Title = value
	case "format":
		p.Format = value
	case "minimum":
		return number(&p.Minimum)
	case "maximum":
		return number(&p.Maximum)
	case "minLength":
		return count(&p.MinLength)
	case "maxLength":
		return count(&p.MaxLength)
	case "enum":
		var values []any
		for _, v := range strings.Split(value, "|") {
			values = append(values, v)
		}
		if p.Type == "array" {
			p.Items = &jsonschema.Schema{Type: "string", Enum: values}
		} else {
			p.Enum = values
		}
	case "default":
		raw := json.RawMessage(value)
		if p.Type == "string" {
			raw, _ = json.Marshal(value)
		}
		if !json.Valid(raw) {
			return errors.New("no value of this type")
		}
		p.Default = raw
	default:
		return errors.New("unknown")
	}
	return nil
}

// parseForm reads a schema as a form, or says what elicitation does not allow.
func parseForm(raw []byte) (*form, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("requestedSchema: its type is %q, not \"object\"", s.Type)
	}
	if len(s.Properties) == 0 {
		return nil, errors.New("requestedSchema has no properties; some clients show an empty form that cannot be submitted")
	}
	for name, p := range s.Properties {
		if err := flat(p); err != nil {
			return nil, fmt.Errorf("requestedSchema: property %q: %w", name, err)
		}
	}
	for _, name := range s.Required {
		if s.Properties[name] == nil {
			return nil, fmt.Errorf("requestedSchema: required property %q is not among the properties", name)
		}
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	return &form{schema: raw, resolved: r, props: s.Properties}, nil
}

// askedForms are the forms of questions that were answered of late: most tools
// ask with the same schema each time.
var askedForms formMemory

// formMemory remembers what [parseForm] made of some schemas.
type formMemory struct {
	mu    sync.Mutex
	forms map[string]*form
}

func (m *formMemory) parse(schema []byte) (*form, error) {
	const most, longest = 128, 4 << 10
	m.mu.Lock()
	f := m.forms[string(schema)]
	m.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := parseForm(schema)
	if err != nil || len(schema) > longest {
		return f, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forms == nil || len(m.forms) >= most {
		m.forms = map[string]*form{}
	}
	m.forms[string(schema)] = f
	return f, nil
}

// flat checks a property against PrimitiveSchemaDefinition of the protocol.
func flat(p *jsonschema.Schema) error {
	if p == nil || len(p.Properties) > 0 || p.Ref != "" || len(p.Types) > 0 || len(p.AllOf) > 0 || p.Not != nil {
		return errors.New("only flat properties of one type are allowed")
	}
	switch p.Type {
	case "boolean":
	case "number", "integer":
	case "string":
		if f := p.Format; f != "" && !slices.Contains([]string{"email", "uri", "date", "date-time"}, f) {
			return fmt.Errorf("format %q is not among email, uri, date and date-time", f)
		}
		return titled(p.OneOf)
	case "array":
		i := p.Items
		if i == nil || i.Type == "string" && len(i.Enum) == 0 || i.Type == "" && len(i.AnyOf) == 0 || i.Type != "" && i.Type != "string" {
			return errors.New("a list must be one of enumerated strings")
		}
		return titled(i.AnyOf)
	default:
		return fmt.Errorf("type %q is not among string, number, integer, boolean and list of enumerated strings", p.Type)
	}
	return nil
}

func titled(entries []*jsonschema.Schema) error {
	for _, e := range entries {
		if e.Const == nil || e.Title == "" {
			return errors.New("each choice needs const and title")
		}
	}
	return nil
}

// request is the form as params of elicitation/create.
func (f *form) request(message string) []byte {
	raw, _ := json.Marshal(struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
	}{"form", message, f.schema})
	return raw
}

// check validates the content of an accepted form and returns, by property,
// what is wrong with it. Absent content is an empty object.
func (f *form) check(content []byte) (json.RawMessage, map[string]string) {
	if len(content) == 0 || string(content) == "null" {
		content = []byte("{}")
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(content, &raw); err != nil {
		return nil, map[string]string{"content": "is no object"}
	}
	wrong := map[string]string{}
	known := map[string]any{}
	for name, v := range raw {
		if !primitive(v) {
			wrong[name] = "is neither a primitive value nor a list of strings"
		}
		p := f.props[name]
		if p == nil {
			delete(raw, name) // more than was asked
			continue
		}
		var value any
		if err := json.Unmarshal(v, &value); err != nil {
			wrong[name] = "is no JSON"
			continue
		}
		known[name] = value
		if n, ok := value.(float64); ok && p.Type == "integer" {
			whole, ok := wholeNumber(v, n)
			if !ok {
				wrong[name] = "is no whole number of 64 bits"
			}
			raw[name] = whole
		}
		if s, ok := value.(string); ok && p.Format != "" && !hasFormat(p.Format, s) {
			wrong[name] = "is no " + p.Format
		}
	}
	if err := f.resolved.Validate(known); err != nil && len(wrong) == 0 {
		f.blame(known, wrong)
		if len(wrong) == 0 {
			wrong["content"] = "does not fit the schema"
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	clean, err := json.Marshal(raw)
	if err != nil {
		return nil, map[string]string{"content": "is no object"}
	}
	return clean, nil
}

// wholeNumber writes an integer as Go reads integers, whatever JSON makes of it:
// 5.0 and 5e0 are 5.
func wholeNumber(raw json.RawMessage, n float64) (json.RawMessage, bool) {
	var i int64
	var u uint64
	if json.Unmarshal(raw, &i) == nil || json.Unmarshal(raw, &u) == nil {
		return raw, true
	}
	if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return raw, false
	}
	return strconv.AppendInt(nil, int64(n), 10), true
}

// blame finds the properties that do not fit. It never quotes a value.
func (f *form) blame(known map[string]any, wrong map[string]string) {
	for _, name := range f.resolved.Schema().Required {
		if _, ok := known[name]; !ok {
			wrong[name] = "is required"
		}
	}
	for name, v := range known {
		r, err := f.props[name].Resolve(nil)
		if err != nil || r.Validate(v) != nil {
			wrong[name] = "does not fit its schema"
		}
	}
}

// primitive reports whether a value is one that ElicitResult.content may have.
func primitive(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	switch v := v.(type) {
	case string, bool, float64:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { _, ok := e.(string); return !ok })
	}
	return false
}

func hasFormat(format, s string) bool {
	var err error
	switch format {
	case "email":
		var a *mail.Address
		if a, err = mail.ParseAddress(s); err == nil && a.Address != s {
			return false
		}
	case "uri":
		var u *url.URL
		if u, err = url.Parse(s); err == nil && !u.IsAbs() {
			return false
		}
	case "date":
		_, err = time.Parse(time.DateOnly, s)
	case "date-time":
		_, err = time.Parse(time.RFC3339, s)
	}
	return err == nil
}

// read decodes a validated answer, with the defaults of what was left out.
func (f *form) read(content []byte, dst any) error {
	raw := map[string]json.RawMessage{}
	if len(content) > 0 {
		if err := json.Unmarshal(content, &raw); err != nil {
			return fmt.Errorf("the recorded answer does not fit: %w", err)
		}
	}
	for name, p := range f.props {
		if _, ok := raw[name]; !ok && p.Default != nil {
			raw[name] = p.Default
		}
	}
	all, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return strictDecode(all, dst)
}
