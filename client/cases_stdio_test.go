package client_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// case S104, S105: long lines are read, and longer ones than the limit end
// their call with an error that says so; the next connection works.
func TestLongLinesAreReadUpToTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		ok   bool
	}{"64 KiB and one": {64<<10 + 1, true}, "1 MiB": {1 << 20, true}, "20 MiB": {20 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			l, transport := lineServer(t, func(l *line, r request) {
				n := 1
				if r.param("arguments", "long") == "true" {
					n = c.size
				}
				l.result(r, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, strings.Repeat("x", n)))
			})
			cl := newClient(t, client.Options{Transport: transport})
			r, err := cl.Call(t.Context(), "read", map[string]bool{"long": true})
			if c.ok {
				if err != nil || len(r.Content[0].(*mcp.TextContent).Text) != c.size {
					t.Fatalf("%v", err)
				}
				return
			}
			wants(t, err, client.ErrUnknown, "exceeded")
			if _, err := cl.Call(t.Context(), "read", nil); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if n := len(l.got("tools/call")); n != 2 {
				t.Errorf("%d calls arrived", n)
			}
		})
	}
}

// case S108: over one pair of pipes, in whatever order the answers come.
func TestManyCallsShareOneConnection(t *testing.T) {
	const calls = 50
	var mu sync.Mutex
	var waiting []request
	_, transport := lineServer(t, func(l *line, r request) {
		mu.Lock()
		waiting = append(waiting, r)
		all := waiting
		mu.Unlock()
		if len(all) == calls {
			for i := range all {
				r := all[len(all)-1-i]
				l.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ts-9999","progress":1}}`) // of nobody
				l.result(r, `{"content":[],"structuredContent":`+r.param("arguments", "n")+`}`)
				l.result(r, `{"content":[],"structuredContent":-1}`) // and once more
			}
		}
	})
	c := newClient(t, client.Options{Transport: transport})
	var all sync.WaitGroup
	for n := range calls {
		all.Go(func() {
			r, err := c.Call(t.Context(), "read", map[string]int{"n": n})
			if err != nil {
				t.Error(err)
			} else if got := structured(t, r); got != fmt.Sprint(n) {
				t.Errorf("call %d got %s", n, got)
			}
		})
	}
	all.Wait()
}

// case S107, S25: the end of a client ends its connection, and every call under
// way, which stays on disk.
func TestClosingLetsGoOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived atomic.Int32
		l, transport := lineServer(t, func(l *line, r request) {
			arrived.Add(1)
			switch r.param("name") {
			case `"asks"`:
				l.result(r, `{"resultType":"input_required","inputRequests":`+form("k")+`}`)
			case `"task"`:
				l.result(r, taskJSON("task", "working", ""))
			case `"pauses"`:
				l.result(r, `{"resultType":"input_required","requestState":"s"}`)
			}
		})
		m := openMemory(t, memoryPath(t))
		c, err := client.New(client.Options{Memory: m, Server: "lines", Transport: transport, Answerer: &person{answer: silent}})
		if err != nil {
			t.Fatal(err)
		}
		handles := map[string]*client.Handle{}
		for _, tool := range []string{"asks", "task", "pauses", "hangs"} {
			if handles[tool], err = c.Start(t.Context(), tool, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
		for tool, h := range handles {
			_, err := h.Wait(t.Context())
			if tool == "hangs" {
				continue // by chance unknown, or found so by who goes on with it
			}
			wants(t, err, client.ErrDetached)
			if s, err := m.Status(t.Context(), h.ID()); err != nil || s.State.Final() || s.Driver != "" {
				t.Errorf("%s: %+v, %v", tool, s, err)
			}
		}
		n := arrived.Load()
		time.Sleep(time.Hour)
		if arrived.Load() != n || len(l.got("tasks/cancel")) != 0 {
			t.Errorf("%d requests came after the end", arrived.Load()-n)
		}
		if _, err := c.Attach(t.Context(), handles["asks"].ID()); err == nil {
			t.Error("a closed client attaches")
		}
	})
}

// case S107: over stdio a request that is broken off is taken back.
func TestARequestThatIsBrokenOffIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, transport := lineServer(t, func(*line, request) {})
		c := newClient(t, client.Options{Transport: transport})
		h, err := c.Start(t.Context(), "hangs", nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := h.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wants(t, err, client.ErrUnknown)
		synctest.Wait()
		var id json.RawMessage
		for _, r := range l.got("tools/call") {
			id = r.ID
		}
		if all := l.got("notifications/cancelled"); len(all) != 1 || all[0].param("requestId") != string(id) {
			t.Errorf("taken back: %v, of %s", all, id)
		}
	})
}
