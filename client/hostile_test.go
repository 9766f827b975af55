package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// A form that refers to itself, or to the same again and again, is no form:
// who holds an answer against it would never come to an end.
func TestAFormThatRefersToSchemasIsRefused(t *testing.T) {
	bomb := `{"type":"object","anyOf":[{"$ref":"#/$defs/d0"}],"$defs":{`
	for i := range 40 {
		bomb += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	for name, schema := range map[string]string{
		"itself":         `{"type":"object","properties":{},"$ref":"#"}`,
		"itself, inside": `{"type":"object","properties":{},"allOf":[{"$ref":"#"}]}`,
		"dynamically":    `{"type":"object","$dynamicRef":"#"}`,
		"by an escape":   `{"type":"object","\u0024ref":"#"}`,
		"many times":     bomb + `"d40":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": asking(`{"k":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":`+schema+`}}}`, `"s"`)})
			p := yes()
			_, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil)
			if wants(t, err, client.ErrInvalidResponse); p.times() != 0 {
				t.Errorf("asked %d times", p.times())
			}
		})
	}
	// A field may be called so.
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(
		asking(`{"k":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{"$ref":{"type":"string","default":"$ref"}}}}}}`, `"s"`), result(done))})
	if _, err := f.client(client.Options{Answerer: says(map[string]string{"$ref": "x"})}).Call(t.Context(), "pay", nil); err != nil {
		t.Error(err)
	}
}

// The caller's bytes are the caller's: what is shown is what was sent.
func TestTheCallersBytesAreCopied(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
	c := f.client(client.Options{})
	list := json.NewDecoder(strings.NewReader(`{"to":"ann","amount":10} {"to":"bob","amount":99}`))
	var args json.RawMessage // which the decoder writes into again
	var all []*client.Handle
	for {
		if err := list.Decode(&args); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		h, err := c.Start(t.Context(), "pay", args)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	for i, want := range []string{`{"to":"ann","amount":10}`, `{"to":"bob","amount":99}`} {
		_, err := all[i].Wait(t.Context())
		wants(t, err, client.ErrNeedsInput)
		if s := all[i].Status(); string(s.Arguments) != want || string(s.Open[0].Arguments) != want {
			t.Errorf("call %d is shown as %s, asks about %s; want %s", i, s.Arguments, s.Open[0].Arguments, want)
		}
	}
}

// So are those of answers.
func TestAnAnswersBytesAreCopied(t *testing.T) {
	const sample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(`{"k":`+sample+`}`, `"s"`), result(done))})
	given := []byte(`{"model":"m","role":"assistant","content":{"type":"text","text":"yes"}}`)
	c := f.client(client.Options{
		Policy: client.Policy{{Kind: client.Sampling, Do: client.Ask}},
		Answerer: &person{kinds: []client.Kind{client.Sampling}, answer: func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{}, client.ErrNoAnswer
		}},
	})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrNeedsInput)
	if err := h.Answer(t.Context(), "k", client.Answer{Result: given}); err != nil {
		t.Fatal(err)
	}
	copy(given, bytes.ReplaceAll(given, []byte("yes"), []byte("no!")))
	if h, err = c.Attach(t.Context(), h.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.got("tools/call")[1].param("inputResponses", "k", "content", "text"); got != `"yes"` {
		t.Errorf("sent %s", got)
	}
}

// lockedPerson has one lock for all that it does.
type lockedPerson struct {
	lock chan struct{}
	ask  func() (client.Answer, error)
}

func (p *lockedPerson) Kinds() []client.Kind {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	return []client.Kind{client.Form}
}

func (p *lockedPerson) Answer(context.Context, client.Question) (client.Answer, error) {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	return p.ask()
}

// Nothing of the client's is locked while an Answerer is asked what it can do.
func TestAnAnswererMayLockItself(t *testing.T) {
	one := strings.TrimSuffix(strings.TrimPrefix(form("x"), `{"x":`), `}`)
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":100`),
			"tasks/get": inTurn(task("complete", "input_required", `"pollIntervalMs":100,"inputRequests":`+form("a")),
				task("complete", "input_required", `"pollIntervalMs":100,"inputRequests":{"a":`+one+`,"b":`+one+`}`),
				task("complete", "completed", completedTask)),
		})
		var h *client.Handle
		started := make(chan struct{})
		p := &lockedPerson{lock: make(chan struct{}, 1), ask: func() (client.Answer, error) {
			<-started
			time.Sleep(500 * time.Millisecond)
			_ = h.Status()
			return client.Accept(map[string]any{"confirm": true})
		}}
		c := f.client(client.Options{Answerer: p})
		var err error
		if h, err = c.Start(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		close(started)
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// hush is a transport whose connection is never made.
type hush struct{}

func (hush) Connect(ctx context.Context) (mcp.Connection, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheDeadlineHoldsWhileAConnectionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, client.Options{Transport: func() (mcp.Transport, error) { return hush{}, nil }, Limits: client.Limits{Deadline: 5 * time.Second}})
		began := time.Now()
		_, err := c.Call(t.Context(), "x", nil)
		if wants(t, err, client.ErrExpired); time.Since(began) > 6*time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

// An Answerer that is slow to notice that its connection is gone (2025 era) does
// not keep others from having another.
func TestASlowAnswererKeepsNobodyFromANewConnection(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	l, transport := oldLine(t, func(l *line, r request) {
		switch {
		case r.Method != "tools/call":
		case calls.Add(1) == 1:
			l.send(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`)
		default:
			l.result(r, `{"content":[]}`)
		}
	})
	c := newClient(t, client.Options{Transport: transport, Answerer: &person{answer: func(context.Context, client.Question) (client.Answer, error) {
		close(asked)
		<-release
		return client.Decline(), nil
	}}})
	defer close(release)
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	l.hangUp()
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrUnknown)
	if _, err := c.Call(t.Context(), "read", nil); err != nil {
		t.Error(err)
	}
}

// One refusal to be discovered, of a gateway for instance, does not strand a
// call that is in the middle of its rounds.
func TestACallInRoundsOutlivesAServerTakenForAnOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"server/discover": inTurn(result(modernServer), status(404), result(modernServer)),
			"initialize":      result(initialized),
			"tools/call":      inTurn(asking(form("k"), `"s"`), result(done)),
		})
		m := openMemory(t, memoryPath(t))
		_, err := f.client(client.Options{Memory: m}).Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrNeedsInput)
		h, err := f.client(client.Options{Memory: m, Answerer: yes()}).Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if all := f.got("tools/call"); len(all) != 2 || all[1].param("requestState") != `"s"` {
			t.Errorf("sent %d times", len(all))
		}
	})
}

// A key's time begins when the request has left, and the server may know it.
func TestAKeysTimeBeginsOnceItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, lost atomic.Bool
		f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
			switch {
			case !open.Load():
				status(429)(w, r)
			case lost.CompareAndSwap(false, true):
				hangUp("")(w, r)
			default:
				result(done)(w, r)
			}
		}})
		f.discover = keepingServer // for an hour
		m := openMemory(t, memoryPath(t))
		c := f.client(client.Options{Memory: m, Limits: client.Limits{Outage: time.Second}})
		_, err := c.Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrUnreachable)
		open.Store(true)
		time.Sleep(2 * time.Hour)
		h, err := c.Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An answer that cannot be kept stops the driving, not the question: the call
// says what is wrong, and asks once more when that is mended.
func TestAnAnswerThatCannotBeKeptIsAskedForOnceMore(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
	var updates atomic.Int32
	var m *client.Memory
	m = watched(t, memoryPath(t), func(statement string, done bool) {
		if statement == "update" && !done && updates.Add(1) == 3 { // the answer
			if err := m.Exec(context.Background(), "PRAGMA query_only = 1"); err != nil {
				t.Error(err)
			}
		}
	})
	p := yes()
	c := f.client(client.Options{Memory: m, Answerer: p})
	_, err := c.Call(t.Context(), "pay", nil)
	e := wants(t, err, client.ErrDetached, "an answer could not be kept")
	if err := m.Exec(t.Context(), "PRAGMA query_only = 0"); err != nil {
		t.Fatal(err)
	}
	h, err := c.Attach(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil || p.times() != 2 || !p.asked[1].Again || len(f.got("tools/call")) != 2 {
		t.Errorf("%v, asked %d times, sent %d times", err, p.times(), len(f.got("tools/call")))
	}
}

// Limits.Message bounds what comes over lines too.
func TestAResultOverTheLimitIsRefusedOverLinesToo(t *testing.T) {
	l, transport := lineServer(t, func(l *line, r request) {
		if r.Method == "tools/call" {
			l.result(r, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 2<<20)+`"}]}`)
		}
	})
	c := newClient(t, client.Options{Transport: transport, Limits: client.Limits{Message: 1 << 20}})
	_, err := c.Call(t.Context(), "x", nil)
	wants(t, err, client.ErrInvalidResponse, "Limits.Message")
	if n := len(l.got("server/discover")); n != 1 {
		t.Errorf("%d connections", n)
	}
}
