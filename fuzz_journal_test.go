package tallystick

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzJournal: whatever journal a state carries that was sealed with our key, by
// another release say, going on with it gives one response, and nothing
// panics. What reads like a journal and asks what cannot be sent is an
// internal error.
func FuzzJournal(f *testing.F) {
	c := newCounter(f)
	f.Cleanup(func() { c.stop() })
	claims, err := c.srv.sealer.Open(c.look)
	if err != nil {
		f.Fatal(err)
	}
	genuine := string(claims.Journal)
	answers := []string{
		`{}`, `{"sure":{"action":"accept","content":{"confirm":true}}}`, `{"ElicitParams":{"action":"accept","content":{"n":1}},"ListRootsParams":{"roots":[{"uri":"file:///a"}]}}`,
		`{"sure":{"action":"decline"}}`, `{"sure":{"action":"accept","content":{"confirm":true}},"s\u0075re":{}}`, `{"sure\u0000":{"action":"accept"}}`,
	}
	for _, a := range answers {
		f.Add([]byte(genuine), []byte(a), 1)
	}
	for _, journal := range []string{
		``, `{}`, `null`, `[]`, `{"rounds":null}`, `{"questions":[{}]}`, `{"state":"ended"}`, "\xff", strings.Repeat("[", 9000), `{"round":1e24}`, `{"x":"\ud800"}`, genuine + "x", genuine[:len(genuine)/2],
		strings.Replace(genuine, `"rounds":[`, `"rounds":[null,`, 1), strings.Replace(genuine, `waiting`, `running`, 1), strings.Replace(genuine, `waiting`, `ended`, 1), strings.Replace(genuine, `"form"`, `"sampling"`, 1), strings.Replace(genuine, `"open"`, `"answered"`, -1), strings.Replace(genuine, `"state"`, `"State":"ended","state"`, 1),
		strings.Replace(genuine, `"requestedSchema"`, `"x"`, -1), strings.Replace(genuine, `"round":`, `"round":-1,"x":`, -1), strings.Replace(genuine, `"asked":[`, `"asked":["none",`, 1), strings.Replace(genuine, `2026-`, `9999-`, -1), strings.Replace(genuine, `"closed":true`, `"closed":false`, 1),
	} {
		f.Add([]byte(journal), []byte(answers[1]), 1)
	}
	f.Fuzz(func(t *testing.T, journal, answers []byte, round int) {
		var given map[string]json.RawMessage
		if !utf8.Valid(answers) || !jsontext.Value(answers).IsValid(jsontext.AllowDuplicateNames(true)) || json.Unmarshal(answers, &given) != nil || given == nil {
			return
		}
		forged := claims
		forged.Journal, forged.Round = journal, round
		state, err := c.srv.sealer.Seal(forged)
		if err != nil {
			return // too large, or a round that no state has
		}
		q := request{"", fuzzCall("tools/call", fmt.Sprintf(`"name":"look","arguments":{"orderId":"1"},"requestState":%q,"inputResponses":%s`, state, answers)), right}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://counter.example/", nil)
		w := c.send(r, q)
		if trace := c.panicked(); trace != "" {
			t.Fatalf("%d %.1000s to %s with %s: %s", w.Code, w.Body, journal, answers, trace)
		}
		// What it asks is what the journal says; who asked for it and how is not.
		var m struct {
			ID            int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || m.ID != 1 || (m.Result == nil) == (m.Error == nil) || (w.Code == 200) != (m.Error == nil) {
			t.Fatalf("%d %.1000s to %s with %s", w.Code, w.Body, journal, answers)
		}
	})
}
