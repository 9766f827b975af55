package client_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/client"
)

// rulings collects what Options.Ruled is told.
type rulings struct {
	mu   sync.Mutex
	told []string
}

func (r *rulings) add(q client.Question, a client.Answer, rule int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf("%s %s%s by rule %d", q.Message, a.Action, a.Content, rule))
}

func (r *rulings) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.told) != fmt.Sprint(want) {
		t.Errorf("told of %q, not %q", r.told, want)
	}
}

// case S47: no answer goes out that nobody can know of.
func TestWhatARuleAnswersIsTold(t *testing.T) {
	accept := &client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":true}`)}
	policy := client.Policy{{Key: "a", Do: client.Reply, Answer: accept}, {Key: "b", Do: client.Refuse}}
	const asks = `{"a":{"method":"elicitation/create","params":{"message":"A?","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}},` +
		`"b":{"method":"elicitation/create","params":{"mode":"url","message":"B?","url":"https://bank.test/"}},` +
		`"c":{"method":"elicitation/create","params":{"mode":"url","message":"C?","url":"https://bank.test/"}}}`
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(asks, `"s"`), result(done))})
	var r rulings
	p := &person{kinds: []client.Kind{client.Form, client.URL}, answer: yes().answer}
	if _, err := f.client(client.Options{Answerer: p, Policy: policy, Ruled: r.add}).Call(t.Context(), "pay", nil); err != nil {
		t.Fatal(err)
	}
	r.want(t, `A? accept{"confirm":true} by rule 0`, "B? decline by rule 1")
}

func TestWhatARuleAnswersWithinARequestIsTold(t *testing.T) {
	accept := &client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":true}`)}
	var r rulings
	c := newClient(t, client.Options{Transport: overHTTP(t, oldServer(t), nil), Ruled: r.add,
		Policy: client.Policy{{Kind: client.URL, Do: client.Refuse}, {Kind: client.Form, Do: client.Reply, Answer: accept}}})
	if _, err := c.Call(t.Context(), "form", nil); err != nil {
		t.Fatal(err)
	}
	r.want(t, `Sure? accept{"confirm":true} by rule 1`)
}
