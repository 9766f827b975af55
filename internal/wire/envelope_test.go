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
	limits := Limits{}.withDefaults()
	f.Fuzz(func(t *testing.T, body []byte) {
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
