package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

const completedTask = `"result":{"content":[{"type":"text","text":"done"}]}`

// gaps are the times between requests.
func gaps(all []request) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(all); i++ {
		out = append(out, all[i].At.Sub(all[i-1].At))
	}
	return out
}

// case S77, S79
func TestATaskIsPolledAsOftenAsItsServerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":5000`),
			"tasks/get": inTurn(task("complete", "working", `"pollIntervalMs":5000`), task("complete", "working", `"pollIntervalMs":20000`),
				task("complete", "working", ""), task("complete", "working", `"pollIntervalMs":1`), task("complete", "working", ""), task("complete", "completed", completedTask)),
		})
		c := f.client(client.Options{})
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		polls := f.got("tasks/get")
		all := gaps(append(f.got("tools/call"), polls...))
		for i, least := range []time.Duration{5 * time.Second, 5 * time.Second, 20 * time.Second, 20 * time.Second, 100 * time.Millisecond, 100 * time.Millisecond} {
			if all[i] < least || all[i] > least*11/10+5*time.Millisecond {
				t.Errorf("gap %d is %v, not %v and up to a tenth more", i, all[i], least)
			}
		}
		asked := len(polls)
		time.Sleep(time.Hour) // nothing goes on after the end
		if n := len(f.got("tasks/get")); n != asked {
			t.Errorf("it was polled %d times after its end", n-asked)
		}
	})
}

// case S79
func TestNothingIsPolledOnceItsClientHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":1000`), "tasks/get": task("complete", "working", `"pollIntervalMs":1000`)})
		c := f.client(client.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Call(ctx, "pay", nil)
		wants(t, err, client.ErrDetached)
		n := len(f.got("tasks/get"))
		time.Sleep(time.Hour)
		if after := len(f.got("tasks/get")); after != n || n < 8 || len(f.got("tasks/cancel")) != 0 {
			t.Errorf("polled %d times, and %d times after it was detached; cancelled %d times", n, after-n, len(f.got("tasks/cancel")))
		}
	})
}

func TestAPollThatFailsIsMadeLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":1000`),
			"tasks/get": inTurn(
				status(http.StatusTooManyRequests, "Retry-After", "40"), status(http.StatusBadGateway), hangUp(""), refusal(-32603, "oh", ""),
				status(http.StatusInternalServerError), status(http.StatusServiceUnavailable, "Retry-After", "90"), stream(func(func(string), request) {}),
				task("complete", "completed", completedTask)),
		})
		if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		if n := len(f.got("tools/call")); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		got := gaps(f.got("tasks/get"))
		if len(got) != 7 {
			t.Fatalf("gaps: %v", got)
		}
		for i, least := range []time.Duration{40 * time.Second, time.Second, time.Second, 2 * time.Second, 4 * time.Second, 90 * time.Second, 15 * time.Second} {
			if got[i] < least || got[i] > 3*least+time.Second {
				t.Errorf("gap %d is %v, not about %v", i, got[i], least)
			}
		}
	})
}

func TestATaskThatIsNoLongerKnownIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": task("task", "working", ""), "tasks/get": refusal(-32602, "no such task", "")})
		_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
		if e := wants(t, err, client.ErrFailed, "no longer knows"); e.Code != -32602 {
			t.Errorf("the code is %d", e.Code)
		}
	})
}

func TestATaskIsNotWaitedForPastItsTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"ttlMs":60000,"pollIntervalMs":1000`),
			"tasks/get":  task("complete", "working", `"ttlMs":60000,"pollIntervalMs":1000`)})
		began := time.Now()
		_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
		wants(t, err, client.ErrExpired, "time to live")
		if took := time.Since(began); took < time.Minute || took > 75*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestATimeToLiveMayBeMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began time.Time
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"ttlMs":10000,"pollIntervalMs":1000`),
			"tasks/get": func(w http.ResponseWriter, r request) {
				alive := time.Since(began)
				if alive > 5*time.Minute {
					task("complete", "completed", completedTask)(w, r)
					return
				}
				task("complete", "working", fmt.Sprintf(`"ttlMs":%d`, (alive+10*time.Second).Milliseconds()))(w, r)
			}})
		began = time.Now()
		if _, err := f.client(client.Options{}).Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
	})
}

func TestATasksEndIsItsCallersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		status, more string
		err          error
		words        string
	}{
		"completed":                     {"completed", completedTask, nil, ""},
		"a tool's own error":            {"completed", `"result":{"content":[],"isError":true}`, nil, ""},
		"failed":                        {"failed", `"statusMessage":"the build broke","error":{"code":-32603,"message":"oh","data":{"log":"…"}}`, client.ErrFailed, "the build broke"},
		"expired":                       {"failed", `"error":{"code":-32603,"message":"late","data":{"outcome":"expired"}}`, client.ErrExpired, "late"},
		"cancelled":                     {"cancelled", `"statusMessage":"by its owner"`, client.ErrCancelled, "by its owner"},
		"completed without a result":    {"completed", ``, client.ErrInvalidResponse, "without a result"},
		"completed with a question":     {"completed", `"result":{"resultType":"input_required","requestState":"s"}`, client.ErrInvalidResponse, "result"},
		"completed with another task":   {"completed", `"result":{"resultType":"task","taskId":"t-2","status":"working"}`, client.ErrInvalidResponse, "result"},
		"failed without an error":       {"failed", ``, client.ErrInvalidResponse, "without an error"},
		"an unknown status":             {"paused", ``, client.ErrInvalidResponse, "paused"},
		"a question that cannot be one": {"input_required", `"inputRequests":{"k":{"method":"tools/call"}}`, client.ErrInvalidResponse, "tools/call"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{"tools/call": task("task", "working", ""), "tasks/get": task("complete", c.status, c.more)})
				cl := f.client(client.Options{})
				h, err := cl.Start(t.Context(), "pay", nil)
				if err != nil {
					t.Fatal(err)
				}
				<-h.Done()
				for range 2 { // kept until its caller has had it, and after
					r, err := h.Wait(t.Context())
					if c.err == nil && (err != nil || r.IsError != strings.Contains(c.more, "isError")) {
						t.Errorf("%+v, %v", r, err)
					} else if c.err != nil {
						wants(t, err, c.err, c.words)
					}
				}
			})
		})
	}
}

// case S78: on first sight, and once.
func TestWhatATaskAsksIsAskedAndAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answered atomic.Bool
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "input_required", `"pollIntervalMs":1000`),
			"tasks/get": func(w http.ResponseWriter, r request) {
				if answered.Load() {
					task("complete", "completed", completedTask)(w, r)
					return
				}
				task("complete", "input_required", `"inputRequests":`+form("k"))(w, r)
			},
			"tasks/update": func(w http.ResponseWriter, r request) {
				time.AfterFunc(10*time.Second, func() { answered.Store(true) }) // it takes a while to show
				result(`{"resultType":"complete"}`)(w, r)
			},
		})
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			select { // several polls come meanwhile
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return client.Accept(map[string]bool{"confirm": true})
		}}
		if _, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		updates := f.got("tasks/update")
		if p.times() != 1 || len(updates) != 1 || updates[0].param("inputResponses") != `{"k":{"action":"accept","content":{"confirm":true}}}` {
			t.Errorf("asked %d times, answered %d times", p.times(), len(updates))
		}
		if first := f.got("tasks/get")[0].At.Sub(f.got("tools/call")[0].At); first > 2*time.Second {
			t.Errorf("it was shown after %v", first)
		}
	})
}

// case S82: an answer that may have arrived is not given again with other words.
func TestAnUpdateWhoseAckIsLostIsSentAgainOnlyIfStillAsked(t *testing.T) {
	for name, still := range map[string]bool{"it arrived": false, "it did not": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var updates, polled atomic.Int32
				f := fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get": func(w http.ResponseWriter, r request) {
						switch n := updates.Load(); {
						case n == 1 && polled.Add(1) < 3: // which tells nothing
							status(http.StatusBadGateway)(w, r)
						case n == 0 || n == 1 && still:
							task("complete", "input_required", `"inputRequests":`+form("k"))(w, r)
						default:
							task("complete", "completed", completedTask)(w, r)
						}
					},
					"tasks/update": func(w http.ResponseWriter, r request) {
						if updates.Add(1) == 1 {
							hangUp("")(w, r)
							return
						}
						result(`{"resultType":"complete"}`)(w, r)
					},
				})
				p := yes()
				if _, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil); err != nil {
					t.Fatal(err)
				}
				all := f.got("tasks/update")
				if want := map[bool]int{false: 1, true: 2}[still]; len(all) != want || p.times() != 1 {
					t.Fatalf("sent %d times, asked %d times", len(all), p.times())
				}
				if last := all[len(all)-1]; last.param("inputResponses") != all[0].param("inputResponses") {
					t.Errorf("sent %s, and then %s", all[0].param("inputResponses"), last.param("inputResponses"))
				}
			})
		})
	}
}

func TestAnAnswerThatTheServerRefusesIsAskedForOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		updates saying
		err     error
	}{
		"and taken":   {inTurn(refusal(-32602, "confirm: too hasty", ""), result(`{"resultType":"complete"}`)), nil},
		"and refused": {refusal(-32602, "confirm: too hasty", ""), client.ErrNeedsInput},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fake
				f = fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":1000`),
					"tasks/get": func(w http.ResponseWriter, r request) {
						if len(f.got("tasks/update")) == 2 && c.err == nil {
							task("complete", "completed", completedTask)(w, r)
							return
						}
						task("complete", "input_required", `"inputRequests":`+form("k"))(w, r)
					},
					"tasks/update": c.updates,
				})
				p := yes()
				_, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil)
				if c.err == nil && err != nil {
					t.Fatal(err)
				} else if c.err != nil {
					wants(t, err, c.err, "does not take the answer")
				}
				if p.times() != 2 || len(f.got("tasks/update")) != 2 || !strings.Contains(p.asked[1].Problem, "too hasty") || p.asked[0].Problem != "" {
					t.Errorf("asked %d times, sent %d times, with the problem %q", p.times(), len(f.got("tasks/update")), p.asked[len(p.asked)-1].Problem)
				}
			})
		})
	}
}

// case S82: the first answer counts, also of two at once.
func TestTheFirstAnswerOfAKeyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fake
		f = fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"pollIntervalMs":1000`),
			"tasks/get": func(w http.ResponseWriter, r request) {
				if len(f.got("tasks/update")) > 0 {
					task("complete", "completed", completedTask)(w, r)
					return
				}
				task("complete", "input_required", `"inputRequests":`+form("k"))(w, r)
			},
			"tasks/update": result(`{"resultType":"complete"}`),
		})
		asked := make(chan struct{})
		withdrawn := make(chan struct{})
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			close(asked)
			<-ctx.Done()
			close(withdrawn)
			return client.Accept(map[string]bool{"confirm": true})
		}}
		h, err := f.client(client.Options{Answerer: p}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		results := make(chan error, 2)
		go func() { results <- h.Answer(t.Context(), "k", client.Decline()) }()
		go func() { results <- h.Answer(t.Context(), "k", client.Decline()) }()
		first, second := <-results, <-results
		if (first == nil) == (second == nil) {
			t.Errorf("two answers: %v and %v", first, second)
		}
		<-withdrawn // from who was asked first
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := f.got("tasks/update"); len(all) != 1 || all[0].param("inputResponses") != `{"k":{"action":"decline"}}` {
			t.Errorf("sent %d times: %s", len(all), all[0].param("inputResponses"))
		}
	})
}

// case S74
func TestACancelIsToldAndTheTaskWatchedToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		status, more string
		err          error
	}{
		"it is cancelled":       {"cancelled", "", client.ErrCancelled},
		"it completes":          {"completed", completedTask, nil},
		"it fails all the same": {"failed", `"error":{"code":-32603,"message":"oh"}`, client.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fake
				f = fakeServer(t, map[string]saying{
					"tools/call": task("task", "working", `"pollIntervalMs":5000`),
					"tasks/get": func(w http.ResponseWriter, r request) {
						if all := f.got("tasks/cancel"); len(all) > 0 && time.Since(all[0].At) > 20*time.Second {
							task("complete", c.status, c.more)(w, r)
							return
						}
						task("complete", "working", "")(w, r)
					},
					"tasks/cancel": inTurn(status(http.StatusBadGateway), result(`{"resultType":"complete"}`)),
				})
				h, err := f.client(client.Options{}).Start(t.Context(), "pay", nil)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(7 * time.Second)
				if err := h.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, err = h.Wait(t.Context())
				if c.err == nil && err != nil {
					t.Fatal(err)
				} else if c.err != nil {
					wants(t, err, c.err)
				}
				all := f.got("tasks/cancel")
				if len(all) != 2 || all[0].param("taskId") != `"t-1"` {
					t.Fatalf("told %d times", len(all))
				}
				if at := all[0].At.Sub(f.got("tools/call")[0].At); at > 8*time.Second {
					t.Errorf("told after %v", at)
				}
			})
		})
	}
}

// case S74: what is not a task is broken off, or given up.
func TestACancelOfWhatIsNoTask(t *testing.T) {
	for name, c := range map[string]struct {
		say saying
		err error
	}{
		"under way": {silence, client.ErrUnknown},
		"asking":    {asking(form("k"), `"s"`), client.ErrCancelled},
		"pausing":   {asking("", `"s"`), client.ErrCancelled},
		"refused":   {status(http.StatusTooManyRequests, "Retry-After", "20"), client.ErrCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{"tools/call": c.say})
				waits := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
					<-ctx.Done()
					return client.Answer{}, ctx.Err()
				}}
				h, err := f.client(client.Options{Answerer: waits}).Start(t.Context(), "pay", nil)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := h.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = h.Wait(t.Context())
				wants(t, err, c.err)
				if took := time.Since(began); took > time.Second || len(f.got("tools/call")) != 1 {
					t.Errorf("it took %v, and was sent %d times", took, len(f.got("tools/call")))
				}
			})
		})
	}
}

// case S83
func TestAStatusTellsOfTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": task("task", "working", `"statusMessage":"in the queue","ttlMs":3600000,"pollIntervalMs":1000`),
			"tasks/get": inTurn(task("complete", "working", `"statusMessage":"half done","ttlMs":3600000`), task("complete", "working", `"statusMessage":"nearly","ttlMs":3600000`),
				task("complete", "completed", completedTask)),
		})
		var told []client.Status
		h, err := f.client(client.Options{Notify: func(s client.Status) { told = append(told, s) }}).Start(t.Context(), "pay", json.RawMessage(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, message := range []string{"in the queue", "half done", "nearly"} {
			found := false
			for _, s := range told {
				found = found || s.Message == message && s.Task == "t-1" && s.State == client.Working && string(s.Arguments) == `{"n":1}` &&
					!s.Expires.IsZero() && s.Expires.Sub(s.Created) <= time.Hour+time.Second
			}
			if !found {
				t.Errorf("nothing was told of %q", message)
			}
		}
		if last := told[len(told)-1]; last.State != client.Completed || last.ID != h.ID() {
			t.Errorf("the last that was told is %+v", last)
		}
	})
}

// case S83
func TestATasksMessageIsNewerThanTheProgressBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{
			"tools/call": stream(func(send func(string), r request) {
				send(progressOf(r, 1, 2, "starting"))
				send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, taskJSON("task", "working", `"pollIntervalMs":1000`)))
			}),
			"tasks/get": inTurn(task("complete", "working", `"statusMessage":"half done"`), task("complete", "input_required", `"statusMessage":"over to you","inputRequests":{}`),
				task("complete", "completed", completedTask)),
		})
		var mu sync.Mutex
		var told []string
		h, err := f.client(client.Options{Notify: func(s client.Status) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(s.Message, " ", s.Done, "/", s.Total))
		}}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"starting 1/2", "half done 1/2", "over to you 1/2"} {
			if !slices.Contains(told, want) {
				t.Errorf("nothing was told of %q: %q", want, told)
			}
		}
	})
}

// case S68, S98, S99
func TestATaskIsFoundAgainByAnotherProcess(t *testing.T) {
	f := fakeServer(t, map[string]saying{
		"tools/call": task("task", "working", `"pollIntervalMs":100`),
		"tasks/get":  inTurn(task("complete", "working", ""), task("complete", "working", ""), task("complete", "completed", completedTask)),
	})
	path := memoryPath(t)
	first := openMemory(t, path)
	c := f.client(client.Options{Memory: first})
	ctx, cancel := context.WithCancel(t.Context())
	h, err := c.Start(ctx, "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	for h.Status().Task == "" && !h.Status().State.Final() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	if err == nil || errors.Is(err, client.ErrUnknown) {
		t.Fatal(err)
	}
	second := openMemory(t, path)
	again := f.client(client.Options{Memory: second})
	all, err := again.Resume(t.Context())
	if err != nil || len(all) != 1 || all[0].ID() != h.ID() {
		t.Fatalf("%v, %v", all, err)
	}
	if _, err := all[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(f.got("tools/call")); n != 1 {
		t.Errorf("the call was sent %d times", n)
	}
	for range 2 { // having been had is not having been lost
		if r, err := second.Result(t.Context(), h.ID()); err != nil || r == nil {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// Whether an answer has arrived only a poll tells: who goes on asks at once, and
// neither keeps the first interval nor waits for a listen to tell.
func TestWhoGoesOnWithAnAnswerInDoubtPollsAtOnce(t *testing.T) {
	for name, listens := range map[string]saying{
		"polling":   refusal(-32601, "no such method", ""),
		"listening": listening(`"t-1"`, func(_ func(string), r request) { silence(nil, r) }),
	} {
		for _, arrived := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, arrived %v", name, arrived), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var updates atomic.Int32
					lost := make(chan struct{})
					asking := task("complete", "input_required", `"pollIntervalMs":600000,"inputRequests":`+form("k"))
					f := fakeServer(t, map[string]saying{
						"tools/call":           task("task", "input_required", `"pollIntervalMs":600000,"inputRequests":`+form("k")),
						"subscriptions/listen": listens,
						"tasks/get": func(w http.ResponseWriter, r request) {
							if updates.Load() > 1 || updates.Load() == 1 && arrived {
								task("complete", "completed", completedTask)(w, r)
								return
							}
							asking(w, r)
						},
						"tasks/update": func(w http.ResponseWriter, r request) {
							if updates.Add(1) == 1 {
								close(lost)
								silence(w, r)
								return
							}
							result(`{"resultType":"complete"}`)(w, r)
						},
					})
					m := openMemory(t, memoryPath(t))
					p := yes()
					h, err := f.client(client.Options{Memory: m, Answerer: p}).Start(t.Context(), "pay", nil)
					if err != nil {
						t.Fatal(err)
					}
					<-lost
					h.Detach()
					began := time.Now()
					again, err := f.client(client.Options{Memory: m, Answerer: p}).Attach(t.Context(), h.ID())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := again.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					want := map[bool]int32{true: 1, false: 2}[arrived]
					if took := time.Since(began); took > 30*time.Second || updates.Load() != want || p.times() != 1 {
						t.Errorf("it took %v; answered %d times, asked %d times", took, updates.Load(), p.times())
					}
				})
			})
		}
	}
}
