package form

import (
	"errors"
	"fmt"
	"math/big"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// ErrRequired is of a field that must not be left out.
var ErrRequired = errors.New("this is required")

// Read is the value of a Text, Number or Integer field as somebody has typed
// it: nil, and nothing is sent, if they typed nothing. Digits are kept as they
// are. Its errors are sentences for the one who types, and quote no value.
func (f *Field) Read(typed string) (jsontext.Value, error) {
	if f.Kind != Text {
		typed = strings.TrimSpace(typed)
	}
	if typed == "" {
		if f.Required {
			return nil, ErrRequired
		}
		return nil, nil
	}
	if f.Kind == Text {
		if err := f.checkText(typed); err != nil {
			return nil, err
		}
		return json.Marshal(typed)
	}
	if err := f.checkNumber(typed); err != nil {
		return nil, err
	}
	return jsontext.Value(typed), nil
}

// Pick is the value of a YesNo, One or Many field of which the choices with
// these indexes are taken; nil, and nothing is sent, without any.
func (f *Field) Pick(chosen ...int) (jsontext.Value, error) {
	if f.Kind != Many {
		switch {
		case len(chosen) == 1:
			return f.Choices[chosen[0]].Value, nil
		case f.Required:
			return nil, errors.New("this is required: choose one")
		}
		return nil, nil
	}
	if len(chosen) == 0 && !f.Required {
		return nil, nil
	}
	if f.minItems != nil && len(chosen) < *f.minItems {
		return nil, fmt.Errorf("choose at least %d", *f.minItems)
	}
	if f.maxItems != nil && len(chosen) > *f.maxItems {
		return nil, fmt.Errorf("choose at most %d", *f.maxItems)
	}
	values := []jsontext.Value{}
	for _, i := range slices.Sorted(slices.Values(chosen)) {
		values = append(values, f.Choices[i].Value)
	}
	return json.Marshal(values)
}

// Prefill is the default of a Text, Number or Integer field, if all of it can
// be seen and typed in one line: empty otherwise. A default that would not be
// accepted is none.
func (f *Field) Prefill() string {
	const longest = 200
	if f.Kind > Integer || f.Default == nil || (f.Kind == Text) != (f.Default.Kind() == '"') {
		return ""
	}
	s := unquoted(f.Default)
	if _, err := f.Read(s); err != nil || safetext.Line(s) != s || utf8.RuneCountInString(s) > longest {
		return ""
	}
	return s
}

// Hint says what is expected: "a whole number, 1 to 10", "an e-mail address".
func (f *Field) Hint() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch f.Kind {
	case Text:
		if known, ok := formats[f.format]; ok {
			add("%s", known.what)
		} else if f.format != "" {
			add("format %s", safetext.Short(f.format, 40))
		}
		if f.minLength != nil {
			add("at least %d characters", *f.minLength)
		}
		if f.maxLength != nil {
			add("at most %d characters", *f.maxLength)
		}
		if f.pattern != nil {
			add("pattern %s", safetext.Short(f.pattern.String(), 120))
		}
	case Number, Integer:
		add("%s", map[Kind]string{Number: "a number", Integer: "a whole number"}[f.Kind])
		for _, b := range []struct{ word, bound string }{{"at least", f.minimum}, {"more than", f.above}, {"at most", f.maximum}, {"less than", f.below}} {
			if b.bound != "" {
				add("%s %s", b.word, b.bound)
			}
		}
	case Many:
		if f.minItems != nil {
			add("at least %d", *f.minItems)
		}
		if f.maxItems != nil {
			add("at most %d", *f.maxItems)
		}
	}
	if !f.Required {
		add("may be left out")
	}
	return strings.Join(parts, ", ")
}

func (f *Field) checkText(s string) error {
	n := utf8.RuneCountInString(s)
	known, checked := formats[f.format]
	switch {
	case !utf8.ValidString(s):
		return errors.New("this is no text in UTF-8")
	case f.minLength != nil && n < *f.minLength:
		return fmt.Errorf("at least %d characters; these are %d", *f.minLength, n)
	case f.maxLength != nil && n > *f.maxLength:
		return fmt.Errorf("at most %d characters; these are %d", *f.maxLength, n)
	case f.pattern != nil && !f.pattern.MatchString(s):
		return fmt.Errorf("this does not match the pattern %s", safetext.Short(f.pattern.String(), 120))
	case checked && !known.fits(s):
		return fmt.Errorf("this is not %s", known.what)
	}
	return nil
}

// formats are those of the protocol, judged as a tallystick server does.
var formats = map[string]struct {
	what string
	fits func(string) bool
}{
	"email": {"an e-mail address, as kim@example.org", func(s string) bool {
		a, err := mail.ParseAddress(s)
		return err == nil && a.Address == s
	}},
	"uri": {"an absolute URI, as https://example.org/page", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && u.IsAbs()
	}},
	"date": {"a date, as 2026-07-28", func(s string) bool {
		_, err := time.Parse(time.DateOnly, s)
		return err == nil
	}},
	"date-time": {"a date and time with its zone, as 2026-07-28T14:30:00Z or 2026-07-28T16:30:00+02:00", func(s string) bool {
		_, err := time.Parse(time.RFC3339, s)
		return err == nil
	}},
}

var (
	whole   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)
)

func (f *Field) checkNumber(s string) error {
	switch {
	case f.Kind == Integer && !whole.MatchString(s):
		return errors.New("a whole number, in digits, as 1234 or -5")
	case !decimal.MatchString(s):
		return errors.New("a number, in digits with a point, as 1234.50 or -5")
	}
	n := exact(s)
	if n == nil {
		return errors.New("this number is too large, or has too many digits")
	}
	over := func(bound string) int { return n.Cmp(exact(bound)) }
	switch {
	case f.minimum != "" && over(f.minimum) < 0:
		return fmt.Errorf("at least %s", f.minimum)
	case f.above != "" && over(f.above) <= 0:
		return fmt.Errorf("more than %s", f.above)
	case f.maximum != "" && over(f.maximum) > 0:
		return fmt.Errorf("at most %s", f.maximum)
	case f.below != "" && over(f.below) >= 0:
		return fmt.Errorf("less than %s", f.below)
	}
	return nil
}

// exact is a JSON number without rounding; nil if it is none, or of a size that
// nobody means: over 100 characters, or beyond what a float64 reaches.
func exact(s string) *big.Rat {
	const longest = 100
	if len(s) > longest || !decimal.MatchString(s) {
		return nil
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return nil
	}
	n, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil
	}
	return n
}

// Content is the object made of values by their fields' names, in the form's
// order, checked against the schema.
func (f *Form) Content(values map[string]jsontext.Value) (jsontext.Value, error) {
	var b strings.Builder
	b.WriteByte('{')
	for _, field := range f.Fields {
		v := values[field.Name]
		if v == nil {
			continue
		}
		name, err := json.Marshal(field.Name)
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	content := jsontext.Value(b.String())
	return content, f.Check(content)
}

// Check reports whether content, from wherever it comes, fits the schema. Its
// error names what does not, and never quotes a value.
func (f *Form) Check(content []byte) error {
	given, err := members(content)
	if err != nil || jsontext.Value(content).Kind() != '{' || !jsontext.Value(content).IsValid() {
		return errors.New("the content of an answer is a JSON object")
	}
	var wrong []string
	known := map[string]any{}
	for _, m := range given {
		i := slices.IndexFunc(f.Fields, func(f Field) bool { return f.Name == m.name })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s was not asked for", quoted(m.name)))
			continue
		}
		var v any
		if json.Unmarshal(m.value, &v) != nil || f.Fields[i].fits(m.value) != nil {
			wrong = append(wrong, fmt.Sprintf("%s does not fit: %s", quoted(m.name), f.Fields[i].Wants()))
		}
		known[m.name] = v
	}
	for _, field := range f.Fields {
		if _, ok := known[field.Name]; field.Required && !ok {
			wrong = append(wrong, fmt.Sprintf("%s is required", quoted(field.Name)))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	if f.check.Validate(known) != nil {
		return errors.New("the answer does not fit the schema of the question")
	}
	return nil
}

// fits judges a value that was not typed into the field.
func (f *Field) fits(v jsontext.Value) error {
	switch f.Kind {
	case Text:
		if v.Kind() != '"' {
			return errors.New("no string")
		}
		return f.checkText(unquoted(v))
	case Number, Integer:
		return f.checkNumber(string(v))
	}
	chosen := []jsontext.Value{v}
	if f.Kind == Many {
		if err := json.Unmarshal(v, &chosen); err != nil || v.Kind() != '[' {
			return errors.New("no list")
		}
	}
	index := map[string]int{}
	for i, c := range f.Choices {
		index[identity(c.Value)] = i
	}
	var indexes []int
	for _, c := range chosen {
		i, ok := index[identity(c)]
		if !ok {
			return errors.New("not among the choices")
		}
		indexes = append(indexes, i)
	}
	_, err := f.Pick(indexes...)
	return err
}

// Wants says what a value of the field is, for somebody who writes JSON.
func (f *Field) Wants() string {
	var choices []string
	for _, c := range f.Choices {
		choices = append(choices, string(c.Value))
	}
	among := safetext.Short(strings.Join(choices, ", "), 400)
	switch f.Kind {
	case YesNo:
		return "true or false"
	case One:
		return "one of " + among
	case Many:
		return strings.TrimSuffix("a list of "+among+"; "+f.Hint(), "; ")
	case Text:
		return strings.TrimSuffix("a string; "+f.Hint(), "; ")
	}
	return f.Hint()
}

// Given reports whether content has a value for the field.
func (f *Field) Given(content jsontext.Value) bool {
	given, err := members(content)
	return err == nil && slices.ContainsFunc(given, func(m member) bool { return m.name == f.Name })
}

// Text is the value of the choice without quotation marks. It is the server's,
// and not escaped.
func (c Choice) Text() string { return unquoted(c.Value) }
