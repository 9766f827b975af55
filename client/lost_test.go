package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tallystick/tallystick/client"
	"golang.org/x/oauth2"
)

// A same-origin 307 is followed; the second sending arrives and its response is
// lost. The status 307 of the first response is taken for the fate of both.
func TestARequestLostAfterARedirectMayHaveBeenDone(t *testing.T) {
	var paid atomic.Int32
	f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
		if r.HTTP.URL.Path != "/pay" {
			w.Header().Set("Location", "/pay")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		paid.Add(1)
		hangUp("")(w, r)
	}})
	_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
	t.Logf("paid %d, err %v", paid.Load(), err)
	wants(t, err, client.ErrUnknown)
}

type signer struct{ n atomic.Int32 }

func (o *signer) TokenSource(context.Context) (oauth2.TokenSource, error) {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "x"}), nil
}

func (o *signer) Authorize(context.Context, *http.Request, *http.Response) error {
	o.n.Add(1)
	return nil
}

// 401, the SDK authorises and sends again; that arrives, and its response is
// lost. The 401 is still in the exchange: "it was not done"; Attach sends again.
func TestARequestLostAfterASignInMayHaveBeenDone(t *testing.T) {
	var paid atomic.Int32
	var first atomic.Bool
	f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
		if first.CompareAndSwap(false, true) {
			status(http.StatusUnauthorized)(w, r)
			return
		}
		if paid.Add(1) == 1 {
			hangUp("")(w, r)
			return
		}
		result(done)(w, r)
	}})
	o := new(signer)
	c := f.client(client.Options{Transport: func() (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: "http://fake.test/mcp", OAuthHandler: o, HTTPClient: &http.Client{Transport: f.net.roundTripper(t)}}, nil
	}})
	_, err := c.Call(t.Context(), "pay", nil)
	t.Logf("authorised %d times, paid %d, err %v", o.n.Load(), paid.Load(), err)
	var e *client.Error
	if errors.As(err, &e) && !errors.Is(err, client.ErrUnknown) {
		h, err := c.Attach(t.Context(), e.ID)
		if err == nil {
			_, err = h.Wait(t.Context())
		}
		t.Logf("attached: %v", err)
	}
	if n := paid.Load(); n != 1 {
		t.Errorf("PAID %d TIMES without a key that is kept", n)
	}
	wants(t, err, client.ErrUnknown)
}

// To a server that keeps keys: the first sending is lost, the second is turned
// away by a proxy's bare status. That says nothing of the first.
func TestWhatWasLostIsNotUndoneByTheNextAttempt(t *testing.T) {
	for name, say := range map[string]saying{
		"404": status(http.StatusNotFound), "413": status(http.StatusRequestEntityTooLarge), "302": status(http.StatusFound, "Location", "http://elsewhere.test/"),
		"401": status(http.StatusUnauthorized), "-32021": refusal(-32021, "missing", `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(hangUp(""), say)})
			f.discover = keepingServer
			_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
			var stopped *client.Error
			if !errors.Is(err, client.ErrUnknown) && !(errors.As(err, &stopped) && stopped.MaybeDone) {
				t.Errorf("the first may have been done; the end is %v", err)
			}
		})
	}
}

// That a server is out of reach says nothing of what it had before.
func TestAServerOutOfReachMayHaveDoneIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": status(http.StatusBadGateway)})
		f.discover = keepingServer
		_, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
		var stopped *client.Error
		if !errors.As(err, &stopped) || !stopped.MaybeDone {
			t.Errorf("sent %d times, may have been done each time: %v", len(f.got("tools/call")), err)
		}
	})
}

// The same without any key: a server over stdio that ends while it works, and
// does not start again.
func TestACommandThatDiesMayHaveDoneIt(t *testing.T) {
	var starts atomic.Int32
	var l *line
	l, transport := lineServer(t, func(l *line, r request) {
		if r.Method == "tools/call" {
			l.out.(interface{ Close() error }).Close() // done, and dead
		}
	})
	c := newClient(t, client.Options{Limits: client.Limits{Outage: 2 * time.Second}, Transport: func() (mcp.Transport, error) {
		if starts.Add(1) > 1 {
			return nil, errors.New("exec: no such file")
		}
		return transport()
	}})
	_, err := c.Call(t.Context(), "pay", nil)
	t.Logf("sent %d times: %v", len(l.got("tools/call")), err)
	if errors.Is(err, client.ErrUnreachable) {
		t.Error("ErrUnreachable means it was not done; the server had it")
	}
}

// Cancel has returned before anything was sent; then it is sent.
func TestACancelBeforeSendingKeepsItFromBeingSent(t *testing.T) {
	for range 40 {
		if cancelBeforeSending(t); t.Failed() {
			return
		}
	}
}

func cancelBeforeSending(t *testing.T) {
	release, connecting := make(chan struct{}), make(chan struct{}, 9)
	f := fakeServer(t, map[string]saying{
		"server/discover": func(w http.ResponseWriter, r request) {
			connecting <- struct{}{}
			<-release
			result(modernServer)(w, r)
		},
		"tools/call": result(done),
	})
	c := f.client(client.Options{})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-connecting
	if err := h.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(release)
	_, err = h.Wait(t.Context())
	if n := len(f.got("tools/call")); n != 0 || !errors.Is(err, client.ErrCancelled) {
		t.Errorf("cancelled before it was sent, and then sent %d times: %v", n, err)
	}
}

// The same by another process; what is more, the driver never notices.
func TestAnotherProcesssCancelIsHeardAtOnce(t *testing.T) {
	release, connecting := make(chan struct{}), make(chan struct{}, 9)
	f := fakeServer(t, map[string]saying{
		"server/discover": func(w http.ResponseWriter, r request) {
			connecting <- struct{}{}
			<-release
			result(modernServer)(w, r)
		},
		"tools/call": silence,
	})
	path := memoryPath(t)
	c := f.client(client.Options{Memory: openMemory(t, path)})
	other := openMemory(t, path)
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-connecting
	if err := other.Cancel(t.Context(), h.ID()); err != nil {
		t.Fatal(err)
	}
	close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	_, err = h.Wait(ctx)
	if n := len(f.got("tools/call")); n != 0 || errors.Is(err, client.ErrDetached) {
		t.Errorf("sent %d times after the cancel; 8 s later: %v", n, err)
	}
}

// Start says that it has not begun; the next process sends it.
func TestAClosedClientKeepsNoCall(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": result(done)})
	m := openMemory(t, memoryPath(t))
	c := f.client(client.Options{Memory: m})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrClosed)
	all, err := f.client(client.Options{Memory: m}).Resume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		_, _ = h.Wait(t.Context())
	}
	if n := len(f.got("tools/call")); n != 0 {
		t.Errorf("a call that was refused with ErrClosed was sent %d times", n)
	}
}

// A context that ends while the entry is being written: Start fails, and the
// call is on disk for the next Resume to send.
func TestAStartThatFailsLeavesNoCall(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": result(done)})
	path := memoryPath(t)
	m := openMemory(t, path)
	c := f.client(client.Options{Memory: m})
	began := time.Now()
	for i := 0; time.Since(began) < 4*time.Second; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%400)*20*time.Microsecond)
		h, err := c.Start(ctx, "pay", map[string]int{"n": i})
		cancel()
		if err == nil {
			_, _ = h.Wait(t.Context())
			continue
		}
		all, listed := m.List(t.Context())
		if listed != nil {
			t.Fatal(listed)
		}
		for _, s := range all {
			if string(s.Arguments) == fmt.Sprintf(`{"n":%d}`, i) {
				t.Fatalf("Start %d failed (%v), and the call is on disk: %s, driver %q", i, err, s.State, s.Driver)
			}
		}
		if i%50 == 0 {
			for _, s := range all {
				_ = m.Forget(t.Context(), s.ID)
			}
		}
	}
}

// The response is here; the drive is detached before it is on disk, which it
// could be. The task's id is thrown away, and the call is unknown for good.
func TestATaskThatHasComeSurvivesADetach(t *testing.T) {
	f := fakeServer(t, map[string]saying{
		"tools/call": task("task", "working", `"ttlMs":null,"pollIntervalMs":100`),
		"tasks/get":  task("complete", "completed", `"ttlMs":null,"result":`+done),
	})
	var writes atomic.Int32
	var h atomic.Pointer[client.Handle]
	started := make(chan struct{})
	opts := client.MemoryOptions{Path: memoryPath(t)}
	opts.OnWrite(func(statement string, done bool) {
		if statement != "update" || done {
			return
		}
		switch writes.Add(1) {
		case 1:
			<-started // that it may have left
		case 2: // the task: detach now, as Close and the end of Call's context do
			go h.Load().Detach()
			time.Sleep(200 * time.Millisecond)
		}
	})
	m, err := client.OpenMemory(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := f.client(client.Options{Memory: m})
	one, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Store(one)
	close(started)
	_, err = one.Wait(t.Context())
	t.Log(err)
	again, err := c.Attach(t.Context(), one.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Wait(t.Context()); err != nil {
		t.Errorf("the server had said which task it is: %v", err)
	}
	c.Close()
}

// A call that may have been done, sent again on its caller's word after its
// deadline, is not sent, and is no longer unknown.
func TestAgainHasTimeOfItsOwn(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": silence})
	c := f.client(client.Options{Limits: client.Limits{Deadline: time.Second}})
	_, err := c.Call(t.Context(), "pay", nil)
	e := wants(t, err, client.ErrUnknown)
	h, err := c.Attach(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = h.Again(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	if n := len(f.got("tools/call")); n != 2 && !errors.Is(err, client.ErrUnknown) {
		t.Errorf("sent %d times in all, and its end has become: %v", n, err)
	}
}

// Again, and then a cancel before it is sent: "nothing had been sent".
func TestAgainIsNeverSaidNotToHaveBeenSent(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": hangUp("")})
	var off atomic.Bool
	c := f.client(client.Options{Limits: client.Limits{Outage: time.Second}, Transport: func() (mcp.Transport, error) {
		if off.Load() {
			return nil, errors.New("no network")
		}
		return f.transport()
	}})
	_, err := c.Call(t.Context(), "pay", nil)
	e := wants(t, err, client.ErrUnknown)
	off.Store(true)
	h, err := c.Attach(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = h.Again(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = h.Cancel(t.Context())
	_, err = h.Wait(t.Context())
	if errors.Is(err, client.ErrCancelled) {
		t.Errorf("it may have been done; now: %v", err)
	} else {
		t.Log(err)
	}
}

// A retry whose response was lost is sent again for the sake of a key that it
// does not carry.
func TestARetryWithoutAStateIsNotSentAgain(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), ""), hangUp(""), result(done))})
	c := f.client(client.Options{Answerer: yes(), KeysKept: time.Hour}) // not a tallystick server: one that honours the key
	_, err := c.Call(t.Context(), "pay", nil)
	all := f.got("tools/call")
	for i, r := range all {
		t.Logf("%d: key %q state %q answers %s", i, r.param("_meta", "tallystick/idempotencyKey"), r.param("requestState"), r.param("inputResponses"))
	}
	if len(all) == 3 && all[2].param("_meta", "tallystick/idempotencyKey") == "" {
		t.Errorf("the retry was sent twice with neither key nor state to know it by: %v", err)
	}
}
