package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

// confirm is an inputRequests map with one form that says this.
func confirm(message string) string {
	return fmt.Sprintf(`{"confirm":{"method":"elicitation/create","params":{"mode":"form","message":%q,"requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}}}}}}`, message)
}

func accepted(t *testing.T) client.Answer {
	t.Helper()
	a, err := client.Accept(map[string]any{"confirm": true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Whoever is slow to notice that a question was withdrawn does not answer
// another one with its key.
func TestAnAnswerToARoundIsNoneToTheTaskThatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": inTurn(asking(confirm("Pay 1?"), `"s"`), task("task", "working", `"ttlMs":null,"pollIntervalMs":100`)),
			"tasks/get":  task("complete", "input_required", `"ttlMs":null,"pollIntervalMs":60000,"inputRequests":`+confirm("Pay 1000000?")),
		})
		first := make(chan struct{})
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			if q.Message != "Pay 1?" {
				return silent(ctx, q)
			}
			<-first // the dialog is slow to go away
			return accepted(t), nil
		}}
		h, err := f.client(client.Options{Answerer: p}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		before := opened(t, h)
		if err := h.Answer(t.Context(), before.ID, accepted(t)); err != nil {
			t.Fatal(err)
		}
		now := opened(t, h)
		if now.Message != "Pay 1000000?" || now.ID == before.ID {
			t.Errorf("%q has the ID %s of %q", now.Message, now.ID, before.Message)
		}
		close(first)
		synctest.Wait()
		if n := len(f.got("tasks/update")); n != 0 || p.times() != 2 {
			t.Errorf("the answer to %q was sent for %q; asked %d times", before.Message, now.Message, p.times())
		}
		h.Detach()
	})
}

// opened waits for the one question that is open.
func opened(t *testing.T, h *client.Handle) client.Question {
	t.Helper()
	for range 10 {
		synctest.Wait()
		if open := h.Status().Open; len(open) == 1 {
			return open[0]
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("the open questions are %+v", h.Status().Open)
	return client.Question{}
}

func TestAnAnswerByTheIDOfAQuestionIsForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(confirm("Pay 1?"), `"1"`), asking(confirm("Pay 1000000?"), `"2"`), result(done))})
		m := openMemory(t, memoryPath(t))
		h, err := f.client(client.Options{Memory: m, Answerer: &person{answer: silent}}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := opened(t, h) // two people have this on their screens
		if err := h.Answer(t.Context(), seen.ID, accepted(t)); err != nil {
			t.Fatal(err)
		}
		now := opened(t, h)
		if now.ID == seen.ID {
			t.Fatalf("%q has the ID of %q", now.Message, seen.Message)
		}
		// The second of them says yes to "Pay 1?".
		for by, err := range map[string]error{"handle": h.Answer(t.Context(), seen.ID, accepted(t)), "memory": m.Answer(t.Context(), h.ID(), seen.ID, accepted(t))} {
			if err == nil {
				t.Errorf("by the %s, an answer to %q was taken for one to %q", by, seen.Message, now.Message)
			}
		}
		if err := m.Answer(t.Context(), h.ID(), now.ID, accepted(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAQuestionHasItsIDAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(confirm("Pay 1?"), `"1"`), asking(confirm("Pay 2?"), `"2"`))})
		m := openMemory(t, memoryPath(t))
		c := f.client(client.Options{Memory: m, Answerer: &person{answer: silent}})
		h, err := c.Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Answer(t.Context(), opened(t, h).ID, accepted(t)); err != nil {
			t.Fatal(err)
		}
		before := opened(t, h)
		h.Detach()
		if h, err = c.Attach(t.Context(), h.ID()); err != nil {
			t.Fatal(err)
		}
		if now := opened(t, h); now.ID != before.ID || now.Message != before.Message {
			t.Errorf("%q is %s, and was %s", now.Message, now.ID, before.ID)
		}
		h.Detach()
	})
}

// A question that a task takes back and asks again with other words is another.
func TestAnAnswerToAQuestionThatWasTakenBackIsNoneToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = `"ttlMs":null,"pollIntervalMs":1000`
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", more),
			"tasks/get": inTurn(
				task("complete", "input_required", more+`,"inputRequests":`+confirm("Pay 1?")), task("complete", "working", more),
				task("complete", "input_required", more+`,"inputRequests":`+confirm("Pay 1000000?"))),
		})
		first := make(chan struct{})
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			if q.Message != "Pay 1?" {
				return silent(ctx, q)
			}
			<-first
			return accepted(t), nil
		}}
		h, err := f.client(client.Options{Answerer: p}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		before := opened(t, h)
		for before.Message == opened(t, h).Message {
			time.Sleep(time.Second)
		}
		close(first)
		synctest.Wait()
		if err := h.Answer(t.Context(), before.ID, accepted(t)); err == nil {
			t.Error("a question that was taken back was answered")
		}
		if n := len(f.got("tasks/update")); n != 0 || p.times() != 2 {
			t.Errorf("the answer to the one before was sent %d times; asked %d times", n, p.times())
		}
		h.Detach()
	})
}

// A rule answers just when somebody else has: their answer stands, and the call
// goes on.
func TestARuleThatIsLateLeavesTheAnswerOfAnother(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
	path := memoryPath(t)
	other := openMemory(t, path)
	yes := accepted(t)
	var n atomic.Int32
	var h atomic.Pointer[client.Handle]
	started := make(chan struct{})
	opts := client.MemoryOptions{Path: path}
	opts.OnWrite(func(statement string, done bool) {
		if statement != "update" || done {
			return
		}
		switch n.Add(1) {
		case 1:
			<-started
		case 3: // sent, asking, the rule's
			if err := other.Answer(context.Background(), h.Load().ID(), "k", client.Decline()); err != nil {
				t.Error(err)
			}
		}
	})
	m, err := client.OpenMemory(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := client.New(client.Options{Memory: m, Server: "s", Transport: f.transport, Policy: client.Policy{{Do: client.Reply, Answer: &yes}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Store(one)
	close(started)
	if _, err := one.Wait(t.Context()); err != nil {
		t.Errorf("it has its answer, and stops: %v", err)
	}
	if all := f.got("tools/call"); len(all) != 2 || all[1].param("inputResponses") != `{"k":{"action":"decline"}}` {
		t.Errorf("%d requests, the last with %s", len(all), all[len(all)-1].param("inputResponses"))
	}
}

// A task that asks new questions at each poll is stopped, and what it asked
// before is not kept.
func TestATaskThatAsksWithoutEndIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"ttlMs":null,"pollIntervalMs":1000`),
			"tasks/get": func(w http.ResponseWriter, r request) {
				i := n.Add(1)
				var all []string
				for j := range 4 {
					all = append(all, fmt.Sprintf(`"k%d-%d":{`+oldForm+`}`, i, j, strings.Repeat("x", 20_000)))
				}
				task("complete", "input_required", `"ttlMs":null,"pollIntervalMs":1000,"inputRequests":{`+strings.Join(all, ",")+`}`)(w, r)
			},
		})
		m := openMemory(t, memoryPath(t))
		p := &person{answer: silent}
		c := f.client(client.Options{Memory: m, Answerer: p, Limits: client.Limits{Rounds: 5, Questions: 4}})
		h, err := c.Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrRounds, "asked")
		if p.times() != 20 || n.Load() != 6 {
			t.Errorf("asked %d times in %d polls", p.times(), n.Load())
		}
		if size := m.Kept(t, h.ID()); size > 4*20_000+20_000 {
			t.Errorf("%d bytes are kept of it", size)
		}
		if h, err = c.Attach(t.Context(), h.ID()); err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrRounds)
		if p.times() < 21 {
			t.Error("attaching gives the call as much again")
		}
	})
}

func TestTheKeyOfAQuestionIsBounded(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking(form(strings.Repeat("k", 1025)), `"s"`)})
	_, err := f.client(client.Options{Answerer: yes()}).Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrInvalidResponse, "1024")
}
