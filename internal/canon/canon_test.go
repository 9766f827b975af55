package canon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestCanonicalForm(t *testing.T) {
	for _, test := range []struct{ name, raw, want string }{
		{"nothing is an empty object", ``, `{}`},
		{"empty object", ` { } `, `{}`},
		{"empty array", ` [ ] `, `[]`},
		{"literals", `[ null,true , false ]`, `[null,true,false]`},
		{"members are sorted", `{"b":1,"a":2,"":3}`, `{"":3,"a":2,"b":1}`},
		{"at every level", `{"z":[{"y":1,"x":2}],"a":{"d":1,"c":2}}`, `{"a":{"c":2,"d":1},"z":[{"x":2,"y":1}]}`},
		{"a prefix comes first", `{"ab":1,"a":2,"a b":3}`, `{"a":2,"a b":3,"ab":1}`},
		{"by code points, unlike UTF-16", `{"😀":1,"\uffe0":2}`, "{\"\uffe0\":2,\"😀\":1}"},
		{"escaped names sort by value", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"elements keep their order", `[2,1]`, `[2,1]`},
		{"escapes are undone", `"\u0041\/\u00e9\u2028\u003c"`, "\"A/é\u2028<\""},
		{"needed escapes are short", `"\u0022\u005c\u000a\u0008\u0001\u007f"`, "\"\\\"\\\\\\n\\b\\u0001\u007f\""},
		{"surrogate pairs are one character", `"\ud83d\ude00"`, `"😀"`},
		{"no Unicode normalisation", `"e\u0301"`, "\"e\u0301\""},
		{"a replacement character is a character", `"\ufffd"`, "\"\ufffd\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Canonical([]byte(test.raw))
			if err != nil || string(got) != test.want {
				t.Fatalf("Canonical(%s) = %s, %v; want %s", test.raw, got, err, test.want)
			}
			again, err := Canonical(got)
			if err != nil || string(again) != test.want {
				t.Errorf("the form of the form is %s, %v", again, err)
			}
		})
	}
}

func TestEqualNumbersHaveOneForm(t *testing.T) {
	sixtyFour := strings.Repeat("1234567890", 6) + "1234"
	for want, raws := range map[string][]string{
		"0":                       {"0", "-0", "0.0", "-0.000", "0e5", "0E-9999", "-0e+0"},
		"1":                       {"1", "1.0", "1e0", "10e-1", "1E+0", "1e-0", "0.1e1", "0.0001e4", "1.000000000000000000000000000000000000000000000000000000000000000000000"},
		"-1":                      {"-1", "-1.0", "-10e-1"},
		"12e2":                    {"1200", "1.2e3", "12e2", "12e+002", "120000e-2"},
		"15e-1":                   {"1.5", "1.50", "0.15e1", "150e-2"},
		"9007199254740992":        {"9007199254740992", "9007199254740992.0"},
		"9007199254740993":        {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"1e400":                   {"1e400", "10e399", "1" + strings.Repeat("0", 400)},
		"1e-400":                  {"1e-400", "0." + strings.Repeat("0", 399) + "1"},
		"1e9999":                  {"1e9999", "10e9998"},
		"1e-9999":                 {"1e-9999"},
		sixtyFour:                 {sixtyFour, sixtyFour + ".000"},
		sixtyFour + "e1":          {sixtyFour + "0", sixtyFour + "0.0"},
		"-" + sixtyFour + "e-100": {"-0." + strings.Repeat("0", 36) + sixtyFour},
	} {
		for _, raw := range raws {
			got, err := Canonical([]byte(raw))
			if err != nil || string(got) != want {
				t.Errorf("Canonical(%s) = %s, %v; want %s", raw, got, err, want)
			}
		}
	}
}

func TestDifferentValuesHaveDifferentDigests(t *testing.T) {
	seen := map[string]string{}
	for _, raw := range []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `10`, `0.1`, `"1"`, `"null"`, `""`, `[]`, `{}`, `[null]`, `[[]]`, `[{}]`,
		`9007199254740992`, `9007199254740993`, `9007199254740994`, `1e23`, `1.0000000000000001e23`, `0.1000000000000000055511151231257827`,
		`1e400`, `1e401`, `1e-400`, `{"a":1}`, `{"a":"1"}`, `{"A":1}`, `{"a":1,"b":2}`, `{"a":2,"b":1}`, `{"a":{"b":1}}`, `[1,2]`, `[2,1]`,
		`[12]`, `["a","b"]`, `["a,b"]`, `["a\",\"b"]`, `{"a":null}`, `{"":null}`, `"é"`, `"e\u0301"`, `"\u0000"`, `"\ufffd"`, `"\\u0000"`,
	} {
		d, err := Digest([]byte(raw))
		if err != nil {
			t.Fatalf("Digest(%s): %v", raw, err)
		}
		if len(d) != 64 {
			t.Fatalf("Digest(%s) = %s", raw, d)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", raw, other)
		}
		seen[d] = raw
	}
}

// These digests are kept in stores and sealed states, so they never change.
func TestDigestsOfEarlierVersions(t *testing.T) {
	for raw, want := range map[string]string{
		``:   "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
		`{}`: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
		`{"order":9007199254740993,"amount":12.50,"note":"\u00e9\u2028\/","lines":[{"sku":"a","n":100}]}`: "798c1495135e9aa819b847d0d4c661f87c8d148c13dff2490268b64e4c5186ef",
	} {
		if got, err := Digest([]byte(raw)); err != nil || got != want {
			t.Errorf("Digest(%s) = %s, %v; want %s", raw, got, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	digits := strings.Repeat("1", maxDigits)
	for _, test := range []struct {
		raw  string
		want error
	}{
		{` `, ErrSyntax}, {`{`, ErrSyntax}, {`[`, ErrSyntax}, {`}`, ErrSyntax}, {`[1`, ErrSyntax}, {`[1,]`, ErrSyntax}, {`[,1]`, ErrSyntax},
		{`{"a":1,}`, ErrSyntax}, {`{"a"}`, ErrSyntax}, {`{"a":}`, ErrSyntax}, {`{"a" 1}`, ErrSyntax}, {`{1:2}`, ErrSyntax}, {`{a:1}`, ErrSyntax},
		{`[1 2]`, ErrSyntax}, {`[1}`, ErrSyntax}, {`{"a":1]`, ErrSyntax}, {`[:]`, ErrSyntax}, {`{,}`, ErrSyntax},
		{`1 2`, ErrSyntax}, {`{}{}`, ErrSyntax}, {`{},`, ErrSyntax}, {`{} x`, ErrSyntax}, {"{}\x00", ErrSyntax}, {"\ufeff{}", ErrSyntax},
		{`'a'`, ErrSyntax}, {`"a`, ErrSyntax}, {"\"a\nb\"", ErrSyntax}, {`"\x"`, ErrSyntax}, {`"\u12"`, ErrSyntax}, {"[1]//", ErrSyntax},
		{`nul`, ErrSyntax}, {`True`, ErrSyntax}, {`NaN`, ErrSyntax}, {`Infinity`, ErrSyntax}, {`-`, ErrSyntax}, {`01`, ErrSyntax},
		{`+1`, ErrSyntax}, {`.5`, ErrSyntax}, {`5.`, ErrSyntax}, {`1e`, ErrSyntax}, {`1e+`, ErrSyntax}, {`0x1`, ErrSyntax}, {`1_0`, ErrSyntax},
		{`"\ud800"`, ErrSyntax}, {`"\udc00"`, ErrSyntax}, {`"\ud800\ud800"`, ErrSyntax}, {`"\ude00\ud83d"`, ErrSyntax}, {`{"\ud800":1}`, ErrSyntax},
		{"\"\xff\"", ErrUTF8}, {"\"\xc0\x80\"", ErrUTF8}, {"\"\xed\xa0\x80\"", ErrUTF8}, {"\"\xf4\x90\x80\x80\"", ErrUTF8}, {"{\"a\xe9\":1}", ErrUTF8}, {"\xff", ErrUTF8},
		{`{"a":1,"a":1}`, ErrDuplicate}, {`{"a":1,"b":2,"a":3}`, ErrDuplicate}, {`{"a":1,"\u0061":2}`, ErrDuplicate}, {`[{"x":{"":1,"":2}}]`, ErrDuplicate},
		{nested(MaxDepth + 1), ErrDepth}, {strings.Repeat("[", 1<<20), ErrDepth}, {strings.Repeat(`{"a":`, 1<<18), ErrDepth},
		{digits + "1", ErrNumber}, {digits + ".1", ErrNumber}, {"0." + digits + "1", ErrNumber}, {"-" + digits + "01", ErrNumber},
		{`1e10000`, ErrNumber}, {`1e-10000`, ErrNumber}, {`10e9999`, ErrNumber}, {`0.1e-9999`, ErrNumber}, {`0e10000`, ErrNumber},
		{`1e99999999999999999999999`, ErrNumber}, {`-1e-99999999999999999999999`, ErrNumber}, {"1" + strings.Repeat("0", 10000), ErrNumber},
		{"0." + strings.Repeat("0", 20000) + "1", ErrNumber}, {"0." + strings.Repeat("0", 20000) + "1e20001", ErrNumber}, {"[" + digits + "1]", ErrNumber},
	} {
		got, err := Canonical([]byte(test.raw))
		if !errors.Is(err, test.want) || got != nil {
			t.Errorf("Canonical(%.40q) = %.40q, %v; want %v", test.raw, got, err, test.want)
		}
		if d, err := Digest([]byte(test.raw)); !errors.Is(err, test.want) || d != "" {
			t.Errorf("Digest(%.40q) = %q, %v; want %v", test.raw, d, err, test.want)
		}
	}
	if _, err := Canonical([]byte(nested(MaxDepth))); err != nil {
		t.Errorf("as deep as is allowed: %v", err)
	}
}

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestErrorsHoldNoValueAndLittleOfNames(t *testing.T) {
	long := strings.Repeat("n\x1b", 5000)
	name, _ := json.Marshal(long)
	for _, raw := range []string{
		fmt.Sprintf(`{%s:1,%s:2}`, name, name), `{"a":"secret" x}`, `{"a":"secret","a":"secret"}`, `["secret\q"]`, `"secret`, `{"secret`,
	} {
		_, err := Digest([]byte(raw))
		if err == nil {
			t.Fatalf("%.20s passed", raw)
		}
		if s := err.Error(); strings.Contains(s, "secret") || strings.ContainsRune(s, '\x1b') || len(s) > 600 {
			t.Errorf("error tells too much: %q", s)
		}
	}
}

// case S101: what a lenient decoder would take for a known name, U+017F and U+212A included.
func TestCheckFold(t *testing.T) {
	known := []string{"name", "orderId", "Size", "size", "ключ", "Straße", "k"}
	for _, test := range []struct {
		raw  string
		want error
	}{
		{``, nil}, {`{}`, nil}, {`[]`, nil}, {`"Name"`, nil}, {`null`, nil}, {`7`, nil}, {`["Name"]`, nil},
		{`{"name":1,"orderId":2,"other":3}`, nil},
		{`{"Size":1,"size":2}`, nil},
		{`{"x":"Name","y":["Name",{"Name":1}],"z":{"NAME":1}}`, nil},
		{`{"order_id":1}`, nil},
		{`{"Strasse":1}`, nil}, // full folding would have it; no decoder does
		{`{"Name":1}`, ErrFold}, {`{"NAME":1}`, ErrFold}, {`{"name":1,"nAme":2}`, ErrFold}, {`{"\u004eame":1}`, ErrFold},
		{`{"orderid":1}`, ErrFold}, {`{"a":[[{}]],"b":{"c":1},"ORDERID":1}`, ErrFold},
		{`{"SIZE":1}`, ErrFold}, {`{"ſize":1}`, ErrFold}, {`{"\u017fize":1}`, ErrFold},
		{`{"K":1}`, ErrFold}, {`{"K":1}`, ErrFold}, {`{"\u212a":1}`, ErrFold},
		{`{"КЛЮЧ":1}`, ErrFold}, {`{"STRAẞE":1}`, ErrFold},
		{`{"a":1`, ErrSyntax}, {`{"a":1}}`, ErrSyntax}, {`{} {}`, ErrSyntax}, {"{\"a\":\"\xff\"}", ErrUTF8},
		{`{"a":` + nested(MaxDepth) + `}`, ErrDepth}, {strings.Repeat("[", 1<<20), ErrDepth},
	} {
		if err := CheckFold([]byte(test.raw), known); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("CheckFold(%.40s) = %v, want %v", test.raw, err, test.want)
		}
	}
	err := CheckFold([]byte(`{"\u017fECRET":1}`), []string{"secret"})
	if err == nil || !strings.Contains(err.Error(), `"\u017fECRET" is not "secret"`) {
		t.Errorf("the error names neither member: %v", err)
	}
}
