package form_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
)

func TestWhatASchemaMarksAsSecretIsMasked(t *testing.T) {
	const all, none = `{"pin":"***(6 bytes)","who":"***(5 bytes)","at":"***(27 bytes)"}`, `{"pin":"1234","who":"kim","at":{"a":[{"pin":1,"who":"x"}]}}`
	const pins = `{"pin":"***(6 bytes)","who":"kim","at":{"a":[{"pin":"***(1 bytes)","who":"x"}]}}`
	pin := func(schema string) string {
		return `{"type":"object","properties":{"pin":` + schema + `,"x":{"type":"object"}}}`
	}
	for _, tt := range []struct{ name, schema, want string }{
		{"password", pin(`{"type":"string","format":"password"}`), pins},
		{"writeOnly", pin(`{"writeOnly":true,"maximum":1e400}`), pins},
		{"in a list", pin(`{"type":"array","items":{"format":"password"}}`), pins},
		{"one of several", pin(`{"oneOf":[{"type":"null"},{"format":"password"}]}`), pins},
		{"deeper", `{"properties":{"at":{"properties":{"a":{"items":` + pin(`{"writeOnly":true}`) + `}}}}}`, pins},
		{"by reference", `{"properties":{"pin":{"$ref":"#/$defs/p"}},"$defs":{"p":{"format":"password"}}}`, pins},
		{"by a reference that leads away", pin(`{"$ref":"https://schemas.example/pin"}`), pins},
		{"whatever else comes", `{"additionalProperties":{"format":"password"}}`, all},
		{"not to be read", `{"properties":`, all},
		{"nothing", pin(`{"type":"string","writeOnly":false,"$ref":"#/$defs/p"}`), none},
		{"no schema", ``, none},
	} {
		s := form.FindSecrets([]byte(tt.schema))
		if got := string(s.Mask(jsontext.Value(none))); got != tt.want || s.Any() != (tt.want != none) {
			t.Errorf("%s: %t, %s, want %s", tt.name, s.Any(), got, tt.want)
		}
	}
}
