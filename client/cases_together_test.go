package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/client"
)

// case S25: over HTTP each response is its own, and a bad one is one call's.
func TestABadResponseHarmsNoOtherCall(t *testing.T) {
	raw := func(contentType, body string) saying {
		return func(w http.ResponseWriter, _ request) {
			w.Header().Set("Content-Type", contentType)
			fmt.Fprint(w, body)
		}
	}
	bad := map[string]saying{
		"no JSON":                    raw("application/json", `<html>`),
		"half of it":                 raw("application/json", `{"jsonrpc":"2.0","id":`),
		"no message":                 raw("application/json", `{}`),
		"an empty body":              raw("application/json", ``),
		"nested too deep":            raw("application/json", strings.Repeat("[", 100_000)),
		"over the limit":             raw("application/json", `"`+strings.Repeat("x", 2<<20)+`"`),
		"an event of no JSON":        raw("text/event-stream", "data: <html>\n\n"),
		"an event of no message":     raw("text/event-stream", "data: {}\n\n"),
		"an event nested too deep":   raw("text/event-stream", "data: "+strings.Repeat("[", 100_000)+"\n\n"),
		"an event over the limit":    raw("text/event-stream", "data: "+strings.Repeat("x", 2<<20)+"\n\n"),
		"a line without a colon":     raw("text/event-stream", "hello\n\n"),
		"events of another name":     raw("text/event-stream", "event: ping\ndata: x\n\n"),
		"no stream at all":           raw("text/event-stream", ""),
		"not found":                  status(http.StatusNotFound),
		"unauthorised":               status(http.StatusUnauthorized),
		"a bad request":              status(http.StatusBadRequest),
		"a teapot, and a long story": func(w http.ResponseWriter, _ request) { w.WriteHeader(418); fmt.Fprint(w, strings.Repeat("x", 1<<20)) },
	}
	for name, say := range lostWays() {
		if name == "the response of another one" {
			continue // both are waited for until the limit
		}
		bad["lost: "+name] = say
	}
	for name, say := range bad {
		t.Run(name, func(t *testing.T) {
			var once sync.Once
			arrived, answered := make(chan struct{}), make(chan struct{})
			f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
				if r.param("name") == `"bad"` {
					say(w, r)
					return
				}
				once.Do(func() { close(arrived) })
				<-answered // it is under way while the other goes wrong
				result(done)(w, r)
			}})
			c := f.client(client.Options{Limits: client.Limits{Message: 1 << 20, Request: 2e9}})
			h, err := c.Start(t.Context(), "good", nil)
			if err != nil {
				t.Fatal(err)
			}
			<-arrived
			_, bad := c.Call(t.Context(), "bad", nil)
			close(answered)
			if _, err := h.Wait(t.Context()); err != nil || bad == nil {
				t.Errorf("the good one: %v; the bad one: %v", err, bad)
			}
			if n := len(f.got("server/discover")); n != 1 {
				t.Errorf("it connected %d times", n)
			}
		})
	}
}

// case S34: what became of it is told apart, by a server that says so.
func TestOutcomesAreToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		say saying
		err error
	}{
		"declined":  {result(`{"content":[],"isError":true,"_meta":{"tallystick/outcome":"declined","tallystick/call":"C1"}}`), nil},
		"dismissed": {result(`{"content":[],"isError":true,"_meta":{"tallystick/outcome":"dismissed","tallystick/call":"C1"}}`), nil},
		"expired":   {refusal(-32603, "too late", `{"outcome":"expired"}`), client.ErrExpired},
		"nobody":    {refusal(-32021, "nobody can be asked", ""), client.ErrNeedsInput},
	} {
		f := fakeServer(t, map[string]saying{"tools/call": c.say})
		h, err := f.client(client.Options{}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.Wait(t.Context())
		if c.err != nil {
			wants(t, err, c.err)
		} else if err != nil || r.Outcome != name || r.ServerCall != "C1" || !r.IsError {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
