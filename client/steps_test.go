package client_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

// What follows from a step at once is in the commit of that step: a call in
// rounds over a connection that is there is synced four times.
func TestWhatFollowsFromAStepIsInItsCommit(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(
		asking(form("k"), `"s"`), result(done), asking(form("k"), `"s"`), result(done))})
	var mu sync.Mutex
	var writes []string
	m := watched(t, memoryPath(t), func(statement string, done bool) {
		mu.Lock()
		defer mu.Unlock()
		if done && statement != "renew" && statement != "purge" {
			writes = append(writes, statement)
		}
	})
	c := f.client(client.Options{Memory: m, Answerer: yes()})
	for _, want := range [][]string{
		{"insert", "update", "update", "update", "end"}, // connects between the first two
		{"insert", "update", "update", "end"},
	} {
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if !slices.Equal(writes, want) {
			t.Errorf("the writes are %v, want %v", writes, want)
		}
		writes = nil
		mu.Unlock()
	}
}

// Who is asked for the first time is not told that it is again, although that
// the question is shown was on disk with it; whoever asks after a restart is.
func TestAQuestionIsAskedAgainOnlyAfterItWasShown(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
	m := openMemory(t, memoryPath(t))
	asked := make(chan client.Question, 9)
	p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
		asked <- q
		return silent(ctx, q)
	}}
	h, err := f.client(client.Options{Memory: m, Answerer: p}).Start(t.Context(), "pay", json.RawMessage(`{"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true, true} {
		if q := <-asked; q.Again != again {
			t.Errorf("again: %v, want %v", q.Again, again)
		} else if string(q.Arguments) != `{"n":1}` {
			t.Errorf("the arguments are %s", q.Arguments)
		}
		h.Detach()
		if h, err = f.client(client.Options{Memory: m, Answerer: p}).Attach(t.Context(), h.ID()); err != nil {
			t.Fatal(err)
		}
	}
}

// The answer is on disk as one whose request may have left, and the driving
// ends before it has: it has not, and who goes on may send it, be the server
// one that keeps no keys.
func TestAnAnswerThatHasNotLeftIsSentByWhoGoesOn(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
	var h atomic.Pointer[client.Handle]
	var updates atomic.Int32
	started, detached := make(chan struct{}), make(chan struct{})
	m := watched(t, memoryPath(t), func(statement string, done bool) {
		if statement != "update" || !done || updates.Add(1) != 3 { // sent, asked and shown, answered and sent
			return
		}
		<-started
		go func() {
			h.Load().Detach()
			close(detached)
		}()
		time.Sleep(200 * time.Millisecond) // until it was told
	})
	p := yes()
	c := f.client(client.Options{Memory: m, Answerer: p})
	one, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Store(one)
	close(started)
	<-detached
	_, err = one.Wait(t.Context())
	if e := wants(t, err, client.ErrDetached); e.MaybeDone {
		t.Errorf("nothing has left: %v", err)
	}
	if n := len(f.got("tools/call")); n != 1 {
		t.Fatalf("sent %d times", n)
	}
	again, err := c.Attach(t.Context(), one.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Wait(t.Context()); err != nil || p.times() != 1 {
		t.Errorf("%v, asked %d times", err, p.times())
	}
}

// A call begins as one whose request may have left, and the connection is lost
// before it has: it goes over the next one, once.
func TestACallWhoseConnectionIsLostBeforeItHasLeftTakesTheNext(t *testing.T) {
	l, transport := lineServer(t, func(l *line, r request) { l.result(r, done) })
	var hang atomic.Bool
	m := watched(t, memoryPath(t), func(statement string, done bool) {
		if statement == "insert" && done && hang.Load() {
			l.hangUp()
			time.Sleep(200 * time.Millisecond) // until that is noticed
		}
	})
	c := newClient(t, client.Options{Memory: m, Transport: transport})
	if _, err := c.Call(t.Context(), "read", nil); err != nil {
		t.Fatal(err)
	}
	hang.Store(true)
	if _, err := c.Call(t.Context(), "read", nil); err != nil {
		t.Error(err)
	}
	if n, met := len(l.got("tools/call")), len(l.got("server/discover")); n != 2 || met != 2 {
		t.Errorf("%d calls arrived over %d connections", n, met)
	}
}

// Who has let go of a call that waits for an answer does not drive it.
func TestACallThatWasLetGoOfHasNoDriver(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
	m := openMemory(t, memoryPath(t))
	h, err := f.client(client.Options{Memory: m}).Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	wants(t, err, client.ErrNeedsInput)
	onDisk, err := m.Status(t.Context(), h.ID())
	if here := h.Status(); err != nil || here.Driver != "" || onDisk.Driver != "" {
		t.Errorf("driven by %q, on disk by %q; %v", here.Driver, onDisk.Driver, err)
	}
}

// Who waits for an answer drives the call for as long as that takes.
func TestACallThatWaitsHasItsDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
		h, err := f.client(client.Options{Answerer: &person{answer: silent}}).Start(t.Context(), "pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := h.Status(); s.Driver != "here" || s.State != client.InputRequired {
			t.Errorf("%s, driven by %q", s.State, s.Driver)
		}
	})
}
