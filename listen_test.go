package tallystick_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A heard message is one that came on a listen: a notification or the answer.
type heard struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
	Result map[string]any `json:"result"`
	Error  *rpcError      `json:"error"`
}

// id is the subscriptionId that the message carries.
func (h heard) id() any {
	holder := h.Params
	if h.Method == "" {
		holder = h.Result
	}
	meta, _ := holder["_meta"].(map[string]any)
	return meta["io.modelcontextprotocol/subscriptionId"]
}

func (h heard) filter() map[string]any { f, _ := h.Params["notifications"].(map[string]any); return f }
func (h heard) status() string         { s, _ := h.Params["status"].(string); return s }

// An ear is a listen as its client hears it.
type ear struct {
	t    *testing.T
	msgs chan heard
	done chan struct{} // closed when nothing more comes
	hang func()        // the client hangs up
}

func (e *ear) next() heard {
	e.t.Helper()
	select {
	case m := <-e.msgs:
		return m
	case <-time.After(20 * time.Second):
		e.t.Fatal("nothing came")
	}
	return heard{}
}

// until returns the first notification of a task in that status, and fails on
// one that is not of a task.
func (e *ear) until(status string) heard {
	e.t.Helper()
	for {
		m := e.next()
		if m.Method != "notifications/tasks" {
			e.t.Fatalf("waiting for %s: %+v", status, m)
		}
		if m.status() == status {
			return m
		}
	}
}

// closed waits for the end, and fails if something came before it.
func (e *ear) closed() {
	e.t.Helper()
	select {
	case <-e.done:
	case <-time.After(20 * time.Second):
		e.t.Fatal("the listen did not end")
	}
	select {
	case m := <-e.msgs:
		e.t.Fatalf("and then: %+v", m)
	default:
	}
}

// goodbye checks the graceful end: cancelled, then the result, then nothing.
func (e *ear) goodbye(reason string) {
	e.t.Helper()
	m := e.next()
	if m.Method != "notifications/cancelled" || !strings.Contains(m.Params["reason"].(string), reason) || m.Params["requestId"] != m.id() || m.id() == nil {
		e.t.Fatalf("wanted a farewell that says %q: %+v", reason, m)
	}
	if m = e.next(); m.Result["resultType"] != "complete" || m.id() == nil {
		e.t.Fatalf("wanted the final result: %+v", m)
	}
	if meta := m.Result["_meta"].(map[string]any); meta["io.modelcontextprotocol/serverInfo"] == nil {
		e.t.Errorf("the result does not say whose it is: %v", meta)
	}
}

// listenParams is a listen's params with that filter.
func listenParams(caps string, filter map[string]any) map[string]any {
	return map[string]any{"notifications": filter, "_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(caps),
	}}
}

// open posts a listen and returns the response, its body not read.
func (c caller) open(id any, params map[string]any) (*http.Response, context.CancelFunc) {
	c.d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params})
	if err != nil {
		c.d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", c.d.url, bytes.NewReader(body))
	if err != nil {
		c.d.t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen", "Authorization": "Bearer " + c.token,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.d.t.Fatal(err)
	}
	c.d.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return resp, cancel
}

// listen listens over HTTP.
func (c caller) listen(filter map[string]any) *ear {
	c.d.t.Helper()
	resp, cancel := c.open(c.d.ids.Add(1), listenParams(c.caps, filter))
	e := &ear{t: c.d.t, msgs: make(chan heard, 1000), done: make(chan struct{}), hang: cancel}
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		var m heard
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
			c.d.t.Fatal(err)
		}
		c.d.t.Fatalf("the listen was refused: %d %+v", resp.StatusCode, m.Error)
	}
	go func() {
		defer close(e.done)
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, 8<<20)
		for sc.Scan() {
			var m heard
			if data, ok := strings.CutPrefix(sc.Text(), "data:"); ok && json.Unmarshal([]byte(data), &m) == nil {
				e.msgs <- m
			}
		}
	}()
	c.d.t.Cleanup(func() { cancel(); <-e.done })
	return e
}

// A line is a connection in memory, by which the user of this process speaks.
type line struct {
	t    *testing.T
	conn mcp.Connection
	ss   *mcp.ServerSession

	mu   sync.Mutex
	sent map[any]*jsonrpc.Request // by id

	unjudged bool // it speaks an earlier revision, or there is too much of it
}

// judge judges a message by the request that it belongs to. A notification of
// progress says that by its token, which any request of a test may have.
func (l *line) judge(msg jsonrpc.Message, m heard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unjudged {
		return
	}
	var req *jsonrpc.Request
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		req = l.sent[msg.ID.Raw()]
	case *jsonrpc.Request:
		id := m.id()
		if n, ok := id.(float64); ok {
			id = int64(n)
		}
		if req = l.sent[id]; msg.Method == "notifications/progress" {
			return
		}
	}
	if req == nil {
		l.t.Errorf("nothing was asked for which this came: %+v", m)
		return
	}
	judgeMessage(l.t, req, msg)
}

func (d *desk) line() *line {
	ctx := context.Background()
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := d.sdk.Connect(ctx, d.srv.Transport(theirs), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	conn, err := ours.Connect(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close(); ss.Close() })
	return &line{t: d.t, conn: conn, ss: ss, sent: map[any]*jsonrpc.Request{}}
}

func (l *line) send(id any, method string, params map[string]any) {
	l.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		l.t.Fatal(err)
	}
	req := &jsonrpc.Request{Method: method, Params: raw}
	if n, ok := id.(int); ok {
		id = float64(n)
	}
	if id != nil {
		if req.ID, err = jsonrpc.MakeID(id); err != nil {
			l.t.Fatal(err)
		}
	}
	l.mu.Lock()
	if l.unjudged = l.unjudged || method == "initialize"; req.IsCall() {
		l.sent[req.ID.Raw()] = req
	}
	l.mu.Unlock()
	if err := l.conn.Write(context.Background(), req); err != nil {
		l.t.Fatal(err)
	}
}

// hear reads everything that comes, as messages of one listen and others.
func (l *line) hear() *ear {
	e := &ear{t: l.t, msgs: make(chan heard, 1000), done: make(chan struct{}), hang: func() { l.conn.Close() }}
	go func() {
		defer close(e.done)
		for {
			msg, err := l.conn.Read(context.Background())
			if err != nil {
				return
			}
			raw, err := jsonrpc.EncodeMessage(msg)
			var m heard
			if err == nil && json.Unmarshal(raw, &m) == nil {
				l.judge(msg, m)
				e.msgs <- m
			}
		}
	}()
	l.t.Cleanup(func() { l.conn.Close(); <-e.done })
	return e
}

// shown is a task as tasks/get or notifications/tasks shows it, without what
// only one of the two has.
func shown(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if k != "_meta" && k != "resultType" && k != "pollIntervalMs" {
			out[k] = v
		}
	}
	return out
}

func same(a, b map[string]any) bool { return reflect.DeepEqual(shown(a), shown(b)) }
