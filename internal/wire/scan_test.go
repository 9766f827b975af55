package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// slowly takes an object apart by the decoder alone.
func slowly(object []byte) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	err := eachMember(d, object, func(name string, value json.RawMessage) { members[name] = value })
	return members, err
}

func checkSplit(t *testing.T, b []byte) {
	t.Helper()
	if _, err := jsontext.NewDecoder(bytes.NewReader(b)).ReadValue(); err != nil && wellFormed(b) {
		t.Fatalf("%q is taken for well-formed: %v", b, err)
	}
	if !wellFormed(b) || b[skipSpace(b, 0)] != '{' {
		return
	}
	want, err := slowly(b)
	if err != nil {
		t.Fatalf("%q is taken for well-formed: %v", b, err)
	}
	got, _ := splitMembers(b, []string{"a", "method"}, func(string, string) *Error { return nil })
	if !maps.EqualFunc(want, got, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) }) {
		t.Fatalf("%q comes apart as %q and not as %q", b, got, want)
	}
	for _, v := range got {
		if v[0] == '{' {
			checkSplit(t, v)
		}
	}
	// And through the whole of the envelope and params.
	limits := Limits{}.withDefaults()
	quick, bad := parseMessage(b, limits)
	if bad != nil {
		return
	}
	p, bad := parseParams(quick.Params, true, limits)
	q, other := parseParams(quick.Params, false, limits)
	if (bad == nil) != (other == nil) || bad != nil && *bad != *other {
		t.Fatalf("%q: %v and %v", b, bad, other)
	}
	if bad == nil && (len(p.members) != len(q.members) || len(p.meta) != len(q.meta)) {
		t.Fatalf("%q: %q and %q", b, p.members, q.members)
	}
}

var splits = []string{
	`{}`, ` { } `, `{"a":1}`, "\t{ \"a\" :\n1 , \"b\":[ {\"c\" : \"}\"} ] }\r\n", `{"\u0061":"\\\"","b":""}`, `{"a":{"b":{"c":[]}},"d":null}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`,
	`{"a":-1.5e3}`, `{"a":true}x`, `[]`, `1`, `{"a":"` + "\xff" + `"}`, `{"a":1}{"b":2}`, `{"":1}`, `{"a":"\ud834\udd1e"}`, `{"Method":"x"}`, `{"a":[1,2,{"x":"]"}],"method":"tools/call"}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","Arguments":{},"_meta":{"progresstoken":1}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":{"b":1}},"_meta":{"progressToken":1}}}`,
}

func TestSplitTakesApartWhatTheDecoderDoes(t *testing.T) {
	for _, s := range splits {
		checkSplit(t, []byte(s))
	}
	checkSplit(t, []byte(strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100)))
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var r remembered[int]
	for i := range 3 * maxRemembered {
		r.keep([]byte(strings.Repeat("x", i)), i)
	}
	if len(r.seen) > maxRemembered {
		t.Errorf("%d are remembered", len(r.seen))
	}
	r.keep(make([]byte, maxRememberedSize+1), 1)
	if _, ok := r.of(make([]byte, maxRememberedSize+1)); ok {
		t.Error("something large is remembered")
	}
	r.keep([]byte("a"), 7)
	if v, ok := r.of([]byte("a")); !ok || v != 7 {
		t.Errorf("%d, %v", v, ok)
	}
}
