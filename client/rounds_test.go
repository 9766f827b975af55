package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

func TestTheStateGoesBackExactly(t *testing.T) {
	for name, state := range map[string]string{
		"empty":         `""`,
		"plain":         `"eyJhbGciOi.J9_-~"`,
		"not ASCII":     `"Fábián 李 \ud83d\ude00"`,
		"HTML":          `"<a href='x'>&amp;</a>"`,
		"escapes":       `"\"\\\/\b\f\n\r\t\u0000\u001f\u007f\u2028\u2029"`,
		"a JSON object": `"{\"round\":1, \"sig\":\"==\"}"`,
		"16 KiB":        `"` + strings.Repeat("Aé<", 16<<10/4) + `"`,
		"spaces":        `"  two  \t"`,
		"U+FFFD":        `"\ufffd"`,
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), state), result(done))})
			c := f.client(client.Options{Answerer: yes()})
			if _, err := c.Call(t.Context(), "pay", nil); err != nil {
				t.Fatal(err)
			}
			var want, got string
			if err := json.Unmarshal([]byte(state), &want); err != nil {
				t.Fatal(err)
			}
			retry := f.got("tools/call")[1]
			if err := json.Unmarshal([]byte(retry.param("requestState")), &got); err != nil || got != want {
				t.Errorf("%s went back as %s (%v)", state, retry.param("requestState"), err)
			}
		})
	}
}

func TestThereIsNoStateIfNoneCame(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(
		asking(form("a"), `"one"`), asking(form("b"), ""), asking("", `"three"`), result(done))})
	c := f.client(client.Options{Answerer: yes()})
	if _, err := c.Call(t.Context(), "pay", nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range f.got("tools/call") {
		got = append(got, r.param("requestState")+" "+r.param("inputResponses"))
	}
	yes := `{"action":"accept","content":{"confirm":true}}`
	want := []string{" ", `"one" {"a":` + yes + `}`, ` {"b":` + yes + `}`, `"three" `}
	if !slices.Equal(got, want) {
		t.Errorf("the requests have %q, not %q", got, want)
	}
}

func TestEachRoundIsTheSameRequestWithAnIDOfItsOwn(t *testing.T) {
	args := json.RawMessage(`{"order":9007199254740993,"rate":0.10,"huge":1e400,"text":"1e400 é<\u00e9","nested":{"b":[1,2.50,null],"a":{}}}`)
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s1"`), asking(form("k"), `"s2"`), result(done))})
	c := f.client(client.Options{Answerer: yes()})
	if _, err := c.Call(t.Context(), "pay", args); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for i, r := range f.got("tools/call") {
		ids[string(r.ID)] = true
		if r.param("name") != `"pay"` || r.param("arguments") != string(args) {
			t.Errorf("request %d: %s with %s", i, r.param("name"), r.param("arguments"))
		}
		if v := r.param("_meta", "io.modelcontextprotocol/protocolVersion"); v != `"2026-07-28"` || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
			t.Errorf("request %d is of revision %s, by its header %q", i, v, r.Header.Get("Mcp-Protocol-Version"))
		}
		if key := r.param("_meta", "tallystick/idempotencyKey"); (key != "") != (i == 0) {
			t.Errorf("request %d has the key %q: the first alone has one", i, key)
		}
	}
	if len(ids) != 3 {
		t.Errorf("three requests have the ids %v", ids)
	}
}

func TestCallsAtOnceDoNotMixTheirRounds(t *testing.T) {
	const calls = 12
	f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
		n := r.param("arguments", "n")
		switch state := r.param("requestState"); state {
		case "":
			asking(form("k"+n), `"1-`+n+`"`)(w, r)
		case `"1-` + n + `"`:
			if !strings.Contains(r.param("inputResponses"), `"k`+n+`"`) {
				refusal(-32602, "answers of another call", "")(w, r)
				return
			}
			asking("", `"2-`+n+`"`)(w, r)
		case `"2-` + n + `"`:
			if r.param("inputResponses") != "" {
				refusal(-32602, "answers of another round", "")(w, r)
				return
			}
			result(`{"content":[],"structuredContent":`+n+`}`)(w, r)
		default:
			refusal(-32602, "a state of another call: "+state+" for "+n, "")(w, r)
		}
	}})
	c := f.client(client.Options{Answerer: yes()})
	var all sync.WaitGroup
	for n := range calls {
		all.Go(func() {
			r, err := c.Call(t.Context(), "pay", map[string]int{"n": n})
			if err != nil {
				t.Error(err)
			} else if got := structured(t, r); got != fmt.Sprint(n) {
				t.Errorf("call %d got the result of %s", n, got)
			}
		})
	}
	all.Wait()
}

// case S11
func TestRoundsAreBoundedAndTheCallCanGoOn(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(
		asking(form("k"), `"s1"`), asking(form("k"), `"s2"`), asking(form("k"), `"s3"`), asking(form("k"), `"s4"`), result(done))})
	p := yes()
	c := f.client(client.Options{Answerer: p, Limits: client.Limits{Rounds: 3}})
	_, err := c.Call(t.Context(), "pay", nil)
	e := wants(t, err, client.ErrRounds, "Limits.Rounds 3")
	if e.State == nil || *e.State != "s4" || len(e.Questions) != 1 || e.Questions[0].Key != "k" || p.times() != 3 {
		t.Errorf("the error has the state %v and the questions %v; asked %d times", e.State, e.Questions, p.times())
	}
	if n := len(f.got("tools/call")); n != 4 {
		t.Errorf("%d requests were sent: one and three retries are allowed", n)
	}
	h, err := c.Attach(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := f.got("tools/call")[4]; last.param("requestState") != `"s4"` || p.times() != 4 {
		t.Errorf("it went on with the state %s; asked %d times", last.param("requestState"), p.times())
	}
}

// case S11: empty maps for ever, and no state.
func TestAnEmptyRoundWithoutAStateEndsTheCall(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking("{}", "")})
	_, err := f.client(client.Options{Answerer: yes()}).Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrInvalidResponse)
	if n := len(f.got("tools/call")); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

// case S12, S13: it is retried, ever more slowly, and not for ever.
func TestRoundsThatAskNothingAreRetriedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": asking("", `"wait"`)})
		c := f.client(client.Options{Limits: client.Limits{Rounds: 12}})
		_, err := c.Call(t.Context(), "pay", nil)
		if e := wants(t, err, client.ErrRounds); e.State == nil || *e.State != "wait" {
			t.Errorf("the state of the open round is %v", e.State)
		}
		all := f.got("tools/call")
		if len(all) != 13 {
			t.Fatalf("sent %d times", len(all))
		}
		for i := 1; i < len(all); i++ {
			gap, least := all[i].At.Sub(all[i-1].At), min(250*time.Millisecond<<(i-1), 15*time.Second)
			if gap < least || gap > 2*least+time.Millisecond {
				t.Errorf("pause %d is %v, not between %v and %v", i, gap, least, 2*least)
			}
		}
		if whole := all[12].At.Sub(all[0].At); whole < 2*time.Minute {
			t.Errorf("12 retries were over in %v: a wait is not to be used up like that", whole)
		}
	})
}

func TestTheDeadlineIsOfTheWholeCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": asking("", `"wait"`)})
		c := f.client(client.Options{Limits: client.Limits{Rounds: 1000, Deadline: 5 * time.Minute}})
		began := time.Now()
		_, err := c.Call(t.Context(), "pay", nil)
		wants(t, err, client.ErrExpired, "deadline")
		if took := time.Since(began); took < 5*time.Minute || took > 5*time.Minute+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// case S54
func TestPeopleHaveTimeOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
		slow := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			select {
			case <-time.After(54 * time.Minute):
				return client.Accept(map[string]bool{"confirm": true})
			case <-ctx.Done():
				return client.Answer{}, ctx.Err()
			}
		}}
		c := f.client(client.Options{Answerer: slow, Limits: client.Limits{Work: time.Minute, Request: 30 * time.Second, Outage: time.Second}})
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		if n := len(f.got("tools/call")); n != 2 || slow.times() != 1 {
			t.Errorf("%d requests, asked %d times", n, slow.times())
		}
	})
}

// case S54: what comes after the end is told so, and sent nowhere.
func TestALateAnswerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
		waits := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			<-ctx.Done()
			return client.Accept(map[string]bool{"confirm": true}) // too late
		}}
		c := f.client(client.Options{Answerer: waits, Limits: client.Limits{Deadline: time.Minute}})
		h, err := c.Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrExpired)
		if err := h.Answer(t.Context(), "k", client.Decline()); err == nil {
			t.Error("an answer was taken after the end")
		}
		synctest.Wait()
		if n := len(f.got("tools/call")); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestTheServersTimeIsBoundedInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
			select {
			case <-time.After(40 * time.Second):
				asking("", `"again"`)(w, r)
			case <-r.HTTP.Context().Done():
			}
		}})
		c := f.client(client.Options{Limits: client.Limits{Rounds: 1000, Work: time.Minute}, KeysKept: time.Hour})
		_, err := c.Call(t.Context(), "pay", nil)
		wants(t, err, client.ErrRounds, "Limits.Work")
	})
}

func TestAnAnswerToOneRoundIsNoneToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s1"`), asking(form("k"), `"s2"`), result(done))})
		first, second := make(chan struct{}), make(chan struct{})
		p := &person{answer: func(_ context.Context, q client.Question) (client.Answer, error) { // does not look at its context
			if strings.Contains(q.ID, "/1/") {
				<-first
				return client.Accept(map[string]bool{"confirm": true})
			}
			<-second
			return client.Accept(map[string]bool{"confirm": false})
		}}
		h, err := f.client(client.Options{Answerer: p}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := h.Answer(t.Context(), "k", client.Decline()); err != nil { // somebody else is quicker
			t.Fatal(err)
		}
		synctest.Wait()
		if p.times() != 2 {
			t.Fatalf("asked %d times: who is still at the first question does not stand in for the second", p.times())
		}
		close(first)
		synctest.Wait()
		if n := len(f.got("tools/call")); n != 2 {
			t.Errorf("the answer to the first round was sent with the second")
		}
		close(second)
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.got("tools/call")[2].param("inputResponses"); !strings.Contains(got, "false") {
			t.Errorf("sent %s", got)
		}
	})
}
