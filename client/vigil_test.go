package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// aTask starts a call that becomes a task, and returns when that is known.
func aTask(t *testing.T, c *client.Client) *client.Handle {
	t.Helper()
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	for h.Status().Task == "" && !h.Status().State.Final() {
		time.Sleep(time.Millisecond) // of the bubble's time
	}
	return h
}

// A server that does not cancel has its reasons: the task may have completed.
func TestARefusedCancelLosesNoTask(t *testing.T) {
	for _, code := range []int{-32601, -32602, -32603} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				working := task("complete", "working", `"pollIntervalMs":1000`)
				f := fakeServer(t, map[string]saying{
					"tools/call":   task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get":    inTurn(working, working, working, task("complete", "completed", completedTask)),
					"tasks/cancel": refusal(code, "already completed", ""),
				})
				h := aTask(t, f.client(client.Options{}))
				if err := h.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Wait(t.Context()); err != nil {
					t.Errorf("the task has completed; the end is %v", err)
				}
				if n := len(f.got("tasks/cancel")); n != 1 {
					t.Errorf("it was cancelled %d times", n)
				}
			})
		})
	}
}

// A proxy's word is not the server's.
func TestACancelThatDidNotReachTheServerIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Bool
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":1000`),
			"tasks/get": func(w http.ResponseWriter, r request) {
				if cancelled.Load() {
					task("complete", "cancelled", "")(w, r)
					return
				}
				task("complete", "working", `"pollIntervalMs":1000`)(w, r)
			},
			"tasks/cancel": inTurn(status(http.StatusNotFound), status(http.StatusBadGateway), func(w http.ResponseWriter, r request) {
				cancelled.Store(true)
				result(`{"resultType":"complete"}`)(w, r)
			}),
		})
		h := aTask(t, f.client(client.Options{}))
		if err := h.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := h.Wait(t.Context())
		wants(t, err, client.ErrCancelled)
		if n := len(f.got("tasks/cancel")); n != 3 {
			t.Errorf("it was cancelled %d times", n)
		}
	})
}

func TestARefusedUpdateLosesNoTask(t *testing.T) {
	for _, code := range []int{-32601, -32603} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get": func(w http.ResponseWriter, r request) {
						if time.Since(began) > 10*time.Minute {
							task("complete", "completed", completedTask)(w, r)
							return
						}
						task("complete", "input_required", `"pollIntervalMs":1000,"inputRequests":`+form("k"))(w, r)
					},
					"tasks/update": refusal(code, "not on this instance", ""),
				})
				p := yes()
				if _, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil); err != nil {
					t.Errorf("the task has completed; the end is %v", err)
				}
				if n := len(f.got("tasks/update")); n < 10 || n > 50 || p.times() != 1 {
					t.Errorf("answered %d times in 10 minutes, asked %d times", n, p.times())
				}
			})
		})
	}
}

func TestOnlyTheServersWordThatItDoesNotKnowTheTaskIsFinal(t *testing.T) {
	for code, final := range map[int]bool{-32601: false, -32603: false, -32602: true} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				no := refusal(code, "not on this instance", "")
				f := fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get":  inTurn(no, no, no, no, task("complete", "completed", completedTask)),
				})
				_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
				if final {
					wants(t, err, client.ErrFailed, "no longer knows the task")
				} else if err != nil {
					t.Errorf("the task has completed; the end is %v", err)
				}
			})
		})
	}
}

// case S79: a poll that failed before is not the one that is due at the end.
func TestATaskIsAskedForAtTheEndOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"ttlMs":130000,"pollIntervalMs":100000`),
			"tasks/get":  inTurn(status(http.StatusBadGateway), task("complete", "completed", completedTask)),
		})
		if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
			t.Errorf("the server would have said that it has completed: %v", err)
		}
	})
}

// One failure at the end tells nothing either; several do.
func TestATaskThatCannotBeAskedForAtItsEndExpiresAfterSeveralAttempts(t *testing.T) {
	off := status(http.StatusBadGateway)
	var began time.Time
	later := func(w http.ResponseWriter, r request) {
		if time.Since(began) < 72*time.Second { // over the end of its life, and the grace
			off(w, r)
			return
		}
		task("complete", "completed", completedTask)(w, r)
	}
	for name, c := range map[string]struct {
		get saying
		err error
	}{
		"it comes back":   {later, nil},
		"it stays away":   {off, client.ErrExpired},
		"it hangs":        {silence, client.ErrExpired},
		"not this method": {refusal(-32601, "no", ""), client.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{"tools/call": task("task", "working", `"ttlMs":60000,"pollIntervalMs":3600000`), "tasks/get": c.get})
				began = time.Now()
				_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
				if c.err != nil {
					wants(t, err, c.err)
				} else if err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// case S79: the same where there is no server at all.
func TestATaskWhoseServerIsGoneExpiresAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": task("task", "working", `"ttlMs":600000,"pollIntervalMs":5000`)})
		m := openMemory(t, memoryPath(t))
		c := f.client(client.Options{Memory: m})
		h := aTask(t, c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		h, err := f.client(client.Options{Memory: m, Transport: noTransport}).Attach(t.Context(), h.ID())
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrExpired)
		if took := time.Since(began); took < 9*time.Minute || took > 15*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// An instance of another release at the same address says nothing of a task.
func TestATaskOutlivesAServerWithoutTasks(t *testing.T) {
	for name, discover := range map[string]saying{
		"of the 2025 era":       refusal(-32601, "no such method", ""),
		"without the extension": result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var old atomic.Bool
				f := fakeServer(t, map[string]saying{
					"server/discover": func(w http.ResponseWriter, r request) {
						if old.Load() {
							discover(w, r)
							return
						}
						result(modernServer)(w, r)
					},
					"initialize": result(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"o","version":"1"}}`),
					"tools/call": task("task", "working", `"pollIntervalMs":60000`),
					"tasks/get": func(w http.ResponseWriter, r request) {
						if old.Load() {
							refusal(-32602, "unknown", "")(w, r)
							return
						}
						task("complete", "completed", completedTask)(w, r)
					},
				})
				m := openMemory(t, memoryPath(t))
				c := f.client(client.Options{Memory: m})
				h := aTask(t, c)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				old.Store(true)
				began := time.Now()
				h, err := f.client(client.Options{Memory: m}).Attach(t.Context(), h.ID())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				if n := len(f.got("server/discover")); n > 60 {
					t.Errorf("connected %d times in %v", n, time.Since(began))
				}
				old.Store(false)
				if _, err := h.Wait(t.Context()); err != nil {
					t.Errorf("the task has lived on; the end is %v", err)
				}
				if took := time.Since(began); took > 13*time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// case S80: a server that dies at each poll is started as often as it is polled.
func TestAServerThatDiesAtEachPollIsNotStartedOnAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		l, transport := lineServer(t, func(l *line, r request) {
			switch r.Method {
			case "tools/call":
				l.result(r, taskJSON("task", "working", `"pollIntervalMs":5000`))
			case "tasks/get":
				l.hangUp()
			}
		})
		c := newClient(t, client.Options{Transport: func() (mcp.Transport, error) { starts.Add(1); return transport() }})
		h := aTask(t, c)
		time.Sleep(10 * time.Minute)
		if n := starts.Load(); n < 10 || n > 60 {
			t.Errorf("%d processes started in 10 minutes", n)
		}
		for _, gap := range gaps(l.got("tasks/get")) {
			if gap < 5*time.Second {
				t.Errorf("polled after %v", gap)
			}
		}
		h.Detach()
	})
}

// The same of one that dies as soon as it listens.
func TestAServerThatDiesWhenItListensIsNotStartedOnAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		_, transport := lineServer(t, func(l *line, r request) {
			switch r.Method {
			case "tools/call":
				l.result(r, taskJSON("task", "working", `"pollIntervalMs":3600000`))
			case "subscriptions/listen":
				l.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"taskIds":["t-1"]}}}`, r.ID))
				l.send(tellTask(r, "working", ""))
				l.hangUp()
			}
		})
		c := newClient(t, client.Options{Transport: func() (mcp.Transport, error) { starts.Add(1); return transport() }})
		h := aTask(t, c)
		time.Sleep(10 * time.Minute)
		if n := starts.Load(); n < 10 || n > 60 {
			t.Errorf("%d processes started in 10 minutes", n)
		}
		h.Detach()
	})
}

// A poll that hangs holds nothing up.
func TestAHangingPollHoldsUpNoCancelNoAnswerAndNoNews(t *testing.T) {
	const asks = `"pollIntervalMs":1000,"inputRequests":`
	for name, c := range map[string]struct {
		begin  string // what the first poll says
		listen saying
		then   func(t *testing.T, h *client.Handle)
		sent   string
	}{
		"cancel": {`working`, nil, func(t *testing.T, h *client.Handle) {
			if err := h.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}, "tasks/cancel"},
		"answer": {`input_required`, nil, func(t *testing.T, h *client.Handle) {
			a, err := client.Accept(map[string]any{"confirm": true})
			if err == nil {
				err = h.Answer(t.Context(), "k", a)
			}
			if err != nil {
				t.Error(err)
			}
		}, "tasks/update"},
		"news": {`working`, listening(``, func(send func(string), r request) {
			time.Sleep(30 * time.Second)
			send(tellTask(r, "cancelled", ""))
			silence(nil, r)
		}), func(t *testing.T, h *client.Handle) { time.Sleep(20 * time.Second) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				says := map[string]saying{
					"tools/call":   task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get":    inTurn(task("complete", c.begin, asks+form("k")), silence),
					"tasks/cancel": result(`{"resultType":"complete"}`),
					"tasks/update": result(`{"resultType":"complete"}`),
				}
				if c.listen != nil {
					says["subscriptions/listen"] = c.listen
				}
				f := fakeServer(t, says)
				h := aTask(t, f.client(client.Options{Answerer: &person{answer: silent}}))
				time.Sleep(10 * time.Second)
				if n := len(f.got("tasks/get")); n != 2 {
					t.Fatalf("polled %d times", n)
				}
				began := time.Now()
				c.then(t, h)
				if c.sent == "" {
					time.Sleep(3 * time.Second)
					if s := h.Status(); s.State != client.Cancelled {
						t.Errorf("the server has told that it was cancelled; it is %s", s.State)
					}
					return
				}
				time.Sleep(2 * time.Second)
				all := f.got(c.sent)
				if len(all) != 1 || all[0].At.Sub(began) > 2*time.Second {
					t.Errorf("sent %d times", len(all))
				}
				h.Detach()
			})
		})
	}
}

func TestAHangingPollEndsWithTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": task("task", "working", `"pollIntervalMs":1000`), "tasks/get": silence})
		began := time.Now()
		_, err := f.client(client.Options{Limits: client.Limits{Deadline: 10 * time.Second}}).Call(t.Context(), "pay", nil)
		wants(t, err, client.ErrExpired)
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("a deadline of 10 s, over after %v", took)
		}
	})
}

// A server that names one task to two calls tells both of its end.
func TestTwoCallsOfOneTaskAreBothTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":1000`),
			"tasks/get":  task("complete", "working", `"pollIntervalMs":1000`),
			"subscriptions/listen": listening(`"t-1"`, func(send func(string), r request) {
				select {
				case <-over:
					send(tellTask(r, "completed", completedTask))
				case <-r.HTTP.Context().Done():
				}
				silence(nil, r)
			}),
		})
		c := f.client(client.Options{})
		first := aTask(t, c)
		time.Sleep(10 * time.Second)
		second, third := aTask(t, c), aTask(t, c)
		time.Sleep(10 * time.Second)
		third.Detach() // which takes nothing from the others
		close(over)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for i, h := range []*client.Handle{first, second} {
			if _, err := h.Wait(ctx); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
	})
}

// A task is not lost for how its times are written (JSON Schema: 100.0 is an
// integer), or for times that cannot be.
func TestATaskWithOddTimesIsWatched(t *testing.T) {
	for _, times := range []string{`"ttlMs":60000.0,"pollIntervalMs":100.0`, `"ttlMs":"long","pollIntervalMs":{}`, `"ttlMs":-1,"pollIntervalMs":0.5`} {
		synctest.Test(t, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{
				"tools/call": task("task", "working", times),
				"tasks/get":  inTurn(task("complete", "working", times), task("complete", "completed", times+","+completedTask)),
			})
			if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
				t.Errorf("%s: the task is lost: %v", times, err)
			}
		})
	}
}
