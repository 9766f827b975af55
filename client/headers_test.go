package client_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

func TestEachRequestSaysInItsHeadersWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := "t-é 1"
		named := func(say saying) saying {
			return func(w http.ResponseWriter, r request) {
				answer := &recorder{header: http.Header{}}
				say(answer, r)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(strings.ReplaceAll(string(answer.body), `"t-1"`, `"`+id+`"`)))
			}
		}
		var f *fake
		f = fakeServer(t, map[string]saying{
			"tools/call": named(task("task", "working", `"pollIntervalMs":1000`)),
			"tasks/get": func(w http.ResponseWriter, r request) {
				if len(f.got("tasks/cancel")) > 0 {
					named(task("complete", "cancelled", ""))(w, r)
					return
				}
				named(task("complete", "input_required", `"inputRequests":`+form("k")))(w, r)
			},
			"tasks/update": result(`{"resultType":"complete"}`), "tasks/cancel": result(`{"resultType":"complete"}`),
		})
		h, err := f.client(client.Options{Answerer: yes()}).Start(t.Context(), "übung", nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(f.got("tasks/update")) == 0 {
			time.Sleep(time.Second)
		}
		if err := h.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrCancelled)
		wrapped := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
		for method, name := range map[string]string{
			"tools/call": wrapped("übung"), "tasks/get": wrapped(id), "tasks/update": wrapped(id), "tasks/cancel": wrapped(id), "subscriptions/listen": "",
		} {
			all := f.got(method)
			if len(all) == 0 {
				t.Errorf("no %s", method)
				continue
			}
			for _, r := range all {
				if r.Header.Get("Mcp-Method") != method || r.Header.Get("Mcp-Name") != name || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
					t.Errorf("%s: %v", method, r.Header)
				}
				if strings.HasPrefix(method, "tasks/") && (r.param("taskId") != `"`+id+`"` || !strings.Contains(declared(r), "io.modelcontextprotocol/tasks")) {
					t.Errorf("%s: %s, declared %s", method, r.param("taskId"), declared(r))
				}
			}
		}
	})
}

// recorder keeps a response.
type recorder struct {
	header http.Header
	body   []byte
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { r.body = append(r.body, b...); return len(b), nil }
func (r *recorder) WriteHeader(int)             {}

const boundTools = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"pay","inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},"sure":{"type":"boolean","x-mcp-header":"Sure"},` +
	`"none":{"type":"string","x-mcp-header":"None"},` +
	`"to":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}}}}}]}`

func TestArgumentsGoIntoHeadersWhereTheToolWantsThem(t *testing.T) {
	args := map[string]any{"region": "eu", "n": 42, "sure": true, "none": nil, "to": map[string]any{"city": " Zürich\r\nX: y"}}
	want := map[string]string{"Region": "eu", "N": "42", "Sure": "true", "None": "", "City": "=?base64?" + base64.StdEncoding.EncodeToString([]byte(" Zürich\r\nX: y")) + "?="}
	check := func(r request) {
		t.Helper()
		for name, value := range want {
			if got := r.Header.Get("Mcp-Param-" + name); got != value {
				t.Errorf("%s is %q, not %q", name, got, value)
			}
		}
		if r.Header.Get("X") != "" {
			t.Error("an argument has made a header of its own")
		}
	}
	f := fakeServer(t, map[string]saying{"tools/list": result(boundTools), "tools/call": result(done)})
	c := f.client(client.Options{})
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "pay", args); err != nil {
		t.Fatal(err)
	}
	check(f.got("tools/call")[0])

	// Not knowing the tool, it is told, looks, and sends the request once more.
	f = fakeServer(t, map[string]saying{"tools/list": result(boundTools), "tools/call": inTurn(refusal(-32020, "Mcp-Param-Region is missing", ""), result(done))})
	if _, err := f.client(client.Options{}).Call(t.Context(), "pay", args); err != nil {
		t.Fatal(err)
	}
	if all := f.got("tools/call"); len(all) != 2 || len(f.got("tools/list")) != 1 {
		t.Errorf("sent %d times, listed %d times", len(all), len(f.got("tools/list")))
	} else {
		check(all[1])
	}

	// And only once.
	f = fakeServer(t, map[string]saying{"tools/list": result(boundTools), "tools/call": refusal(-32020, "Mcp-Param-Region is missing", "")})
	_, err := f.client(client.Options{}).Call(t.Context(), "pay", args)
	if e := wants(t, err, client.ErrFailed); e.Code != -32020 || len(f.got("tools/call")) != 2 {
		t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
	}
}

func TestRequestsAreNotSentOnToOthers(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": status(http.StatusTemporaryRedirect, "Location", "http://evil.test/mcp")})
	_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
	if err == nil || !strings.Contains(err.Error(), "http://evil.test") || len(f.got("tools/call")) != 1 {
		t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
	}
}
