package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

const oldForm = `"method":"elicitation/create","params":{"message":%q,"requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}}}}`

// asks sends a question, by this id.
func (l *line) asks(id, message string) {
	l.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,`+oldForm+`}`, id, message))
}

// A request with the id of one that is open is none, and does not get round the
// limit.
func TestQuestionsWithOneIDAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for same, want := range map[bool]int{true: 1, false: 4} {
			_, transport := oldLine(t, func(l *line, r request) {
				if r.Method == "tools/call" {
					for i := range 300 {
						id := "1"
						if !same {
							id = fmt.Sprint(i)
						}
						l.asks(id, fmt.Sprint("q", i))
					}
				}
			})
			p := &person{answer: silent}
			h, err := newClient(t, client.Options{Transport: transport, Answerer: p, Limits: client.Limits{Questions: 4}}).Start(t.Context(), "pay", nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n, open := p.times(), len(h.Status().Open); n != want || open != want {
				t.Errorf("the same id: %v: %d questions are at the Answerer and %d on record, not %d", same, n, open, want)
			}
			h.Detach()
		}
	})
}

func TestALiveQuestionEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		l, transport := oldLine(t, func(l *line, r request) {
			if r.Method == "tools/call" {
				l.asks("1", "Sure?")
				<-asked
				l.result(r, `{"content":[]}`)
			}
		})
		withdrawn := make(chan struct{})
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			close(asked)
			defer close(withdrawn)
			return silent(ctx, q)
		}}
		c := newClient(t, client.Options{Transport: transport, Answerer: p})
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-withdrawn:
		default:
			t.Error("the call has ended, and the person is still asked for it")
		}
		for _, r := range l.got("") {
			t.Errorf("and something was sent for it: %s", r.ID)
		}
	})
}

// case S55: the question of a call that the client has given up is not taken for
// one of the next call, whose rule would answer it.
func TestAQuestionOfAnAbandonedCallIsNotAnsweredForAnother(t *testing.T) {
	for _, how := range []string{"silence", "detached", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				second := make(chan struct{})
				l, transport := oldLine(t, func(l *line, r request) {
					switch {
					case r.Method == "tools/call" && r.param("name") == `"wipe"`:
						<-second // it has not noticed that the client gave up
						l.asks(`"w"`, "Wipe everything?")
					case r.Method == "tools/call":
						close(second)
					}
				})
				yes := accepted(t)
				p := &person{answer: silent}
				c := newClient(t, client.Options{Transport: transport, Answerer: p, Limits: client.Limits{Request: time.Minute},
					Policy: client.Policy{{Name: "read", Do: client.Reply, Answer: &yes}}})
				wipe, err := c.Start(t.Context(), "wipe", nil)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				switch how {
				case "detached":
					wipe.Detach()
				case "cancelled":
					if err := wipe.Cancel(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				<-wipe.Done()
				h, err := c.Start(t.Context(), "read", nil)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if p.times() != 1 || p.asked[0].Name != "" || p.asked[0].Call == h.ID() {
					t.Errorf("asked: %+v", p.asked)
				}
				if answers := l.got(""); len(answers) != 0 {
					t.Errorf("it was answered by the rule for another tool")
				}
				h.Detach()
			})
		})
	}
}

// A server that asks on and on within one request is stopped, whoever answers,
// and little of it is kept.
func TestLiveQuestionsWithoutEndAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		l, transport := oldLine(t, func(l *line, r request) {
			if i := n.Add(1); i < 100 && (r.Method == "tools/call" || r.Method == "") {
				l.asks(fmt.Sprint(i), strings.Repeat("x", 10_000))
			}
		})
		yes := accepted(t)
		m := openMemory(t, memoryPath(t))
		c := newClient(t, client.Options{Memory: m, Transport: transport, Policy: client.Policy{{Do: client.Reply, Answer: &yes}},
			Limits: client.Limits{Rounds: 5, Questions: 4}})
		h, err := c.Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := n.Load(); n < 50 {
			t.Fatalf("the server was heard %d times", n)
		}
		answered := 0
		for _, r := range l.got("") {
			if len(r.ID) > 0 && len(r.Result) > 0 {
				answered++
			}
		}
		if answered != 20 {
			t.Errorf("%d were answered; Rounds 5, Questions 4", answered)
		}
		if size := m.Kept(t, h.ID()); size > 20_000 {
			t.Errorf("%d bytes are kept of it", size)
		}
		h.Detach()
	})
}

// What a caller answers is what the server gets, and the Answerer is told that
// it need not.
func TestACallerCanAnswerALiveQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, transport := oldLine(t, func(l *line, r request) {
			switch {
			case r.Method == "tools/call":
				l.asks("1", "Sure?")
			case r.Method == "" && string(r.ID) == "1":
				l.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"ts-1","result":{"content":[{"type":"text","text":%q}]}}`, r.Result))
			}
		})
		h, err := newClient(t, client.Options{Transport: transport, Answerer: &person{answer: silent}}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Answer(t.Context(), opened(t, h).ID, accepted(t)); err != nil {
			t.Fatal(err)
		}
		r, err := h.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.Raw); !strings.Contains(got, "accept") {
			t.Errorf("the server got %s", got)
		}
	})
}

// A question that no request can have asked is refused.
func TestAQuestionOutOfTheBlueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, transport := oldLine(t, func(l *line, r request) {
			if r.Method == "tools/call" {
				l.result(r, `{"content":[]}`)
			}
		})
		p := yes()
		c := newClient(t, client.Options{Transport: transport, Answerer: p})
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		l.asks("1", "Your password?")
		synctest.Wait()
		if all := l.got(""); p.times() != 0 || len(all) != 1 || len(all[0].Result) != 0 {
			t.Errorf("asked %d times: %+v", p.times(), all)
		}
	})
}
