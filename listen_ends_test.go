package tallystick_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
)

// waitingJob makes a task that asks, and returns its id once it does.
func (c caller) waitingJob() string {
	c.d.t.Helper()
	id := c.call("job", nil).result["taskId"].(string)
	c.await(id, status("input_required"))
	return id
}

// emptyTool adds a tool to the SDK server, so that it tells of it.
func (d *desk) emptyTool(name string) {
	d.sdk.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
}

// While many tasks are being told, the token expires: nothing more is told.
func TestAListenEndsWithItsTokenAmidManyTasks(t *testing.T) {
	const tasks = 10
	var until, asked atomic.Int64 // until: 0 before the listen
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{
		Authorize: func(_ context.Context, a tallystick.Access) error {
			at := until.Load()
			// Once for each task to acknowledge it, and once to tell it.
			if a.Verb == tallystick.Watch && at != 0 && asked.Add(1) == tasks+3 {
				time.Sleep(time.Until(time.Unix(0, at)) + 10*time.Millisecond)
			}
			return nil
		},
	}})
	ann := d.as("ann/acme", capsTasks)
	var ids []string
	for range tasks {
		ids = append(ids, ann.waitingJob())
	}
	expiry := time.Now().Add(700 * time.Millisecond)
	until.Store(expiry.UnixNano())
	e := d.as("ann/acme///"+expiry.Format(time.RFC3339Nano), capsTasks).listen(taskIDs(ids...))
	e.next()
	for range 3 {
		e.until("input_required")
	}
	e.goodbye("token has expired")
	e.closed()
	if n := asked.Load(); n != tasks+3 {
		t.Errorf("asked for permission %d times after the token had expired", n-tasks-3)
	}
}

// What the SDK tells of goes to whoever listened, too, and to nobody else.
func TestWhatTheSDKTellsIsForTheSameIdentity(t *testing.T) {
	for name, now := range map[string]func() (tallystick.Identity, error){
		"revoked":       func() (tallystick.Identity, error) { return tallystick.Identity{}, errors.New("revoked") },
		"somebody else": func() (tallystick.Identity, error) { return tallystick.Identity{Tenant: "acme", Subject: "bob"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var changed atomic.Bool
			w := newOverseen(t, setup{tools: jobs("job"), opts: tallystick.Options{
				Identify: func(context.Context, *mcp.RequestExtra) (tallystick.Identity, error) {
					if changed.Load() {
						return now()
					}
					return tallystick.Identity{Tenant: "acme", Subject: "ann"}, nil
				},
			}})
			e := w.as("ann/acme", capsTasks).listen(map[string]any{"toolsListChanged": true})
			e.next()
			w.emptyTool("one")
			if m := e.next(); m.Method != "notifications/tools/list_changed" {
				t.Fatalf("told: %+v", m)
			}
			changed.Store(true)
			w.emptyTool("another")
			e.goodbye("may no longer be watched")
			e.closed()
			w.withoutErrors()
		})
	}
}

// withoutErrors checks that nothing is put down as a failure of the server.
func (w *overseen) withoutErrors() {
	w.t.Helper()
	for line := range strings.Lines(w.logged()) {
		if strings.Contains(line, "level=ERROR") {
			w.t.Error(line)
		}
	}
}

// Nobody knows any more who listens: that is the end of it, and no failure.
func TestARevokedIdentityEndsAListenOfTasks(t *testing.T) {
	var revoked atomic.Bool
	w := newOverseen(t, setup{tools: jobs("job"), opts: tallystick.Options{
		Identify: func(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
			if revoked.Load() && extra.Header.Get("Mcp-Method") == "subscriptions/listen" {
				return tallystick.Identity{}, errors.New("revoked")
			}
			return tallystick.Identity{Tenant: "acme", Subject: "ann"}, nil
		},
	}})
	ann := w.as("ann/acme", capsTasks)
	id := ann.waitingJob()
	e := ann.listen(taskIDs(id))
	e.next()
	e.until("input_required")
	revoked.Store(true)
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
	e.goodbye("may no longer be watched")
	e.closed()
	ann.await(id, status("completed"))
	w.withoutErrors()
}

// Of a task that is purged nothing will ever be told.
func TestAListenEndsWithTheLastOfItsTasks(t *testing.T) {
	c := &clock{}
	d := newDesk(t, setup{clock: c, tools: jobs("job"), opts: tallystick.Options{Limits: tallystick.Limits{Retention: time.Hour, Deadline: 240 * time.Hour, Question: 240 * time.Hour}}})
	ann := d.as("ann/acme", capsTasks)
	first, second := ann.waitingJob(), ann.waitingJob()
	e, both := ann.listen(taskIDs(first)), ann.listen(taskIDs(first, second))
	for _, e := range []*ear{e, both} {
		e.next()
		e.until("input_required")
	}
	both.until("input_required")
	ann.send("tasks/update", first, map[string]any{"inputResponses": map[string]any{"go": yes}})
	e.until("completed")
	both.until("completed")
	c.Advance(2 * time.Hour)
	ann.call("job", nil) // so that somebody looks at the clock
	e.goodbye("nothing to listen for")
	e.closed()
	ann.send("tasks/update", second, map[string]any{"inputResponses": map[string]any{"go": yes}})
	both.until("completed")
}

// The SDK pings those who are connected, to find out who is gone. A listen is no
// session, and a client of this revision knows no ping.
func TestListensSurviveKeepAlive(t *testing.T) {
	const keepAlive = 50 * time.Millisecond
	newKept := func(t *testing.T) *desk {
		sdk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ServerOptions{KeepAlive: keepAlive})
		return newDesk(t, setup{sdk: sdk, tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
	}
	ticks := time.NewTicker(keepAlive)
	defer ticks.Stop()
	t.Run("http", func(t *testing.T) {
		d := newKept(t)
		ann := d.as("ann/acme", capsTasks)
		id := ann.waitingJob()
		e := ann.listen(map[string]any{"taskIds": []string{id}, "toolsListChanged": true})
		e.next()
		e.until("input_required")
		for n := range 8 {
			<-ticks.C
			d.emptyTool(fmt.Sprint("tool", n))
			if m := e.next(); m.Method != "notifications/tools/list_changed" {
				t.Fatalf("after %d times KeepAlive: %+v", n+1, m)
			}
		}
		ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"go": yes}})
		e.until("completed")
	})
	t.Run("memory", func(t *testing.T) {
		d := newKept(t)
		l := d.line()
		e := l.hear()
		meta := listenParams(capsTasks, nil)["_meta"]
		l.send(1, "tools/call", map[string]any{"name": "job", "_meta": meta})
		id := e.next().Result["taskId"].(string)
		l.send(2, "subscriptions/listen", listenParams(capsTasks, taskIDs(id)))
		e.next()
		e.until("input_required")
		for n := range 8 {
			<-ticks.C
			l.send(10+n, "tasks/get", map[string]any{"taskId": id, "_meta": meta})
			if m := e.next(); m.Result["status"] != "input_required" {
				t.Fatalf("after %d times KeepAlive: %+v", n+1, m)
			}
		}
		l.send(3, "tasks/cancel", map[string]any{"taskId": id, "_meta": meta})
		for m := e.next(); m.status() != "cancelled"; m = e.next() {
			if m.Method != "" && m.Method != "notifications/tasks" {
				t.Fatalf("at last: %+v", m)
			}
		}
	})
	t.Run("a session of the 2025 era", func(t *testing.T) {
		l := newKept(t).line()
		e := l.hear()
		l.send(1, "initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "c", "version": "1"}})
		e.next()
		l.send(nil, "notifications/initialized", map[string]any{})
		if m := e.next(); m.Method != "ping" {
			t.Errorf("it is sent %+v", m)
		}
	})
}

// A server that closes a connection says goodbye to who listens over it.
func TestListensEndBeforeTheirConnectionIsClosed(t *testing.T) {
	for way, connect := range map[string]func(*desk) *line{"memory": (*desk).line, "stdio": (*desk).pipe} {
		t.Run(way, func(t *testing.T) {
			d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
			l := connect(d)
			e := l.hear()
			l.send(1, "tools/call", map[string]any{"name": "job", "_meta": listenParams(capsTasks, nil)["_meta"]})
			id := e.next().Result["taskId"].(string)
			l.send(2, "subscriptions/listen", listenParams(capsTasks, taskIDs(id)))
			e.next()
			e.until("input_required")
			if err := l.ss.Close(); err != nil {
				t.Error(err)
			}
			e.goodbye("shutting down")
			e.closed()
		})
	}
}

// pipe is a line over stdio.
func (d *desk) pipe() *line {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	return d.lineOver(&mcp.IOTransport{Reader: toClient, Writer: fromClient}, wire.Stdio(toServer, fromServer, wire.Limits{}))
}

// lineOver is a line over these two ends.
func (d *desk) lineOver(client, server mcp.Transport) *line {
	d.t.Helper()
	ctx := context.Background()
	ss, err := d.sdk.Connect(ctx, d.srv.Transport(server), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	conn, err := client.Connect(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close(); ss.Close() })
	return &line{t: d.t, conn: conn, ss: ss, sent: map[any]*jsonrpc.Request{}}
}

// farewells counts those that have been written to a connection.
type farewells struct {
	mcp.Transport
	mcp.Connection
	n atomic.Int32
}

func (f *farewells) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	f.Connection, err = f.Transport.Connect(ctx)
	return f, err
}

func (f *farewells) Write(ctx context.Context, m jsonrpc.Message) error {
	err := f.Connection.Write(ctx, m)
	if req, ok := m.(*jsonrpc.Request); ok && req.Method == "notifications/cancelled" && err == nil {
		f.n.Add(1)
	}
	return err
}

// Who stops the server may close the connections at once.
func TestAllFarewellsAreOutWhenAServerHasStopped(t *testing.T) {
	const listens = 50
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
	ours, theirs := mcp.NewInMemoryTransports()
	out := &farewells{Transport: theirs}
	l := d.lineOver(ours, out)
	e := l.hear()
	l.send(1, "tools/call", map[string]any{"name": "job", "_meta": listenParams(capsTasks, nil)["_meta"]})
	id := e.next().Result["taskId"].(string)
	for i := range listens {
		l.send(10+i, "subscriptions/listen", listenParams(capsTasks, taskIDs(id)))
	}
	for n := 0; n < listens; {
		if e.next().status() == "input_required" {
			n++
		}
	}
	d.stop()
	if n := out.n.Load(); n != listens {
		t.Errorf("%d of %d", n, listens)
	}
}

// A client that does not read can be told nothing, not even that it is over.
func TestAListenerThatDoesNotReadHoldsUpNoShutdown(t *testing.T) {
	const drain = 12 * time.Second
	big := strings.Repeat("x", 2<<20)
	var told atomic.Int32
	d := newDesk(t, setup{
		opts: tallystick.Options{
			Limits: tallystick.Limits{Drain: drain},
			Authorize: func(_ context.Context, a tallystick.Access) error {
				if a.Verb == tallystick.Watch {
					told.Add(1)
				}
				return nil
			},
		},
		tools: func(d *desk) {
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "big"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
				func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
					return said(big), nil, nil
				})
		},
	})
	ann := d.as("ann/acme", capsTasks)
	var ids []string
	for range 4 { // more than the two kernels keep
		ids = append(ids, ann.call("big", nil).result["taskId"].(string))
	}
	for _, id := range ids {
		waitFor(t, func() bool {
			c, err := d.store.Load(context.Background(), id)
			return err == nil && c.State == record.Ended
		})
	}
	told.Store(0)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listenParams(capsTasks, taskIDs(ids...))})
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(d.url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	var req bytes.Buffer
	fmt.Fprintf(&req, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", addr, len(body))
	for name, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer ann/acme",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		fmt.Fprintf(&req, "%s: %s\r\n", name, v)
	}
	fmt.Fprintf(&req, "\r\n%s", body)
	if _, err := conn.Write(req.Bytes()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return int(told.Load()) > len(ids) })
	for n := int32(0); n != told.Load(); { // until it cannot be told more
		n = told.Load()
		time.Sleep(150 * time.Millisecond)
	}
	if int(told.Load()) == 2*len(ids) {
		t.Fatal("it was told everything without reading")
	}
	start := time.Now()
	d.stop()
	if took := time.Since(start); took > drain/3 {
		t.Errorf("stopped after %v", took)
	}
}
