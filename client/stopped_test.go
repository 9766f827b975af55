package client_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// Where a call over a connection that is there can be stopped, with all that
// follows on disk and nothing of it done: the writes after which that is so.
var beforeItLeaves = map[string]func() func(statement string) bool{
	"the call": func() func(string) bool { return func(s string) bool { return s == "insert" } },
	"its answer": func() func(string) bool {
		n := 0
		return func(s string) bool { return s == "update" && counted(&n) == 2 }
	},
}

func counted(n *int) int { *n++; return *n }

// stand is a call that stands still after a write, while meanwhile runs.
func stand(t *testing.T, f *fake, at string, meanwhile func(path string, other *client.Memory)) (*client.Client, int) {
	t.Helper()
	path := memoryPath(t)
	other := openMemory(t, path)
	is := beforeItLeaves[at]()
	m := watched(t, path, func(statement string, done bool) {
		if done && is(statement) {
			meanwhile(path, other)
			time.Sleep(time.Second) // it stands still
		}
	})
	c := f.client(client.Options{Memory: m, Answerer: yes()})
	if _, err := c.Session(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, map[string]int{"the call": 0, "its answer": 1}[at]
}

func inTwoRounds(at string) saying {
	if at == "the call" {
		return result(done)
	}
	return inTurn(asking(form("k"), `"s"`), result(done))
}

// A cancel that another process has put on disk before anything has left.
func TestWhatIsCancelledOnDiskIsNotSent(t *testing.T) {
	for at := range beforeItLeaves {
		t.Run(at, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTwoRounds(at)})
			c, before := stand(t, f, at, func(_ string, other *client.Memory) {
				all, err := other.List(context.Background())
				if err != nil || len(all) != 1 {
					t.Error(all, err)
					return
				}
				if err := other.Cancel(context.Background(), all[0].ID); err != nil {
					t.Error(err)
				}
			})
			_, err := c.Call(t.Context(), "pay", nil)
			wants(t, err, client.ErrCancelled)
			if n := len(f.got("tools/call")); n != before {
				t.Errorf("sent %d times, want %d", n, before)
			}
		})
	}
}

// A process stands still past its lease, another takes the call over and ends
// it, on somebody's word by sending it again. The first sends nothing then.
func TestWhoHasLostACallSendsNothing(t *testing.T) {
	for at := range beforeItLeaves {
		t.Run(at, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTwoRounds(at)})
			c, before := stand(t, f, at, func(path string, other *client.Memory) {
				raw(t, path, "UPDATE calls SET until = 1")
				all, err := f.client(client.Options{Memory: other, Answerer: yes()}).Resume(context.Background())
				if err != nil || len(all) != 1 {
					t.Error(len(all), err)
					return
				}
				if _, err = all[0].Wait(context.Background()); !errors.Is(err, client.ErrUnknown) { // it may have left
					t.Error(err)
				}
				h, err := all[0].Again(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := h.Wait(context.Background()); err != nil {
					t.Error(err)
				}
			})
			_, err := c.Call(t.Context(), "pay", nil)
			wants(t, err, client.ErrBusy)
			if n := len(f.got("tools/call")); n != before+1 {
				t.Errorf("sent %d times, want %d", n, before+1)
			}
		})
	}
}

// The same while the question is on disk as shown: nobody is asked once another
// process has had the answer.
func TestWhoHasLostACallAsksNobody(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
	path := memoryPath(t)
	other := openMemory(t, path)
	second := f.client(client.Options{Memory: other, Answerer: yes()})
	var updates atomic.Int32
	m := watched(t, path, func(statement string, done bool) {
		if statement != "update" || !done || updates.Add(1) != 2 {
			return
		}
		raw(t, path, "UPDATE calls SET until = 1")
		all, err := second.Resume(context.Background())
		if err != nil || len(all) != 1 {
			t.Error(len(all), err)
			return
		}
		if _, err := all[0].Wait(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
	late := yes()
	_, err := f.client(client.Options{Memory: m, Answerer: late}).Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrBusy)
	if n := late.times(); n != 0 {
		t.Errorf("asked %d times after the end", n)
	}
}

// What ends the driving, the call or the connection while it is put on disk
// that the request may have left: it has not, over whatever transport.
func TestWhatEndsWhileItIsAboutToLeaveHasNotLeft(t *testing.T) {
	for _, kind := range []string{"http", "lines"} {
		for how, state := range map[string]client.State{
			"detach": client.Completed, "close": client.Completed, "hang up": client.Completed, "deadline": client.Expired, "cancel": client.Cancelled,
		} {
			if kind == "http" && how == "hang up" {
				continue // no connection is shared
			}
			t.Run(kind+"/"+how, func(t *testing.T) {
				var opts client.Options
				var got func() int
				hangUp := func() {}
				if kind == "http" {
					f := fakeServer(t, map[string]saying{"tools/call": result(done)})
					opts.Transport, got = f.transport, func() int { return len(f.got("tools/call")) }
				} else {
					l, transport := lineServer(t, func(l *line, r request) { l.result(r, done) })
					opts.Transport, got, hangUp = transport, func() int { return len(l.got("tools/call")) }, l.hangUp
				}
				if how == "deadline" {
					opts.Limits.Deadline = 300 * time.Millisecond
				}
				var updates atomic.Int32
				var c *client.Client
				started := make(chan *client.Handle, 1)
				opts.Memory = watched(t, memoryPath(t), func(statement string, done bool) {
					if statement != "update" || !done || updates.Add(1) != 1 {
						return
					}
					h := <-started
					switch how {
					case "detach":
						go h.Detach()
					case "close":
						go c.Close()
					case "hang up":
						hangUp()
					case "cancel":
						go func() { _ = h.Cancel(context.Background()) }()
					}
					time.Sleep(400 * time.Millisecond) // until that is so
				})
				c = newClient(t, opts)
				h, err := c.Start(t.Context(), "pay", nil)
				if err != nil {
					t.Fatal(err)
				}
				started <- h
				_, err = h.Wait(t.Context())
				if e := new(client.Error); errors.As(err, &e) && e.MaybeDone {
					t.Errorf("nothing has left: %v", err)
				}
				if n := got(); n > 0 && how != "hang up" {
					t.Errorf("it has left, %d times", n)
				}
				again, err := newClient(t, client.Options{Memory: opts.Memory, Transport: opts.Transport}).Attach(t.Context(), h.ID())
				if err != nil {
					t.Fatal(err)
				}
				_, err = again.Wait(t.Context())
				if s := again.Status().State; s != state {
					t.Errorf("its end is %s: %v", s, err)
				}
			})
		}
	}
}

// What a commit said would be shown, and was not, has not been.
func TestWhatWasNeverHandedToAnybodyIsNotAskedAgain(t *testing.T) {
	both := `{"a":` + strings.TrimSuffix(strings.TrimPrefix(form("x"), `{"x":`), `}`) + `,"b":` + strings.TrimSuffix(strings.TrimPrefix(form("x"), `{"x":`), `}`) + `}`
	misfit := client.Answer{Action: "accept", Content: []byte(`{"confirm":"no boolean"}`)}
	for name, c := range map[string]struct {
		says  saying
		opts  client.Options
		err   error
		asked int // before it stops
	}{
		"the rounds are used up": {inTurn(asking(form("k"), `"s"`), asking(form("k2"), `"s2"`), result(done)), client.Options{Limits: client.Limits{Rounds: 1}}, client.ErrRounds, 1},
		"a rule does not fit":    {inTurn(asking(both, `"s"`), result(done)), client.Options{Policy: client.Policy{{Key: "b", Do: client.Reply, Answer: &misfit}}}, client.ErrNeedsInput, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": c.says})
			m, p := openMemory(t, memoryPath(t)), yes()
			c.opts.Memory, c.opts.Answerer = m, p
			_, err := f.client(c.opts).Call(t.Context(), "pay", nil)
			e := wants(t, err, c.err)
			if p.times() != c.asked {
				t.Fatalf("asked %d times", p.times())
			}
			h, err := f.client(client.Options{Memory: m, Answerer: p}).Attach(t.Context(), e.ID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, q := range p.asked {
				if q.Again {
					t.Errorf("%s was handed to nobody before", q.ID)
				}
			}
		})
	}
}

// Another client of the memory finds a call that is being put there.
func TestACallThatIsBeingMadeIsNobodyElses(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": result(done)})
	var other *client.Client
	m := watched(t, memoryPath(t), func(statement string, done bool) {
		if statement != "insert" || !done {
			return
		}
		if all, err := other.Resume(context.Background()); len(all) != 0 || err != nil {
			t.Errorf("resumed %d: %v", len(all), err)
		}
	})
	other = f.client(client.Options{Memory: m})
	c := f.client(client.Options{Memory: m})
	if _, err := c.Session(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "pay", nil); err != nil || len(f.got("tools/call")) != 1 {
		t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
	}
}

// Again of a client that has been closed arms nothing.
func TestAgainOfAClosedClientLeavesTheCallAsItWas(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(hangUp(""), result(done))})
	m := openMemory(t, memoryPath(t))
	c := f.client(client.Options{Memory: m})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrUnknown)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = h.Again(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Fatal(err)
	}
	all, err := f.client(client.Options{Memory: m}).Resume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		_, err := h.Wait(t.Context())
		wants(t, err, client.ErrUnknown)
	}
	if s, err := m.Status(t.Context(), h.ID()); err != nil || s.State != client.Unknown || s.Driver != "" || len(f.got("tools/call")) != 1 {
		t.Errorf("%+v, %v; sent %d times", s, err, len(f.got("tools/call")))
	}
}

// An older handle's outcome does not stand for a newer one's.
func TestTheLatestOutcomeIsTheOneThatWasHad(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(hangUp(""), result(done))})
	path := memoryPath(t)
	m := openMemory(t, path)
	c := f.client(client.Options{Memory: m})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrUnknown)
	again, err := h.Again(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrUnknown)
	if err := errors.Join(c.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err := openMemory(t, path).Status(t.Context(), h.ID()); err != nil || !s.Seen {
		t.Errorf("%+v, %v", s, err)
	}
}

// The end of one call's context is not the end of the connection that others
// share.
func TestOneCallsEndIsNotAnothers(t *testing.T) {
	release := make(chan struct{})
	l, transport := lineServer(t, func(l *line, r request) {
		switch {
		case r.Method != "tools/call":
			return
		case r.param("name") == `"long"`:
			<-release
		}
		l.result(r, done)
	})
	c := newClient(t, client.Options{Transport: transport})
	long, err := c.Start(t.Context(), "long", nil)
	if err != nil {
		t.Fatal(err)
	}
	for len(l.got("tools/call")) == 0 {
		time.Sleep(time.Millisecond)
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7+worker*13)%100)*20*time.Microsecond)
				_, _ = c.Call(ctx, "short", nil) // some end, some do not
				cancel()
			}
		})
	}
	all.Wait()
	close(release)
	if _, err := long.Wait(t.Context()); err != nil {
		t.Errorf("the other call: %v", err)
	}
	if n := len(l.got("server/discover")); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Whoever has just put something on disk has the call for a whole lease.
func TestACommitMovesTheLeaseOn(t *testing.T) {
	one := strings.TrimSuffix(strings.TrimPrefix(form("x"), `{"x":`), `}`)
	f := fakeServer(t, map[string]saying{"tools/call": asking(`{"a":`+one+`,"b":`+one+`}`, `"s"`)})
	path := memoryPath(t)
	asked := make(chan struct{}, 2)
	c := f.client(client.Options{Memory: openMemory(t, path), Answerer: &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
		asked <- struct{}{}
		return silent(ctx, q)
	}}})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	<-asked
	raw(t, path, "UPDATE calls SET until = 1")
	if err := h.Answer(t.Context(), "a", client.Decline()); err != nil {
		t.Fatal(err)
	}
	if left := leaseLeft(t, path); left < 5*time.Second || left > 11*time.Second {
		t.Errorf("%v are left of the lease", left)
	}
}

// Whoever goes on after standing still has the call anew before it is sent, be
// it that nobody has taken it meanwhile.
func TestWhoGoesOnAfterStandingStillHasTheLeaseAnew(t *testing.T) {
	for at := range beforeItLeaves {
		t.Run(at, func(t *testing.T) {
			var file string
			var left time.Duration
			says := inTwoRounds(at)
			f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
				if file != "" {
					left = leaseLeft(t, file)
				}
				says(w, r)
			}})
			c, _ := stand(t, f, at, func(path string, _ *client.Memory) {
				time.Sleep(1500 * time.Millisecond) // the memory's first heartbeat is over, and the next in 3 s
				raw(t, path, "UPDATE calls SET until = 1")
				file = path
			})
			if _, err := c.Call(t.Context(), "pay", nil); err != nil {
				t.Fatal(err)
			}
			if left < 5*time.Second {
				t.Errorf("%v were left of the lease as it was sent", left)
			}
		})
	}
}

func leaseLeft(t *testing.T, path string) time.Duration {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var until int64
	if err := db.QueryRowContext(t.Context(), "SELECT until FROM calls").Scan(&until); err != nil {
		t.Error(err)
	}
	return time.Until(time.UnixMilli(until))
}
