package client_test

import (
	"testing"

	"github.com/tallystick/tallystick/client"
)

// case S10: what is no result yet is never handed on as one, whatever it looks
// like: the caller of Call, Start and the other methods gets its question and
// state, as they came, or the result that follows.
func TestWhatIsNoResultYetIsNeverGivenAsOne(t *testing.T) {
	const odd = `{"resultType":"input_required","requestState":"pending","inputRequests":{"k":` +
		`{"method":"elicitation/create","params":{"mode":"form","message":"Go?","requestedSchema":{"type":"object","properties":{"big":{"type":"integer","maximum":9007199254740993}}}}}},` +
		`"content":[{"type":"text","text":"done"}],"structuredContent":{"done":true}}`
	f := fakeServer(t, map[string]saying{"tools/call": result(odd), "prompts/get": result(odd), "resources/read": result(odd)})
	c := f.client(client.Options{})
	calls := map[string]func() error{
		"tools/call":     func() error { _, err := c.Call(t.Context(), "pay", nil); return err },
		"prompts/get":    func() error { _, err := c.GetPrompt(t.Context(), "letter", nil); return err },
		"resources/read": func() error { _, err := c.ReadResource(t.Context(), "x://y"); return err },
	}
	for method, call := range calls {
		e := wants(t, call(), client.ErrNeedsInput)
		if e.State == nil || *e.State != "pending" || len(e.Questions) != 1 {
			t.Fatalf("%s: the state is %v, the questions are %v", method, e.State, e.Questions)
		}
		if q := e.Questions[0]; q.Key != "k" || q.Message != "Go?" || string(q.Schema) != `{"type":"object","properties":{"big":{"type":"integer","maximum":9007199254740993}}}` {
			t.Errorf("%s: the question is %+v, with the schema %s", method, q, q.Schema)
		}
	}
}
