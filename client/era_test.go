package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

const initialized = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"o","version":"1"}}`

// A server that cannot answer just now is none of the 2025 era: it is asked
// again, and what it then says counts.
func TestAServerThatCannotAnswerIsNotTakenForAnOldOne(t *testing.T) {
	says := lostWays()
	for _, code := range []int{401, 403, 407, 408, 425, 429, 500, 502, 503, 504} {
		says["HTTP "+http.StatusText(code)] = status(code)
	}
	says["not ready"] = func(w http.ResponseWriter, r request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","error":{"code":-32603,"message":"the server is not ready"}}`))
	}
	for name, say := range says {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{
					"server/discover": inTurn(say, result(modernServer)),
					"initialize":      result(initialized),
					"tools/call":      inTurn(asking(form("k"), `"s"`), result(done)),
				})
				c := f.client(client.Options{Answerer: yes()})
				_, err := c.Call(t.Context(), "pay", nil)
				if errors.Is(err, client.ErrUnauthorized) { // whoever called is to mend that
					_, err = c.Call(t.Context(), "pay", nil)
				}
				if n := len(f.got("initialize")); n != 0 || err != nil {
					t.Errorf("%d times initialize; %v", n, err)
				}
				if all := f.got("tools/call"); len(all) != 2 || all[1].param("requestState") != `"s"` {
					t.Errorf("sent %d times", len(all))
				}
			})
		})
	}
}

// Whatever refuses the question is an old server, as those of 2025 do it.
func TestAServerThatRefusesToBeDiscoveredIsAnOldOne(t *testing.T) {
	for name, say := range map[string]saying{
		"no such method":              withStatus(http.StatusOK, -32601),
		"no such method, as a 400":    refusal(-32601, "Method not found", ""),
		"invalid parameters":          refusal(-32602, "Invalid request parameters", ""),
		"an internal error":           refusal(-32603, "Internal error", ""),
		"no session":                  status(http.StatusBadRequest),
		"unknown session":             status(http.StatusNotFound),
		"no such method, as a 500":    withStatus(http.StatusInternalServerError, -32601),
		"bad request, with an error":  withStatus(http.StatusBadRequest, -32000),
		"no version in common":        refusal(-32022, "Unsupported protocol version", `{"supported":["2025-11-25"],"requested":"2026-07-28"}`),
		"what it does not understand": status(http.StatusUnprocessableEntity),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{
					"server/discover": say,
					"initialize":      result(initialized),
					"tools/call":      result(`{"content":[]}`),
				})
				if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
					t.Error(err)
				}
				if n := len(f.got("initialize")); n != 1 {
					t.Errorf("%d times initialize", n)
				}
			})
		})
	}
}

func withStatus(status, code int) saying {
	return func(w http.ResponseWriter, r request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, r.ID, code)
	}
}

// The error says what the server has answered, and that nothing was done.
func TestTheErrorOfAServerThatCannotAnswerSaysWhatItSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"server/discover": status(http.StatusServiceUnavailable), "initialize": result(initialized)})
		began := time.Now()
		_, err := f.client(client.Options{Limits: client.Limits{Outage: 10 * time.Second}}).Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrUnreachable, "Service Unavailable")
		if e.MaybeDone || time.Since(began) < 10*time.Second || strings.Contains(err.Error(), "initialize") {
			t.Errorf("%v", err)
		}
	})
}
