package tallystick

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var plainSchemas = []string{
	`{}`, `true`, `{"type":"object"}`, `{"type":["null","object"],"properties":{"a":{"type":"integer"}}}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"type":["null","boolean"]}}}`,
	`{"properties":{"a":{"type":"object","properties":{"b":{"type":"string"}},"required":["b"],"additionalProperties":false}},"required":["a","a"]}`,
	`{"type":"array","items":{"type":["string","integer"]}}`, `{"type":"unknown"}`,
}

var plainValues = []string{
	``, ` `, `null`, `true`, `1`, `1.0`, `-0`, `1e2`, `1e999`, `123456789012345678`, `"a"`, `"\ud800"`, "\"\xff\"", `[]`, `[1,2]`, `[1,"a",null]`, `{}`, `{} {}`, `{"a":`,
	`{"a":"x"}`, `{"a":"x","b":1.5}`, `{"a":"x","b":1e999}`, `{"a":"x","c":1}`, `{"a":"x","a":"y"}`, `{"b":2}`, `{"\u0061":"x"}`, `{"a":1}`, `{"a":1.5}`, `{"a":[1,2.0]}`,
	`{"a":[1,2],"b":null}`, `{"a":{"b":"c"}}`, `{"a":{"b":"c","d":1}}`, `{"a":{}}`, `{"A":"x"}`, `[[1e999]]`, `{"x":{"y":1e999}}`,
}

// checkPlain fails if the quick look accepts what the validator would not, or
// would fill in.
func checkPlain(t *testing.T, schema *jsonschema.Schema, value []byte) (accepted bool) {
	t.Helper()
	full, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return false
	}
	p := plainOf(full.Schema())
	if !p.accepts(value) {
		return false
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		t.Fatalf("%s is accepted and cannot be read: %v", value, err)
	}
	before, _ := json.Marshal(v)
	if _, ok := v.(map[string]any); ok {
		if err := full.ApplyDefaults(&v); err != nil {
			t.Fatalf("%s is accepted and has no defaults: %v", value, err)
		}
	}
	if after, _ := json.Marshal(v); !bytes.Equal(before, after) {
		t.Fatalf("%s is accepted and becomes %s", before, after)
	}
	if err := full.Validate(v); err != nil {
		raw, _ := json.Marshal(schema)
		t.Fatalf("%s is accepted by %s: %v", value, raw, err)
	}
	return true
}

func TestWhatTheQuickLookAcceptsIsValid(t *testing.T) {
	accepted := 0
	for _, raw := range plainSchemas {
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(raw), &schema); err != nil {
			t.Fatal(err)
		}
		for _, value := range plainValues {
			if checkPlain(t, &schema, []byte(value)) {
				accepted++
			}
		}
	}
	if accepted < 30 {
		t.Errorf("only %d were accepted", accepted)
	}
}

func TestTheQuickLookLeavesOtherKeywordsAlone(t *testing.T) {
	for _, raw := range []string{
		`{"default":1}`, `{"properties":{"a":{"default":"x"}}}`, `{"enum":["a"]}`, `{"pattern":"a"}`, `{"minimum":1}`, `{"not":{"type":"null"}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `{"additionalProperties":{"type":"string"}}`, `{"items":{"maxLength":1}}`, `{"$ref":"#"}`,
		`{"prefixItems":[{"type":"string"}]}`, `{"items":[{"type":"string"}]}`, `{"patternProperties":{"a":false}}`, `{"const":null}`, `{"unevaluatedProperties":false}`,
	} {
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(raw), &schema); err != nil {
			t.Fatal(err)
		}
		if plainOf(&schema) != nil {
			t.Errorf("%s is taken for a plain schema", raw)
		}
	}
	if plainOf(nil).accepts([]byte("{}")) {
		t.Error("no schema accepts")
	}
}

func FuzzTheQuickLook(f *testing.F) {
	for i, s := range plainSchemas {
		f.Add([]byte(s), []byte(plainValues[(7*i+3)%len(plainValues)]))
	}
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		var schema jsonschema.Schema
		if json.Unmarshal(raw, &schema) == nil {
			checkPlain(t, &schema, value)
		}
	})
}

func TestAnOutputAloneIsMarshalledAsAResultIs(t *testing.T) {
	for _, structured := range []string{`{"a":"<b> & \"c\" \u2028"}`, `{}`, `[1]`, `null`, `"ä"`} {
		raw, err := json.Marshal(json.RawMessage(structured))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(&mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}, StructuredContent: json.RawMessage(raw),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := structuredOnly(raw); !bytes.Equal(got, complete(whole)) {
			t.Errorf("%s\n%s", got, complete(whole))
		}
	}
}

func TestFormsThatAreRememberedAreFew(t *testing.T) {
	var m formMemory
	for i := range 1000 {
		schema := fmt.Appendf(nil, `{"type":"object","properties":{"a%d":{"type":"string"}}}`, i)
		f, err := m.parse(schema)
		if err != nil || f.props[fmt.Sprintf("a%d", i)] == nil {
			t.Fatalf("%s: %v", schema, err)
		}
		if again, err := m.parse(bytes.Clone(schema)); err != nil || again != f {
			t.Fatalf("%s is read again", schema)
		}
	}
	if len(m.forms) > 128 {
		t.Errorf("%d are remembered", len(m.forms))
	}
	if _, err := m.parse([]byte(`{"type":"string"}`)); err == nil {
		t.Error("what is no form is one")
	}
}
