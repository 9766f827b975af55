package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

// listening is a server that listens, and acknowledges these tasks.
func listening(acked string, f func(send func(string), r request)) saying {
	return stream(func(send func(string), r request) {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"taskIds":[%s]}}}`, r.ID, acked))
		f(send, r)
	})
}

func tellTask(r request, status, more string) string {
	body := strings.Replace(taskJSON("", status, more), `"resultType":"",`, fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s},`, r.ID), 1)
	return `{"jsonrpc":"2.0","method":"notifications/tasks","params":` + body + `}`
}

func TestATaskIsListenedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answered atomic.Bool
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":60000`),
			"subscriptions/listen": listening(`"t-1"`, func(send func(string), r request) {
				send(tellTask(r, "working", ""))
				time.Sleep(10 * time.Second)
				send(tellTask(r, "input_required", `"inputRequests":`+form("k")))
				for !answered.Load() {
					time.Sleep(time.Second)
				}
				send(tellTask(r, "completed", completedTask))
				silence(nil, r)
			}),
			"tasks/get": func(w http.ResponseWriter, r request) {
				if answered.Load() {
					task("complete", "working", "")(w, r)
					return
				}
				task("complete", "input_required", `"inputRequests":`+form("k"))(w, r)
			},
			"tasks/update": func(w http.ResponseWriter, r request) {
				answered.Store(true)
				result(`{"resultType":"complete"}`)(w, r)
			},
		})
		p := yes()
		began := time.Now()
		if _, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 20*time.Second || p.times() != 1 || len(f.got("tasks/update")) != 1 {
			t.Errorf("it took %v, asked %d times, answered %d times", took, p.times(), len(f.got("tasks/update")))
		}
		if n := len(f.got("tasks/get")); n > 1 {
			t.Errorf("it was polled %d times, though it was told of", n)
		}
	})
}

func TestWhatIsNotListenedToIsPolled(t *testing.T) {
	for name, listen := range map[string]saying{
		"not acknowledged":      listening(``, func(_ func(string), r request) { silence(nil, r) }),
		"another is":            listening(`"t-2"`, func(_ func(string), r request) { silence(nil, r) }),
		"there is no listening": refusal(-32601, "no such method", ""),
		"it is refused":         status(http.StatusForbidden),
		"it hangs":              silence,
		"it ends at once":       listening(`"t-1"`, func(func(string), request) {}),
		"it breaks":             hangUp(""),
		"a bad gateway":         status(http.StatusBadGateway),
		"it tells of another task": listening(`"t-1"`, func(send func(string), r request) {
			send(strings.Replace(tellTask(r, "completed", completedTask), "t-1", "t-9", 1))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fake
				f = fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":2000`), "subscriptions/listen": listen,
					"tasks/get": func(w http.ResponseWriter, r request) {
						if len(f.got("tasks/get")) > 10 {
							task("complete", "completed", completedTask)(w, r)
							return
						}
						task("complete", "working", "")(w, r)
					}})
				began := time.Now()
				if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 20*time.Second || took > 40*time.Second {
					t.Errorf("it took %v", took)
				}
				if n := len(f.got("subscriptions/listen")); n > 8 {
					t.Errorf("listened %d times", n)
				}
			})
		})
	}
}
