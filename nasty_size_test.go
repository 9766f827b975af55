package tallystick_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// A body of a GB in chunks is refused at the limit: neither read nor held beyond.
func TestAGigabyteOfChunksIsRefusedAtTheLimit(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "echo", tallystick.TaskForbidden) }})
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: */*\r\nTransfer-Encoding: chunked\r\n\r\n")
	sent := make(chan int)
	go func() {
		chunk := []byte("10000\r\n" + strings.Repeat(" ", 64<<10) + "\r\n")
		n := 0
		for n < 1<<30 {
			if _, err := conn.Write(chunk); err != nil {
				break
			}
			n += 64 << 10
		}
		sent <- n
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer), "Limits.BodyBytes") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	n := <-sent // the connection was closed
	runtime.ReadMemStats(&after)
	t.Logf("%d KiB were taken of the GB, for which %d KiB were allocated", n>>10, (after.TotalAlloc-before.TotalAlloc)>>10)
	if n > 64<<20 || after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("%d bytes were taken, %d allocated", n, after.TotalAlloc-before.TotalAlloc)
	}
}

// A result of 11 MiB is one error by default, and whole where the limit is
// higher: over HTTP at once, and over stdio as a task's.
func TestAResultOf11MiBIsOneErrorOrWhole(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 11<<16)
	for _, limit := range []int{0, 16 << 20} {
		d := newDesk(t, setup{opts: tallystick.Options{AnonymousEffects: true, Limits: tallystick.Limits{ResultBytes: limit}}, tools: func(d *desk) {
			for name, use := range map[string]tallystick.TaskUse{"inline": tallystick.TaskForbidden, "task": tallystick.TaskRequired} {
				d.tool(name, &tallystick.ToolOptions{Task: use}, func(context.Context, *tallystick.Call) (string, error) { return long, nil })
			}
		}})
		// Not judged: that would take most of the time.
		web := httptest.NewServer(d.srv.Handler(nil))
		defer web.Close()
		whole := func(what, got string) {
			t.Helper()
			switch {
			case limit > 0 && (!strings.Contains(got, long) || strings.Contains(got, `"isError"`)):
				t.Errorf("%s: %d bytes: %.300s", what, len(got), got)
			case limit == 0 && (!strings.Contains(got, `"isError":true`) || !strings.Contains(got, "ResultBytes (4194304)") || len(got) > 1000):
				t.Errorf("%s: %d bytes: %.300s", what, len(got), got)
			}
		}
		pipe := sendStdio(t, d)
		whole("inline over HTTP", sendAs(web.URL, "tools/call", "inline")(t, toolCall("inline", "{}", "")))
		var created struct{ Result struct{ TaskID string } }
		if err := json.Unmarshal([]byte(pipe(t, toolCall("task", "{}", ""))), &created); err != nil {
			t.Fatal(err)
		}
		get := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"taskId":%q,%s}}`, created.Result.TaskID, metaOfNasty)
		got := pipe(t, get)
		for ; strings.Contains(got, `"working"`); got = pipe(t, get) {
			time.Sleep(50 * time.Millisecond)
		}
		whole("of a task over stdio", got)
	}
}

// Lines work up to the limit, and a longer one costs one error with nothing of
// it run: 64 KiB, the limit of many readers, is none here.
func TestLinesOf64KiBAndMore(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Limits: tallystick.Limits{BodyBytes: 1 << 20}}, tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "length"}, nil, func(_ context.Context, _ *tallystick.Call, in struct {
			Text string `json:"text"`
		}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(len(in.Text), " bytes")}}}, nil, nil
		})
	}})
	send := sendStdio(t, d)
	around := len(toolCall("length", `{"text":""}`, ""))
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1000} {
		text := strings.Repeat("x", size-around)
		if got := send(t, toolCall("length", `{"text":"`+text+`"}`, "")); !strings.Contains(got, fmt.Sprint(len(text), " bytes")) {
			t.Errorf("a line of %d bytes: %.300s", size, got)
		}
	}
	text := strings.Repeat("x", 2<<20)
	if got := send(t, toolCall("length", `{"text":"`+text+`"}`, "")); !strings.Contains(got, "ArgumentsBytes") {
		t.Errorf("over the limit: %.300s", got)
	}
	if got := send(t, toolCall("length", `{"text":"1"}`, "")); !strings.Contains(got, "1 bytes") {
		t.Errorf("afterwards: %.300s", got)
	}
}

// Clients that send a byte now and then, of headers or of a body, hold nobody up.
func TestDribblingClientsHoldNobodyUp(t *testing.T) {
	sh := &shop{total: "1 EUR"}
	d := newDesk(t, setup{opts: tallystick.Options{Workers: 1}, tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	ended := make(chan struct{})
	for i := range 60 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 { // a body that is never there
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer ann/acme\r\nContent-Length: 100000\r\n\r\n")
		} else {
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
		}
		go func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = conn.Write([]byte(" "))
				case <-ended:
					return
				}
			}
		}()
	}
	defer close(ended)
	ann := d.as("ann/acme", capsForm)
	for i := range 20 {
		order := map[string]any{"orderId": fmt.Sprint(i)}
		state := ann.call("refund", order).state()
		if r := ann.retry("refund", order, state, map[string]any{"approve": yes}); r.isError() || r.typ() != "complete" {
			t.Fatal(r.raw)
		}
	}
	if n := sh.refunds.Load(); n != 20 {
		t.Errorf("%d refunds", n)
	}
}
