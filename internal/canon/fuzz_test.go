package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// nasty is JSON that parsers disagree about.
var nasty = []string{
	``, `{}`, ` `, `null`, `{"b":[1,2.50,-0e3],"a":{"\u0061\/":null}}`, `[9007199254740993,9007199254740992,1e400,1e-9999,-0,0.0]`, `1000000000000000000000000`, `1e24`, `1E+24`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"name":1,"Name":2,"ſ":3}`, `{"na\u212A":1,"k":2}`, `{"a\u0000":1,"a":2}`, "{\"a\x00\":1}", `"\ud83d\ude00"`, `"\ud800"`, `{"\udc00":1}`, `"\ud800\u0041"`,
	nested(MaxDepth - 1), nested(MaxDepth), nested(MaxDepth + 1), strings.Repeat("[", 20_000), "\xef\xbb\xbf{}", "\"\xff\"", "\"\xc0\xaf\"", "{\"\xed\xa0\x80\":1}", `1e99999999999`, `{"a":1}x`, `[1,]`, `{"":{"":{"":0}}}`,
	`{"` + strings.Repeat("k", 2000) + `":1}`, strings.Repeat("9", 64), strings.Repeat("9", 65), `01`, `+1`, `.5`, `NaN`, `"\u00e9"`, `"e\u0301"`, "\"\u2028\"", `{"a":{"b":1,"b":1}}`, `[[],{},"",0,false]`,
}

// FuzzCanonical: what is accepted is JSON to everybody, and two texts have one
// digest if and only if another reader, which is slow, takes them for the same.
func FuzzCanonical(f *testing.F) {
	for i, seed := range nasty {
		f.Add([]byte(seed), []byte(nasty[(i+1)%len(nasty)]))
	}
	for x, y := range map[string]string{"9007199254740993": "9007199254740992", "1e24": "1000000000000000000000001", `{"a":1}`: `{"A":1}`, `"a"`: `"a\u0000"`, `[1,2]`: `[2,1]`, "1": `"1"`, "null": "0"} {
		f.Add([]byte(x), []byte(y))
	}
	f.Add([]byte(`{"a":1.50,"b":"\u0041"}`), []byte(` { "b" : "A", "a" : 15e-1 } `))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		checkFold(t, raw)
		form, v, ok := checkCanonical(t, raw)
		if !ok {
			return
		}
		// The same in another way of writing is the same.
		again := rewritten(nil, v)
		if same, err := Canonical(again); err != nil || !bytes.Equal(same, form) {
			t.Fatalf("%s, which is %s, is %s: %v", raw, again, same, err)
		}
		otherForm, w, ok := checkCanonical(t, other)
		if ok && bytes.Equal(form, otherForm) != equal(v, w) {
			t.Fatalf("%s and %s: one form is %t, one value is %t", raw, other, bytes.Equal(form, otherForm), equal(v, w))
		}
	})
}

func checkCanonical(t *testing.T, raw []byte) (form []byte, v value, ok bool) {
	t.Helper()
	before := bytes.Clone(raw)
	form, err := Canonical(raw)
	if !bytes.Equal(raw, before) {
		t.Fatal("the input was changed")
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	v, slow := slowly(raw)
	if err != nil {
		if slow == nil && !errors.Is(err, ErrNumber) && !errors.Is(err, ErrDepth) && jsontext.Value(raw).IsValid() {
			t.Fatalf("%q is refused: %v", raw, err)
		}
		return nil, nil, false
	}
	if slow != nil {
		t.Fatalf("%q is accepted: %v", raw, slow)
	}
	if len(form) > 6*len(raw)+2 {
		t.Fatalf("%d bytes became %d", len(raw), len(form))
	}
	if again, err := Canonical(form); err != nil || !bytes.Equal(again, form) {
		t.Fatalf("the form of %s is %s, %v", form, again, err)
	}
	return form, v, true
}

// slowly reads JSON by the standard library's tokens. It refuses a name that
// comes twice, and text that is not UTF-8, which that library would mend.
func slowly(raw []byte) (value, error) {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil, errors.New("no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return slowValue(d)
}

func slowValue(d *json.Decoder) (value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		return slowNumber(string(token)), nil
	case json.Delim:
		if token == '[' {
			list := []value{}
			for d.More() {
				v, err := slowValue(d)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		fields, seen := []field{}, map[string]bool{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if seen[name.(string)] {
				return nil, errors.New("a name comes twice")
			}
			seen[name.(string)] = true
			v, err := slowValue(d)
			if err != nil {
				return nil, err
			}
			fields = append(fields, field{name.(string), v})
		}
		_, err := d.Token()
		return fields, err
	}
	return token, nil // nil, bool, string
}

func slowNumber(s string) number {
	mantissa, power, _ := strings.Cut(strings.ToLower(s), "e")
	exponent, _ := strconv.Atoi(power)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	return number{whole + fraction, exponent - len(fraction)}
}

// rewritten writes a value so that nothing stands where it stood: members from
// behind, each character escaped, numbers with another exponent.
func rewritten(b []byte, v value) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, " null"...)
	case bool:
		return strconv.AppendBool(append(b, '\t'), v)
	case number:
		digits, negative := strings.CutPrefix(v.digits, "-")
		if digits = strings.TrimLeft(digits, "0"); digits == "" {
			return append(b, "-0.0"...)
		}
		if negative {
			b = append(b, '-')
		}
		if v.exponent+len(digits)-1 > maxExponent { // that much is not taken
			return fmt.Appendf(b, "%sE+%d", digits, v.exponent)
		}
		return fmt.Appendf(b, "%s.%sE%+d", digits[:1], digits[1:]+"0", v.exponent+len(digits)-1)
	case string:
		b = append(b, '"')
		for _, unit := range utf16.Encode([]rune(v)) {
			b = fmt.Appendf(b, "\\u%04x", unit)
		}
		return append(b, '"')
	case []value:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = rewritten(b, e)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	fields := v.([]field)
	for i := range fields {
		if i > 0 {
			b = append(b, ',', '\n')
		}
		one := fields[len(fields)-1-i]
		b = rewritten(append(rewritten(b, one.name), ' ', ':'), one.value)
	}
	return append(b, '}')
}

// checkFold holds CheckFold against the standard library's folding.
func checkFold(t *testing.T, raw []byte) {
	t.Helper()
	known := []string{"name", "k", "s", "", "a"}
	err := CheckFold(raw, known)
	v, slow := slowly(raw)
	if slow != nil || len(raw) == 0 {
		return
	}
	folds := false
	fields, _ := v.([]field)
	for _, f := range fields {
		folds = folds || !slices.Contains(known, f.name) && slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, f.name) })
	}
	if folds && err == nil || !folds && errors.Is(err, ErrFold) {
		t.Fatalf("%q: a name folds is %t, and the error is %v", raw, folds, err)
	}
}

func BenchmarkDigest(b *testing.B) {
	raw := []byte(`{"orderId":"A-1234","amount":12.50,"lines":[{"sku":"x","n":1},{"sku":"y","n":20}],"note":"caf\u00e9"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Digest(raw); err != nil {
			b.Fatal(err)
		}
	}
}
