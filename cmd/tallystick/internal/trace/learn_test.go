package trace

import (
	"fmt"
	"strings"
	"testing"
)

const call = `{"method":"tools/call","params":{"arguments":%s,"name":"t"}}`

func tool(schema string) string {
	return `{"result":{"tools":[{"inputSchema":` + schema + `,"name":"t"}]}}`
}

func TestArgumentsOfAToolThatWasNotSeenAreMasked(t *testing.T) {
	var m masker
	for _, arguments := range []string{`{"pin":"s3cret","deep":{"x":["s3cret"]}}`, `"s3cret"`, `["s3cret"]`} {
		if got := m.message(fmt.Appendf(nil, call, arguments)); strings.Contains(got, secret) || !strings.Contains(got, `"arguments":`) {
			t.Error(got)
		}
	}
	m.message([]byte(tool(`{"properties":{"pin":{"format":"password"}}}`)))
	if got, want := m.message(fmt.Appendf(nil, call, `{"pin":"s3cret","note":"shown"}`)), fmt.Sprintf(call, `{"pin":"***(8 bytes)","note":"shown"}`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAnswersToAQuestionThatWasNotSeenAreMasked(t *testing.T) {
	var m masker
	message := []byte(`{"params":{"inputResponses":{"a":{"action":"accept","content":{"pin":"s3cret"}}}}}`)
	if got, want := m.message(message), `{"params":{"inputResponses":{"a":{"action":"accept","content":{"pin":"***(8 bytes)"}}}}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	m.message([]byte(`{"result":{"inputRequests":{"a":{"params":{"requestedSchema":{"properties":{"pin":{}}}}}}}}`))
	if got := m.message(message); !strings.Contains(got, secret) {
		t.Errorf("what was seen, and is no secret, is masked: %s", got)
	}
}

func TestWhatASchemaMarksIsFoundWhereverItStands(t *testing.T) {
	for name, schema := range map[string]string{
		"nested":            `{"properties":{"who":{"properties":{"pin":{"format":"password"}}}}}`,
		"of items":          `{"properties":{"all":{"items":{"properties":{"pin":{"writeOnly":true}}}}}}`,
		"all items":         `{"properties":{"pin":{"type":"array","items":{"format":"password"}}}}`,
		"one of several":    `{"allOf":[{"anyOf":[{"properties":{"pin":{"format":"password"}}}]}]}`,
		"by reference":      `{"properties":{"pin":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"format":"password"}}}`,
		"in a definition":   `{"properties":{"who":{"$ref":"#/$defs/who"}},"$defs":{"who":{"properties":{"pin":{"format":"password"}}}}}`,
		"by a far one":      `{"properties":{"pin":{"$ref":"https://else.example/pin"}}}`,
		"without a name":    `{"additionalProperties":{"format":"password"}}`,
		"by pattern":        `{"patternProperties":{"p.*":{"writeOnly":true}}}`,
		"beside a bad one":  `{"properties":{"a":7,"b":"x","c":{"format":1e999},"pin":{"format":"password"},"d":[],"e":null}}`,
		"beside a huge one": `{"properties":{"n":{"maximum":1e999},"pin":{"format":"password"}}}`,
		"round in a ring":   `{"properties":{"pin":{"$ref":"#/$defs/a"}},"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}}`,
	} {
		var m masker
		m.message([]byte(tool(schema)))
		if got := m.message(fmt.Appendf(nil, call, `{"x":{"y":[{"pin":["s3cret"]}]}}`)); strings.Contains(got, secret) {
			t.Errorf("%s: it is shown: %s", name, got)
		}
		if got := Answer([]byte(schema), []byte(`{"pin":"s3cret"}`)); strings.Contains(got, secret) {
			t.Errorf("%s: an answer is shown: %s", name, got)
		}
	}
	if got := Answer([]byte(`{"properties":`), []byte(`{"pin":"s3cret"}`)); strings.Contains(got, secret) {
		t.Errorf("an answer to what is no schema is shown: %s", got)
	}
}

func TestATreeIsNoSecret(t *testing.T) {
	var m masker
	m.message([]byte(tool(`{"$ref":"#/$defs/node","$defs":{"node":{"properties":{"name":{"type":"string"},"under":{"items":{"$ref":"#/$defs/node"}},"next":{"$ref":"#"}}}}}`)))
	if got, want := m.message(fmt.Appendf(nil, call, `{"under":[{"name":"a"}]}`)), fmt.Sprintf(call, `{"under":[{"name":"a"}]}`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
