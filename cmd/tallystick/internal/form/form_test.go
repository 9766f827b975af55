package form_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
)

func object(properties string, required ...string) []byte {
	return fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":[%s]}`, properties, strings.Join(required, ","))
}

func parse(t *testing.T, schema []byte) *form.Form {
	t.Helper()
	f, err := form.Parse(schema)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return f
}

var kinds = map[form.Kind]string{form.Text: "text", form.Number: "number", form.Integer: "integer", form.YesNo: "yes/no", form.One: "one", form.Many: "many"}

// described is a field in short: kind, required, hint, prefilled, choices.
func described(f form.Field) string {
	s := kinds[f.Kind]
	if f.Required {
		s += "!"
	}
	if h := f.Hint(); h != "" {
		s += " (" + h + ")"
	}
	if p := f.Prefill(); p != "" {
		s += " =" + p
	}
	for _, c := range f.Choices {
		s += fmt.Sprintf(" %s[%s]", c.Title, c.Value)
		if c.Suggested {
			s += "*"
		}
	}
	return s
}

func TestEachSimplePropertyIsAField(t *testing.T) {
	tests := []struct{ name, property, required, want string }{
		{"text", `{"type":"string","minLength":2,"maxLength":5,"pattern":"^a"}`, `"p"`, "text! (at least 2 characters, at most 5 characters, pattern ^a)"},
		{"text that may be left out, with a default", `{"type":"string","default":"abc"}`, "", "text (may be left out) =abc"},
		{"e-mail", `{"type":"string","format":"email"}`, `"p"`, "text! (an e-mail address, as kim@example.org)"},
		{"a default that cannot be seen", `{"type":"string","default":"ab\u200bc"}`, `"p"`, "text!"},
		{"a default of several lines", `{"type":"string","default":"a\nb"}`, `"p"`, "text!"},
		{"a default that does not fit", `{"type":"string","format":"date","default":"x"}`, `"p"`, "text! (a date, as 2026-07-28)"},
		{"a default of another type", `{"type":"string","default":5}`, `"p"`, "text!"},
		{"number", `{"type":"number","minimum":0.5,"exclusiveMaximum":1e3,"default":9.10}`, `"p"`, "number! (a number, at least 0.5, less than 1e3) =9.10"},
		{"integer", `{"type":"integer","minimum":-9007199254740993,"default":9007199254740993}`, `"p"`, "integer! (a whole number, at least -9007199254740993) =9007199254740993"},
		{"yes or no", `{"type":"boolean"}`, `"p"`, "yes/no! Yes[true] No[false]"},
		{"yes or no with a default", `{"type":"boolean","default":true}`, `"p"`, "yes/no! Yes[true]* No[false]"},
		{"enum", `{"type":"string","enum":["a","b"],"default":"b"}`, `"p"`, `one! ["a"] ["b"]*`},
		{"enum with names", `{"type":"string","enum":["a","b"],"enumNames":["A","B"]}`, `"p"`, `one! A["a"] B["b"]`},
		{"enum with other names", `{"type":"string","enum":["a","b"],"enumNames":["A"]}`, `"p"`, `one! ["a"] ["b"]`},
		{"titled", `{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]}`, "", `one (may be left out) A["a"] B["b"]`},
		{"several", `{"type":"array","items":{"type":"string","enum":["a","b","c"]},"minItems":1,"maxItems":2,"default":["c","a"]}`, `"p"`, `many! (at least 1, at most 2) ["a"]* ["b"] ["c"]*`},
		{"several titled", `{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}`, `"p"`, `many! A["a"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := parse(t, object(`"p":`+tt.property, tt.required))
			if got := described(f.Fields[0]); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFieldsKeepTheirOrder(t *testing.T) {
	f := parse(t, object(`"z":{"type":"string"},"a":{"type":"string"},"m":{"type":"boolean"}`))
	if got := f.Fields[0].Name + f.Fields[1].Name + f.Fields[2].Name; got != "zam" {
		t.Error(got)
	}
}

// case S48: it is a form without fields, which can be accepted.
func TestAnEmptyFormHasAnAnswer(t *testing.T) {
	for _, schema := range []string{`{"type":"object","properties":{}}`, `{"type":"object"}`} {
		f := parse(t, []byte(schema))
		content, err := f.Content(nil)
		if err != nil || string(content) != "{}" || len(f.Fields) != 0 {
			t.Errorf("%s: %s, %v", schema, content, err)
		}
	}
}

func TestWhatIsNoFormIsNamed(t *testing.T) {
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	var fields, choices []string
	for i := range 100_001 {
		choices = append(choices, fmt.Sprintf(`"c%d"`, i))
		fields = append(fields, fmt.Sprintf(`"f%d":{"type":"string"}`, i))
	}
	tests := []struct{ name, schema, want string }{
		{"no JSON", `{`, "cannot be read"},
		{"null", `null`, `type ""`},
		{"a string", `{"type":"string"}`, "not for an object"},
		{"properties of another type", `{"type":"object","properties":[]}`, "no object"},
		{"nested", string(object(`"a":{"type":"string"},"b":{"type":"object","properties":{}}`)), `property "b"`},
		{"nested without properties", string(object(`"b":{"type":"object"}`)), `property "b": values of type "object"`},
		{"no type", string(object(`"b":{}`)), `property "b": it has no type`},
		{"two types", string(object(`"b":{"type":["string","null"]}`)), `property "b": it has no type, or more`},
		{"a type that steers the terminal", string(object(`"b\u001b[2J":{"type":"a\u001b[2J"}`)), `property "b\x1b[2J": values of type "a\x1b[2J"`},
		{"a reference", string(object(`"b":{"type":"string","$ref":"#/x"}`)), `property "b"`},
		{"a free list", string(object(`"b":{"type":"array","items":{"type":"string"}}`)), `property "b": a list`},
		{"a list of numbers", string(object(`"b":{"type":"array","items":{"type":"number","enum":[1]}}`)), `property "b": a list`},
		{"choices that are no strings", string(object(`"b":{"type":"string","enum":["1",2]}`)), `property "b": a choice of it is no string`},
		{"choices without const", string(object(`"b":{"type":"string","oneOf":[{"title":"A"}]}`)), `property "b": a choice of it is no string`},
		{"a choice twice", string(object(`"b":{"type":"string","enum":["a","\u0061"]}`)), `property "b": a choice of it is given twice`},
		{"choices of a number", string(object(`"b":{"type":"number","enum":[1]}`)), `property "b": choices of type "number"`},
		{"a huge bound", string(object(`"b":{"type":"number","maximum":1e999999999}`)), `property "b": a bound`},
		{"a pattern of another language", string(object(`"b":{"type":"string","pattern":"(?=a)"}`)), `property "b": its pattern`},
		{"a length that is none", string(object(`"b":{"type":"string","minLength":"x"}`)), `property "b": it cannot be read`},
		{"a property twice", `{"type":"object","properties":{"a":{"type":"string"},"a":{"type":"boolean"}}}`, "cannot be read"},
		{"required and unknown", string(object(`"a":{"type":"string"}`, `"b"`)), `property "b": it is required`},
		{"too many properties", string(object(many(1, strings.Join(fields, ",")))), "100001 properties; 100"},
		{"too many choices", string(object(`"b":{"type":"string","enum":[` + strings.Join(choices, ",") + `]}`)), `property "b": it has 100001 choices; 100000`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := form.Parse([]byte(tt.schema)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.100s: %v, want %q in it", tt.schema, err, tt.want)
			}
		})
	}
}

func TestTypedValuesAreCheckedAndKeptAsTyped(t *testing.T) {
	tests := []struct{ property, typed, want, wrong string }{
		{`{"type":"string"}`, ` a "b" é `, `" a \"b\" é "`, ""},
		{`{"type":"string","minLength":2}`, "é", "", "at least 2 characters; these are 1"},
		{`{"type":"string","maxLength":2}`, "éé", `"éé"`, ""},
		{`{"type":"string","maxLength":2}`, "ééé", "", "at most 2 characters; these are 3"},
		{`{"type":"string","pattern":"^[0-9]+$"}`, "a1", "", "pattern ^[0-9]+$"},
		{`{"type":"string","format":"email"}`, "kim@example.org", `"kim@example.org"`, ""},
		{`{"type":"string","format":"email"}`, "Kim <kim@example.org>", "", "an e-mail address"},
		{`{"type":"string","format":"uri"}`, "/page", "", "an absolute URI"},
		{`{"type":"string","format":"date"}`, "2026-02-30", "", "a date"},
		{`{"type":"string","format":"date-time"}`, "2026-07-28T14:30:00+02:00", `"2026-07-28T14:30:00+02:00"`, ""},
		{`{"type":"string","format":"date-time"}`, "2026-07-28 14:30", "", "with its zone"},
		{`{"type":"number"}`, " 0.10 ", "0.10", ""},
		{`{"type":"number"}`, "123456789012345678901234567890.5", "123456789012345678901234567890.5", ""},
		{`{"type":"number"}`, "1,5", "", "with a point"},
		{`{"type":"number"}`, ".5", "", "with a point"},
		{`{"type":"number"}`, "NaN", "", "with a point"},
		{`{"type":"number"}`, "1e309", "", "too large"},
		{`{"type":"number"}`, "1e-999999999", "", "with a point"},
		{`{"type":"number"}`, strings.Repeat("1", 200), "", "too many digits"},
		{`{"type":"number","exclusiveMinimum":0}`, "0.0", "", "more than 0"},
		{`{"type":"integer"}`, "9007199254740993", "9007199254740993", ""},
		{`{"type":"integer","maximum":9007199254740992}`, "9007199254740993", "", "at most 9007199254740992"},
		{`{"type":"integer","minimum":1}`, "0", "", "at least 1"},
		{`{"type":"integer"}`, "5.0", "", "a whole number"},
		{`{"type":"integer"}`, "007", "", "a whole number"},
		{`{"type":"integer"}`, "", "", form.ErrRequired.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.property+" "+tt.typed, func(t *testing.T) {
			f := parse(t, object(`"p":`+tt.property, `"p"`))
			got, err := f.Fields[0].Read(tt.typed)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Fatalf("got %s, %v, want %q", got, err, tt.wrong)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %s, %v, want %s", got, err, tt.want)
			}
			content, err := f.Content(map[string]jsontext.Value{"p": got})
			if want := `{"p":` + tt.want + `}`; err != nil || string(content) != want {
				t.Errorf("content %s, %v, want %s", content, err, want)
			}
		})
	}
}

func TestWhatIsLeftOutIsNotSent(t *testing.T) {
	f := parse(t, object(`"s":{"type":"string","default":"x"},"n":{"type":"integer","default":1},"b":{"type":"boolean","default":true},
		"o":{"type":"string","enum":["a"],"default":"a"},"m":{"type":"array","items":{"type":"string","enum":["a"]},"minItems":1,"default":["a"]}`))
	values := map[string]jsontext.Value{}
	for i, field := range f.Fields {
		var err error
		if len(field.Choices) == 0 {
			values[field.Name], err = f.Fields[i].Read("")
		} else {
			values[field.Name], err = f.Fields[i].Pick()
		}
		if err != nil {
			t.Errorf("%s: %v", field.Name, err)
		}
	}
	if content, err := f.Content(values); err != nil || string(content) != "{}" {
		t.Errorf("%s, %v", content, err)
	}
}

func TestChoicesAreCounted(t *testing.T) {
	f := parse(t, object(`"m":{"type":"array","items":{"type":"string","enum":["a","b","c"]},"minItems":1,"maxItems":2},"o":{"type":"string","enum":["a"]}`, `"m","o"`))
	for _, tt := range []struct {
		field  int
		chosen []int
		want   string
	}{
		{0, nil, "choose at least 1"}, {0, []int{2, 0}, `["a","c"]`}, {0, []int{0, 1, 2}, "choose at most 2"},
		{1, nil, "this is required: choose one"}, {1, []int{0}, `"a"`},
	} {
		got, err := f.Fields[tt.field].Pick(tt.chosen...)
		if string(got) != tt.want && (err == nil || err.Error() != tt.want) {
			t.Errorf("%v of %s: %s, %v, want %s", tt.chosen, f.Fields[tt.field].Name, got, err, tt.want)
		}
	}
}

// case S47: a required yes or no is never filled in by anything but a choice.
func TestNoYesIsMadeUp(t *testing.T) {
	f := parse(t, object(`"delete_all":{"type":"boolean","default":true}`, `"delete_all"`))
	if v, err := f.Fields[0].Pick(); err == nil || v != nil {
		t.Errorf("without a choice: %s, %v", v, err)
	}
	if f.Fields[0].Prefill() != "" {
		t.Error("it is filled in beforehand")
	}
	if content, err := f.Content(nil); err == nil {
		t.Errorf("content without a choice: %s", content)
	}
}

func TestContentFromElsewhereIsChecked(t *testing.T) {
	f := parse(t, object(`"b":{"type":"boolean"},"n":{"type":"integer","maximum":5},"s":{"type":"string","format":"date"},
		"o":{"type":"string","enum":["a","b"]},"m":{"type":"array","items":{"type":"string","enum":["a","b"]},"maxItems":1}`, `"b"`))
	for _, tt := range []struct{ content, want string }{
		{`{"b":true,"n":5,"s":"2026-07-28","o":"a","m":["b"]}`, ""},
		{`{"b":false}`, ""},
		{``, "is a JSON object"},
		{`[]`, "is a JSON object"},
		{`{"b":true}x`, "is a JSON object"},
		{`{"b":true,"b":false}`, "is a JSON object"},
		{`{}`, `"b" is required`},
		{`{"b":"yes"}`, `"b" does not fit: true or false`},
		{`{"b":true,"n":6}`, `"n" does not fit: a whole number, at most 5`},
		{`{"b":true,"n":"5"}`, `"n" does not fit`},
		{`{"b":true,"s":"secret"}`, `"s" does not fit: a string; a date`},
		{`{"b":true,"o":"c"}`, `"o" does not fit: one of "a", "b"`},
		{`{"b":true,"m":"a"}`, `"m" does not fit: a list of "a", "b"`},
		{`{"b":true,"m":["a","b"]}`, `"m" does not fit`},
		{`{"b":true,"x\u001b":1}`, `"x\x1b" was not asked for`},
	} {
		err := f.Check([]byte(tt.content))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.content, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("a value is quoted: %v", err)
		}
	}
}

func FuzzAnySchemaIsAFormOrAnError(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","enum":["a"]}},"required":["a"]}`), "a", 0)
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"integer","minimum":1e5,"default":3}}}`), "7", 1)
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"const":"x"}]}}}}`), "", 0)
	f.Fuzz(func(t *testing.T, schema []byte, typed string, chosen int) {
		parsed, err := form.Parse(schema)
		if err != nil {
			return
		}
		values := map[string]jsontext.Value{}
		for i := range parsed.Fields {
			field := &parsed.Fields[i]
			var v jsontext.Value
			if n := len(field.Choices); n == 0 {
				v, err = field.Read(typed)
			} else {
				v, err = field.Pick(max(chosen, -chosen-1) % n)
			}
			if err == nil {
				values[field.Name] = v
			} else if errors.Is(err, form.ErrRequired) && typed != "" && field.Kind == form.Text {
				t.Fatalf("typed %q is taken for nothing", typed)
			}
			_, _, _ = field.Hint(), field.Wants(), field.Prefill()
		}
		if content, err := parsed.Content(values); err == nil && !content.IsValid() {
			t.Fatalf("content %q", content)
		}
	})
}
