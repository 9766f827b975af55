//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/url"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/record"
)

var fuzzForms = []string{
	`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`,
	`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":10},"x":{"type":"number"},"s":{"type":"string","minLength":1,"maxLength":3}},"required":["n"]}`,
	`{"type":"object","properties":{"when":{"type":"string","format":"date-time"},"mail":{"type":"string","format":"email"},"at":{"type":"string","format":"uri"},"day":{"type":"string","format":"date"}}}`,
	`{"type":"object","properties":{"some":{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1},"one":{"type":"string","enum":["a"],"default":"a"}},"required":["some"]}`,
	`{"type":"object","properties":{"one":{"type":"string","oneOf":[{"const":"a","title":"A"}]},"many":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}},"":{"type":"boolean"}}}`,
}

var fuzzAnswers = []string{
	`{"action":"accept","content":{"confirm":true}}`, `{"action":"accept","content":{"confirm":false}}`, `{"action":"accept","content":{"Confirm":true}}`, `{"action":"accept","Content":{"confirm":true},"content":null}`, `{"Action":"accept","action":"decline"}`,
	`{"action":"accept","content":{"confirm":false,"confirm":true}}`, `{"action":"accept","content":{"confirm\u0000":true}}`, `{"action":"accept\u0000"}`, `{"action":"accept"}`, `{"action":"decline","content":{"confirm":true}}`, `{"action":"cancel"}`, `{"action":"accept","content":{"confirm":1}}`, `{"action":"accept","content":{"confirm":"true"}}`,
	`{"action":"accept","content":{"n":1,"x":1e24,"s":"\ud83d\ude00"}}`, `{"action":"accept","content":{"n":1000000000000000000000000}}`, `{"action":"accept","content":{"n":5.0}}`, `{"action":"accept","content":{"n":5e0,"x":9007199254740993}}`, `{"action":"accept","content":{"n":-0}}`, `{"action":"accept","content":{"n":1e400}}`, `{"action":"accept","content":{"n":1,"more":{"deep":[[[]]]}}}`,
	`{"action":"accept","content":{"n":1,"s":"\ud800"}}`, `{"action":"accept","content":{"when":"2026-02-28T10:00:00Z","mail":"a@b.example","at":"https://x","day":"2026-02-30"}}`, `{"action":"accept","content":{"mail":"A <a@b.example>","at":"x","when":"2026-02-28t10:00:00z"}}`,
	`{"action":"accept","content":{"some":["a","b","a"]}}`, `{"action":"accept","content":{"some":["c"]}}`, `{"action":"accept","content":{"some":[]}}`, `{"action":"accept","content":{"some":null,"one":"a"}}`, `{"action":"accept","content":{"some":[1]}}`, `{"action":"accept","content":{"one":"b"}}`, `{"action":"accept","content":{"one":"a","many":["a"],"":true}}`,
	`{"action":"accept","content":[]}`, `{"action":"accept","content":"x"}`, `{"action":1}`, `{}`, `{"roots":[{"uri":"file:///a"}]}`, `{"roots":[{"uri":"https://a"}]}`, `{"roots":[],"Roots":[{"uri":"https://evil"}]}`, `{"roots":[{"uri":"file:///a","URI":"https://evil"}]}`, `{"roots":null}`, `{"roots":[null]}`, `{"roots":[{"uri":"FILE:///a","name":7}]}`,
	`{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`, `{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"1","name":"n","input":{}}],"model":"m"}`, `{"role":"assistant","content":{"type":"text","text":"x"},"Content":{"type":"text","text":"evil"},"model":"m"}`,
	`{"role":"assistant","content":{"type":"image","data":"AA","mimeType":"x"},"model":"m"}`, `{"role":"assistant","Role":"user","content":{"type":"nope"},"model":"m"}`, `{"role":"assistant","content":null,"model":"m"}`, `{"role":"assistant","content":[],"model":""}`,
}

// FuzzAnswers: an accepted answer fits what was asked, by a validator and a
// reader that know nothing of how it was accepted, and says what was sent.
func FuzzAnswers(f *testing.F) {
	for _, schema := range fuzzForms {
		for kind, answer := range fuzzAnswers {
			f.Add(uint8(kind), []byte(schema), []byte(answer))
		}
	}
	for kind := range uint8(5) {
		for _, answer := range fuzzAnswers {
			f.Add(kind, []byte(fuzzForms[0]), []byte(answer))
		}
	}
	kinds := []record.Kind{record.KindForm, record.KindForm, record.KindURL, record.KindSampling, record.KindRoots}
	f.Fuzz(func(t *testing.T, which uint8, schema, answer []byte) {
		if _, err := canon.Digest(answer); err != nil || len(answer) == 0 || answer[0] != '{' || len(answer) > 64<<10 {
			return // refused before
		}
		q := &record.Question{Key: "k", WireKey: "k", Kind: kinds[int(which)%len(kinds)], Request: []byte(`{}`)}
		if q.Kind == record.KindForm {
			form, err := parseForm(schema)
			if err != nil {
				return
			}
			q.Request = form.request("?")
			q.Confirm = which%5 == 1 && form.props["confirm"] != nil && form.props["confirm"].Type == "boolean" && len(form.props) == 1
		}
		before := bytes.Clone(answer)
		g, wrong := readAnswer(q, answer)
		if !bytes.Equal(before, answer) {
			t.Fatal("the answer was changed")
		}
		if wrong != nil {
			for field, text := range wrong {
				if len(text) > 80 {
					t.Fatalf("%q: %q", field, text)
				}
			}
			return
		}
		if g.Action != record.Accept && len(g.Value) > 0 {
			t.Fatalf("a value of what is no acceptance: %s", g.Value)
		}
		if g.Action != record.Accept || g.consent {
			return
		}
		got, err := responseOf(q.Kind, q.Request, g.Value)
		if err != nil {
			t.Fatalf("%s is accepted and cannot be read: %v", answer, err)
		}
		switch q.Kind {
		case record.KindForm:
			checkForm(t, q, schema, answer, g.Value, got.(*mcp.ElicitResult))
		case record.KindRoots:
			checkRoots(t, answer, got.(*mcp.ListRootsResult))
		case record.KindSampling:
			checkSampling(t, answer, got.(*mcp.CreateMessageWithToolsResult))
		}
	})
}

// exactMembers is an object by exact names, with the numbers as they are.
func exactMembers(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	members := map[string]any{}
	if err := d.Decode(&members); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return members
}

func checkForm(t *testing.T, q *record.Question, schema, answer, value []byte, got *mcp.ElicitResult) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	whole, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var plainly map[string]any
	if err := json.Unmarshal(value, &plainly); err != nil {
		t.Fatal(err)
	}
	if err := whole.Validate(plainly); err != nil {
		t.Fatalf("%s is accepted as %s by %s: %v", answer, value, schema, err)
	}
	sent, _ := exactMembers(t, answer)["content"].(map[string]any)
	kept := exactMembers(t, value)
	for name, v := range kept {
		if s.Properties[name] == nil || !sameJSON(v, sent[name]) {
			t.Fatalf("%s: %q is kept as %v", answer, name, v)
		}
	}
	for name, v := range sent {
		if _, ok := kept[name]; !ok && s.Properties[name] != nil {
			t.Fatalf("%s: %q, which says %v, is lost", answer, name, v)
		}
	}
	for name := range plainly { // what a handler reads
		if _, ok := got.Content[name]; !ok {
			t.Fatalf("%s: %q is not read from %s", answer, name, value)
		}
	}
	f, err := formIn(q.Request)
	if err != nil {
		t.Fatal(err)
	}
	if again, wrong := f.check(value); wrong != nil || !bytes.Equal(again, value) {
		t.Fatalf("%s is %s the second time: %v", value, again, wrong)
	}
	if q.Confirm && sent["confirm"] != true {
		t.Fatalf("%s is taken for a yes", answer)
	}
}

// sameJSON compares values with numbers as fractions.
func sameJSON(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		n, ok := y.(json.Number)
		if !ok || len(x) > 1000 || len(n) > 1000 {
			return ok
		}
		a, _ := new(big.Rat).SetString(string(x))
		b, _ := new(big.Rat).SetString(string(n))
		return a != nil && b != nil && a.Cmp(b) == 0
	case []any:
		list, ok := y.([]any)
		if !ok || len(x) != len(list) {
			return false
		}
		for i := range x {
			if !sameJSON(x[i], list[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		return false // no form has objects
	}
	return x == y
}

func checkRoots(t *testing.T, answer []byte, got *mcp.ListRootsResult) {
	t.Helper()
	sent, ok := exactMembers(t, answer)["roots"].([]any)
	if !ok || len(sent) != len(got.Roots) {
		t.Fatalf("%s is taken for %d roots", answer, len(got.Roots))
	}
	for i, root := range got.Roots {
		one, _ := sent[i].(map[string]any)
		u, err := url.Parse(root.URI)
		if err != nil || !strings.EqualFold(u.Scheme, "file") || one["uri"] != root.URI {
			t.Fatalf("%s: root %d is %q", answer, i, root.URI)
		}
	}
}

func checkSampling(t *testing.T, answer []byte, got *mcp.CreateMessageWithToolsResult) {
	t.Helper()
	sent := exactMembers(t, answer)
	if string(got.Role) != sent["role"] || got.Role == "" {
		t.Fatalf("%s: the role is %q", answer, got.Role)
	}
	if model, _ := sent["model"].(string); got.Model != model {
		t.Fatalf("%s: the model is %q", answer, got.Model)
	}
	blocks, list := sent["content"].([]any)
	if !list {
		blocks = []any{sent["content"]}
	}
	if len(blocks) != len(got.Content) {
		t.Fatalf("%s has %d blocks", answer, len(got.Content))
	}
	for i, block := range got.Content {
		text, ok := block.(*mcp.TextContent)
		if one, _ := blocks[i].(map[string]any); ok && one["text"] != text.Text && (one["text"] != nil || text.Text != "") {
			t.Fatalf("%s: block %d is %q", answer, i, text.Text)
		}
	}
}
