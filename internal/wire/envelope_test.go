package wire

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
)

func TestIntegersAreComparedExactly(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "007": "7", "42": "42", "-42": "-42", "1.0": "1", "1e3": "1000", "1.5e1": "15", "150e-1": "15", "0e400": "0",
		"9007199254740993": "9007199254740993", "1E2": "100", "1e+2": "100", "0.0e-3": "0", "100e-2": "1",
		"1.5": "", "1e-1": "", "": "", "-": "", "+1": "", "0x10": "", "1e": "", "1e401": "", "NaN": "", "1 ": "", "١": "",
	} {
		got, ok := integer(in)
		if got != want || ok != (want != "") {
			t.Errorf("integer(%q) = %q, %v", in, got, ok)
		}
	}
}

func TestAliasesComeBackAsTheyWere(t *testing.T) {
	a := newIDAlias()
	for _, id := range []string{"9007199254740993", "-9007199254740993", "-0", "1" + strings.Repeat("0", 100)} {
		alias := a.of(json.RawMessage(id))
		if alias == nil {
			t.Fatalf("no alias for %s", id)
		}
		in := `{"id":` + string(alias) + `,"x":["` + a.prefix + `no number",` + string(alias) + `]}`
		if got, want := string(a.out([]byte(in))), `{"id":`+id+`,"x":["`+a.prefix+`no number",`+id+`]}`; got != want {
			t.Errorf("got %s", got)
		}
	}
	for _, id := range []string{"1", "999999999999999", `"9007199254740993"`, "-1"} {
		if alias := a.of(json.RawMessage(id)); alias != nil {
			t.Errorf("alias %s for %s", alias, id)
		}
	}
}

// nasty are messages, or parts of one, that parsers disagree about.
var nasty = []string{
	``, ` `, `{`, "\xef\xbb\xbf" + call("1", "echo", "{}"), call("1", "echo", "{}") + "\x00", "\x00" + call("1", "echo", "{}"),
	call("1", "echo\x00", "{}"), strings.Replace(call("1", "echo", "{}"), `"method"`, `"method\u0000"`, 1), strings.Replace(call("1", "echo", "{}"), "tools/call", `tools/call\u0000`, 1),
	strings.Replace(call("1", "echo", "{}"), `"params"`, `"Params"`, 1), strings.Replace(call("1", "echo", "{}"), `"params"`, `"param\u017f":{},"params"`, 1),
	strings.Replace(call("1", "echo", "{}"), `"method"`, `"m\u0065thod":"ping","method"`, 1), strings.Replace(call("1", "echo", "{}"), `"name"`, `"n\u0061me":"x","name"`, 1),
	strings.Replace(call("1", "echo", "{}"), `"id":1`, `"id":1,"id":2`, 1), strings.Replace(call("1", "echo", "{}"), `"_meta":{`, `"_meta":{"progressToken":1,"progress\u0054oken":2,`, 1),
	call(`"\ud800"`, "echo", "{}"), call("1", "echo", `{"\udfff":1}`), call("1", "echo", "{\"a\":\"\xff\xfe\"}"), call("\"\xc0\x80\"", "echo", "{}"),
	call("1e24", "echo", "{}"), call("1000000000000000000000000", "echo", `{"a":1000000000000000000000000}`), call("9007199254740993", "echo", `{"a":9007199254740993}`), call("-0", "echo", `{"a":-0}`), call("1", "echo", `{"a":1e400}`), call("1.0", "echo", "{}"), call("null", "echo", "{}"),
	call("1", "echo", `{"a":`+strings.Repeat("[", 60)+strings.Repeat("]", 60)+`}`), call("1", "echo", `{"a":`+strings.Repeat("[", 61)+strings.Repeat("]", 61)+`}`), call("1", "echo", `{"a":`+strings.Repeat("[", 62)+strings.Repeat("]", 62)+`}`),
	call("1", "echo", `{"`+strings.Repeat("k", 1000)+`":1}`), `[` + call("1", "echo", "{}") + `]`, `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
	initialize, legacyCall, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740993}}`,
	`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["a","a"],"TaskIds":[]},` + modernMeta + `}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{"taskId":"t","inputResponses":{"k":{"action":"accept"},"\u006b":{}},"requestState":"s",` + modernMeta + `}}`,
	`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:\u0000\u007f\u00ad",` + modernMeta + `}}`,
}

// FuzzParse: whatever arrives, parsing ends, and what it accepts another strict
// parser reads the same way.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range txtar.Parse(data).Files {
			f.Add(part.Data)
		}
	}
	f.Add([]byte(strings.Repeat("[", 100_000)))
	for _, s := range append(splits, nasty...) {
		f.Add([]byte(s))
	}
	limits := Limits{}.withDefaults()
	f.Fuzz(func(t *testing.T, body []byte) {
		checkSplit(t, body)
		m, bad := parseMessage(body, limits)
		if bad != nil {
			if !json.Valid(encodeError(m.ID, bad)) {
				t.Fatalf("the error is no JSON: %s", encodeError(m.ID, bad))
			}
			return
		}
		p, bad := parseParams(m.Params, m.strict, limits)
		if bad != nil {
			return
		}
		if !utf8.Valid(body) || !json.Valid(body) {
			t.Fatal("accepted what is no JSON")
		}
		var same struct {
			ID     json.RawMessage            `json:"id"`
			Method string                     `json:"method"`
			Params map[string]json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(body, &same); err != nil {
			t.Fatal(err)
		}
		if same.Method != m.Method || string(same.ID) != string(m.ID) || len(same.Params) != len(p.members) {
			t.Fatalf("another parser reads it differently: %+v, %+v", same, m)
		}
		if v := newIDAlias().in(body, m, p); !json.Valid(v) {
			t.Fatalf("the alias broke it: %s", v)
		}
		r, bad := (&front{limits: limits, supported: []string{Version}}).admit(m, p)
		if bad == nil && r.Capabilities == nil {
			t.Fatal("admitted without capabilities")
		}
	})
}
