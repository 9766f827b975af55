package tallystick

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/yosida95/uritemplate/v3"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/internal/wire"
)

// transfer is what the fuzzed tool takes.
type transfer struct {
	From   string `json:"from"`
	Amount int64  `json:"amount"`
	Urgent bool   `json:"urgent,omitempty"`
	To     struct {
		Name  string   `json:"name"`
		Lines []string `json:"lines,omitempty"`
	} `json:"to"`
}

var fuzzArguments = []string{
	``, `{}`, `null`, `[]`, `{"from":"a","amount":1,"to":{"name":"x"}}`, `{"from":"a","amount":1,"to":{"name":"x","lines":["1","2"]},"urgent":true}`, `{"from":"a","From":"b","amount":1,"to":{"name":"x"}}`, `{"from":"a","amount":1,"to":{"name":"x","Name":"y"}}`,
	`{"from":"a","from":"b","amount":1,"to":{"name":"x"}}`, `{"from":"a","fr\u006fm":"b","amount":1,"to":{"name":"x"}}`, `{"from":"a","from\u0000":"b","amount":1,"to":{"name":"x"}}`, `{"from":"\ud800","amount":1,"to":{"name":"x"}}`, "{\"from\":\"\xff\",\"amount\":1,\"to\":{\"name\":\"x\"}}",
	`{"from":"a","amount":1e24,"to":{"name":"x"}}`, `{"from":"a","amount":1000000000000000000000000,"to":{"name":"x"}}`, `{"from":"a","amount":9007199254740993,"to":{"name":"x"}}`, `{"from":"a","amount":9007199254740992,"to":{"name":"x"}}`, `{"from":"a","amount":-0,"to":{"name":"x"}}`, `{"from":"a","amount":1.0,"to":{"name":"x"}}`, `{"from":"a","amount":1e400,"to":{"name":"x"}}`,
	`{"from":"a","amount":9223372036854775808,"to":{"name":"x"}}`, `{"from":"a","amount":1,"to":null}`, `{"from":null,"amount":1,"to":{"name":"x"}}`, `{"iss":"i","tenant":"t","client_id":"c","roles":["a",1,null]}`, `{"city":"x","word":"y"}`, `{"city":1}`, `{"City":"x"}`, `{"city":null}`, `"key"`, `"k\u0000"`, `""`, `7`,
	`{"x":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`, `{"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, `{"` + strings.Repeat("k", 1000) + `":1}`, "\xef\xbb\xbf{}", `{"from":"a","amount":1,"to":{"name":"x"}}x`,
}

// FuzzArguments: arguments that are accepted say to the handler what they say to
// an exact reader, those of one digest say the same, and what else a request
// brings is within its bounds.
func FuzzArguments(f *testing.F) {
	uris := []string{"order://1", "order://1/../2", "order://%00", "order://\x00", "order://" + strings.Repeat("9", 300), "ORDER://1", "order://{id}", "order://é"}
	for i, a := range fuzzArguments {
		f.Add([]byte(a), []byte(fuzzArguments[(i+1)%len(fuzzArguments)]), uris[i%len(uris)])
	}
	closed, err := schemaFor[transfer](new(any), true)
	if err != nil {
		f.Fatal(err)
	}
	anything, err := schemaFor[any](new(any), true)
	if err != nil {
		f.Fatal(err)
	}
	template := uritemplate.MustNew("order://{id}")
	x := &exchange{id: Identity{Subject: "ann"}, r: &wire.Request{}}
	f.Fuzz(func(t *testing.T, raw, other []byte, uri string) {
		checkBrought(t, x, raw)
		if template.Regexp().MatchString(uri) && !strings.HasPrefix(uri, "order://") {
			t.Fatalf("%q is of %s", uri, template.Raw())
		}
		in, digest, ok := acceptedTransfer(t, closed, raw)
		if !ok {
			return
		}
		if toolErr, err := checkArguments[any](raw, anything); toolErr != nil || err != nil {
			t.Fatalf("%s: %v, %v", raw, toolErr, err)
		}
		if in2, digest2, ok := acceptedTransfer(t, closed, other); ok && digest == digest2 && !reflect.DeepEqual(in, in2) {
			t.Fatalf("%s and %s have one digest, and are %+v and %+v", raw, other, in, in2)
		}
	})
}

// acceptedTransfer goes the way of a call's arguments.
func acceptedTransfer(t *testing.T, schema *valueSchema, raw []byte) (in transfer, digest string, ok bool) {
	t.Helper()
	if len(raw) > 0 && (raw[0] != '{' || !jsontext.Value(raw).IsValid()) {
		return in, "", false // refused before
	}
	before := bytes.Clone(raw)
	toolErr, err := checkArguments[transfer](raw, schema)
	if !bytes.Equal(before, raw) {
		t.Fatal("the arguments were changed")
	}
	if toolErr != nil || err != nil {
		return in, "", false
	}
	if digest, err = canon.Digest(raw); err != nil {
		return in, "", false
	}
	full, err := schema.checked(raw)
	if err != nil {
		t.Fatalf("%s is accepted, and not when it is run: %v", raw, err)
	}
	if err := strictDecode(full, &in); err != nil {
		t.Fatalf("%s is accepted, and cannot be read: %v", raw, err)
	}
	// Whoever reads it without minding case reads the same at the top level, and
	// whoever minds it reads the same everywhere.
	var loose struct {
		From   string
		Amount json.Number
		Urgent bool
	}
	if err := json.Unmarshal(raw, &loose); err != nil || loose.From != in.From || loose.Urgent != in.Urgent {
		t.Fatalf("%s is %+v, and %+v to others: %v", raw, in, loose, err)
	}
	sent := exactMembers(t, raw)
	to, _ := sent["to"].(map[string]any)
	n, _ := json.Marshal(in.Amount)
	if sent["from"] != in.From || !sameJSON(sent["amount"], json.Number(n)) || to["name"] != in.To.Name {
		t.Fatalf("%s is taken for %+v", raw, in)
	}
	lines, _ := to["lines"].([]any)
	if len(lines) != len(in.To.Lines) {
		t.Fatalf("%s is taken for %+v", raw, in)
	}
	return in, digest, true
}

// checkBrought tries raw as a prompt's arguments, an idempotency key, and what a
// token says.
func checkBrought(t *testing.T, x *exchange, raw []byte) {
	t.Helper()
	if raw = bytes.Trim(raw, " \t\r\n"); len(raw) > 0 && !jsontext.Value(raw).IsValid() {
		return // refused before
	}
	if len(raw) == 0 || raw[0] == '{' {
		if checkPrompt(raw, map[string]bool{"city": true, "word": false}) == nil {
			args := map[string]string{}
			if err := strictDecode(raw, &args); err != nil {
				t.Fatalf("%s is accepted, and cannot be read: %v", raw, err)
			}
			sent := exactMembers(t, raw)
			if _, ok := sent["city"]; !ok || len(sent) != len(args) {
				t.Fatalf("%s is taken for %q", raw, args)
			}
			for name, v := range args {
				if sent[name] != v {
					t.Fatalf("%s is taken for %q", raw, args)
				}
			}
		}
	}
	if len(raw) == 0 {
		return
	}
	x.r.Meta = map[string]json.RawMessage{keyMeta: raw}
	var text string
	is := json.Unmarshal(raw, &text) == nil && raw[0] == '"'
	if key, err := x.idempotencyKey(); err == nil && (!is || key != text || key == "" || len(key) > 256) || err != nil && is && text != "" && len(text) <= 256 {
		t.Fatalf("%s is the key %q, %v", raw, key, err)
	}
	var extra map[string]any
	if json.Unmarshal(raw, &extra) != nil {
		return
	}
	id, err := identifyByToken(t.Context(), &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{UserID: "ann", Extra: extra}})
	if err != nil || id.Subject != "ann" {
		t.Fatalf("%s: %+v, %v", raw, id, err)
	}
	for name, got := range map[string]string{"iss": id.Issuer, "tenant": id.Tenant, "client_id": id.Client} {
		if want, _ := extra[name].(string); got != want {
			t.Fatalf("%s: %s is %q", raw, name, got)
		}
	}
	roles, _ := extra["roles"].([]any)
	for _, role := range id.Roles {
		if !slices.Contains(roles, any(role)) { // strings compare with each other alone
			t.Fatalf("%s: the role %q", raw, role)
		}
	}
}
