package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tallystick/tallystick/client"
)

// After the deadline pauses are negative: the loop turns as fast as it can.
func TestNothingIsTriedAfterTheDeadline(t *testing.T) {
	var dials atomic.Int32
	c := newClient(t, client.Options{Limits: client.Limits{Deadline: time.Second, Outage: 5 * time.Second}, Transport: func() (mcp.Transport, error) {
		dials.Add(1)
		return nil, errors.New("connection refused")
	}})
	began := time.Now()
	_, err := c.Call(t.Context(), "pay", nil)
	if n := dials.Load(); n > 50 || time.Since(began) > 3*time.Second {
		t.Errorf("%d connections tried in %v with a deadline of 1 s: %v", n, time.Since(began), err)
	}
}

// The same to a server that keeps keys: requests as fast as it can.
func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": silence})
	f.discover = keepingServer
	c := f.client(client.Options{Limits: client.Limits{Deadline: time.Second, Outage: 5 * time.Second}})
	began := time.Now()
	_, err := c.Call(t.Context(), "pay", nil)
	if n := len(f.got("tools/call")); n > 5 || time.Since(began) > 3*time.Second {
		t.Errorf("%d requests arrived in %v with a deadline of 1 s: %v", n, time.Since(began), err)
	}
}

// A server over stdio that stops reading: the request cannot be given up.
func TestAPipeThatNobodyReadsHoldsNothingUp(t *testing.T) {
	transport := func() (mcp.Transport, error) {
		fromClient, toServer := io.Pipe()
		fromServer, toClient := io.Pipe()
		go func() {
			lines := bufio.NewReader(fromClient)
			b, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var r request
			_ = json.Unmarshal(b, &r)
			fmt.Fprintf(toClient, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, modernServer)
			// and reads no more
		}()
		return &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil
	}
	c, err := client.New(client.Options{Memory: openMemory(t, memoryPath(t)), Server: "s", Transport: transport, Limits: client.Limits{Request: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Start(t.Context(), "pay", map[string]string{"x": strings.Repeat("x", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	if _, err := h.Wait(ctx); errors.Is(err, client.ErrDetached) {
		t.Errorf("Limits.Request is 1 s; after 6 s: %v", err)
	}
	detached := make(chan struct{})
	go func() { h.Detach(); close(detached) }()
	select {
	case <-detached:
	case <-time.After(5 * time.Second):
		t.Error("Detach hangs")
	}
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("Close hangs")
	}
}

// Modern, then of the 2025 era: a retry becomes a new call, and its state and
// answers are sent to whoever that is.
func TestARetryIsNotSentToAServerWithoutRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var old atomic.Bool
		f := fakeServer(t, map[string]saying{
			"server/discover": func(w http.ResponseWriter, r request) {
				if old.Load() {
					refusal(-32601, "no such method", "")(w, r)
					return
				}
				result(modernServer)(w, r)
			},
			"initialize": result(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"o","version":"1"}}`),
			"tools/call": func(w http.ResponseWriter, r request) {
				if !old.Load() {
					asking(form("k"), `"state"`)(w, r)
					return
				}
				result(`{"content":[]}`)(w, r)
			},
		})
		m := openMemory(t, memoryPath(t))
		c := f.client(client.Options{Memory: m})
		_, err := c.Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrNeedsInput)
		c.Close()
		old.Store(true)
		h, err := f.client(client.Options{Memory: m, Answerer: yes()}).Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		all := f.got("tools/call")
		if len(all) > 1 {
			t.Errorf("a server that knows of no rounds got a second first request (state %s, answers %s): %v", all[1].param("requestState"), all[1].param("inputResponses"), err)
		}
	})
}

// Waiting in Notify for a call that Notify says is over.
func TestWaitTellsTheEndThatNotifyTold(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": result(done)})
	var h atomic.Pointer[client.Handle]
	ready, told := make(chan struct{}), make(chan error, 1)
	c := f.client(client.Options{Notify: func(s client.Status) {
		<-ready
		if s.State.Final() && h.Load() != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			_, err := h.Load().Wait(ctx)
			select {
			case told <- err:
			default:
			}
		}
	}})
	one, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Store(one)
	close(ready)
	if err := <-told; err != nil {
		t.Errorf("Notify said that it has ended; Wait there says: %v", err)
	}
}

// Again and Attach at once: a call that is held, and driven by nobody.
func TestAgainAndAttachAtOnceLeaveNoCallToNobody(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": hangUp("")})
	m := openMemory(t, memoryPath(t))
	c := f.client(client.Options{Memory: m})
	_, err := c.Call(t.Context(), "pay", nil)
	e := wants(t, err, client.ErrUnknown)
	began := time.Now()
	for i := 0; time.Since(began) < 4*time.Second; i++ {
		h, err := c.Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		_, _ = h.Wait(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _, _ = c.Attach(t.Context(), e.ID) })
		}
		sent := len(f.got("tools/call"))
		again, err := h.Again(t.Context())
		all.Wait()
		if err != nil {
			continue
		}
		_, _ = again.Wait(t.Context())
		s, err := m.Status(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !s.State.Final() {
			time.Sleep(2 * time.Second)
			s, _ = m.Status(t.Context(), e.ID)
			_, err := c.Attach(t.Context(), e.ID)
			t.Fatalf("turn %d: Again has returned a handle that has ended; %d sent; on disk it is %s, driver %q; Attach: %v", i, len(f.got("tools/call"))-sent, s.State, s.Driver, err)
		}
	}
}

// Cancel with a server of 2025 over HTTP: the server is not told
// (notifications/cancelled), which does not take a broken connection for it.
func TestAServerOfTheOldEraIsToldOfACancel(t *testing.T) {
	began := make(chan struct{}, 1)
	f := fakeServer(t, map[string]saying{
		"server/discover": refusal(-32601, "no such method", ""),
		"initialize":      result(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"o","version":"1"}}`),
		"tools/call":      func(w http.ResponseWriter, r request) { began <- struct{}{}; silence(w, r) },
	})
	h, err := f.client(client.Options{}).Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	_ = h.Cancel(t.Context())
	_, err = h.Wait(t.Context())
	time.Sleep(500 * time.Millisecond)
	if len(f.got("notifications/cancelled")) == 0 {
		t.Errorf("the server was not told: %v", err)
	}
}

// Headers refused, and tools/list without end: a cancel is not seen.
func TestAListOfToolsWithoutEndIsGivenUp(t *testing.T) {
	f := fakeServer(t, map[string]saying{
		"tools/call": refusal(-32020, "header mismatch", ""),
		"tools/list": result(`{"resultType":"complete","tools":[],"nextCursor":"again","ttlMs":0,"cacheScope":"private"}`),
	})
	h, err := f.client(client.Options{}).Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	_ = h.Cancel(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err = h.Wait(ctx)
	if n := len(f.got("tools/list")); n > 100 || errors.Is(err, client.ErrDetached) {
		t.Errorf("tools/list was sent %d times; 4 s after the cancel: %v", n, err)
	}
	h.Detach()
}
