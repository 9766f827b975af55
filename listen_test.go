package tallystick_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

const listenParams = `{"notifications":{"toolsListChanged":true,"taskIds":["a","b"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capsTasks + `}}`

type notice struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// A listen that names tasks is acknowledged without them, so that its client
// goes on polling; the other filters are served.
func TestAListenIsAcknowledgedWithoutTasks(t *testing.T) {
	for way, listen := range map[string]func(*testing.T, *desk) <-chan notice{"http": listenOverHTTP, "memory": listenOverMemory} {
		t.Run(way, func(t *testing.T) {
			d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "job", tallystick.TaskOptional) }})
			notices := listen(t, d)
			next := func() notice {
				select {
				case n := <-notices:
					return n
				case <-time.After(10 * time.Second):
					t.Fatal("nothing came")
				}
				return notice{}
			}
			ack := next()
			if ack.Method != "notifications/subscriptions/acknowledged" || strings.Contains(string(ack.Params), "taskIds") || !strings.Contains(string(ack.Params), "toolsListChanged") {
				t.Fatalf("first: %s %s", ack.Method, ack.Params)
			}
			d.sdk.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
			if n := next(); n.Method != "notifications/tools/list_changed" || !strings.Contains(string(n.Params), "subscriptionId") {
				t.Errorf("then: %s %s", n.Method, n.Params)
			}
		})
	}
}

func listenOverHTTP(t *testing.T, d *desk) <-chan notice {
	ctx, cancel := context.WithCancel(context.Background())
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":` + listenParams + `}`
	req, _ := http.NewRequestWithContext(ctx, "POST", d.url, strings.NewReader(body))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer ann/acme",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	notices, done := make(chan notice, 8), make(chan struct{})
	go func() {
		defer close(done)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			var n notice
			if data, ok := strings.CutPrefix(sc.Text(), "data:"); ok && json.Unmarshal([]byte(data), &n) == nil {
				notices <- n
			}
		}
	}()
	t.Cleanup(func() { cancel(); resp.Body.Close(); <-done })
	return notices
}

func listenOverMemory(t *testing.T, d *desk) <-chan notice {
	ctx := context.Background()
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := d.sdk.Connect(ctx, d.srv.Transport(theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ours.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := jsonrpc.MakeID(1.0)
	if err := conn.Write(ctx, &jsonrpc.Request{ID: id, Method: "subscriptions/listen", Params: json.RawMessage(listenParams)}); err != nil {
		t.Fatal(err)
	}
	notices, done := make(chan notice, 8), make(chan struct{})
	go func() {
		defer close(done)
		for {
			msg, err := conn.Read(ctx)
			if err != nil {
				return
			}
			if r, ok := msg.(*jsonrpc.Request); ok {
				notices <- notice{r.Method, r.Params}
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); ss.Close(); <-done })
	return notices
}
