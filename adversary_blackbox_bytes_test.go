package tallystick_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/internal/wire"
)

// A forger makes requests that are almost right.
type forger struct {
	*rand.Rand
	state, task string
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

const metaOfForger = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// right is a right request, and its method and name.
func (f forger) right() (body, method, name string) {
	type kind struct{ method, name, params string }
	k := pick(f.Rand, []kind{
		{"tools/call", "pay", `"name":"pay","arguments":{"orderId":"o1"}`},
		{"tools/call", "look", `"name":"look","arguments":{"orderId":"o1"}`},
		{"tools/call", "export", `"name":"export","arguments":{"orderId":"o1"}`},
		{"tools/call", "pay", `"name":"pay","arguments":{"orderId":"o1"},"requestState":"` + f.state + `","inputResponses":{"approve":{"action":"accept","content":{"confirm":true}}}`},
		{"tasks/get", f.task, `"taskId":"` + f.task + `"`},
		{"tasks/update", f.task, `"taskId":"` + f.task + `","inputResponses":{"approve":{"action":"accept","content":{"confirm":1}}}`},
		{"prompts/get", "letter", `"name":"letter"`},
		{"resources/read", "order://1", `"uri":"order://1"`},
		{"tools/list", "", `"cursor":""`},
		{"server/discover", "", `"x":1`},
		{"call_status", "", `"x":1`},
		{"initialize", "", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}`},
		{"notifications/cancelled", "", `"requestId":1`},
	})
	meta := "," + metaOfForger
	if k.method == "initialize" && f.IntN(2) == 0 {
		meta = ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, f.IntN(1<<30), k.method, k.params, meta), k.method, k.name
}

// bend breaks a body in one of many ways.
func (f forger) bend(body string) []byte {
	b := []byte(body)
	at := f.IntN(len(b))
	put := func(s string) []byte { return []byte(body[:at] + s + body[at:]) }
	member := func(s string) []byte { // somewhere where a member may stand
		for n := 0; n < len(b) && b[at] != '{'; n++ {
			at = (at + 1) % len(b)
		}
		at++
		return put(s + ",")
	}
	switch f.IntN(16) {
	case 0, 1:
		b[at] ^= 1 << f.IntN(8)
	case 2:
		return b[:at]
	case 3:
		return member(`"method":"tools/call"`)
	case 4:
		return member(`"name":"refund"`)
	case 5:
		return member(`"orderId":` + strings.Repeat("9", 1+f.IntN(5000)))
	case 6:
		n := 1 + f.IntN(100_000)
		return member(`"x":` + strings.Repeat("[", n) + strings.Repeat("]", n))
	case 7:
		return put(string([]byte{0xff, 0xc0, 0x80, 0xed, 0xa0, 0x80}[:1+f.IntN(6)]))
	case 8:
		return put(pick(f.Rand, []string{`\ud800`, "\x00", `\u0000`, "\r\n", `"`, `\`, "}", "]", "{", "1e999999999", "-0", "nul"}))
	case 9:
		return member(`"requestState":` + pick(f.Rand, []string{"7", "null", `""`, `{}`, `"` + strings.Repeat("A", f.IntN(40_000)) + `"`, `"ts1.` + strings.Repeat("A", f.IntN(400)) + `"`}))
	case 10:
		return member(`"inputResponses":` + pick(f.Rand, []string{"7", "null", `[]`, `{"a":null}`, `{"approve":{"action":"accept","content":{"confirm":{"a":[]}}}}`, `{"approve":{"action":"accept","content":null}}`}))
	case 11:
		return []byte(strings.Replace(body, `"id":`, `"id":`+pick(f.Rand, []string{"null,\"x\":", "{},\"x\":", "1.5e300,\"x\":", "\"\u2028\",\"x\":", "[1],\"x\":", "99999999999999999999,\"x\":"}), 1))
	case 12:
		return []byte("[" + body + strings.Repeat(","+body, f.IntN(3)) + "]")
	case 13:
		return []byte(strings.Replace(body, "2026-07-28", pick(f.Rand, []string{"2025-11-25", "", "9999-99-99", "2026-07-28\u200b"}), 1))
	case 14:
		return bytes.Repeat([]byte(pick(f.Rand, []string{" ", "[", `{"a":`, "\"", "1"})), 1+f.IntN(300_000))
	case 15:
		return []byte(strings.ReplaceAll(body, pick(f.Rand, []string{`"name"`, `"taskId"`, `"_meta"`, `"params"`, `"method"`, `"arguments"`}), pick(f.Rand, []string{`"Name"`, `"x"`, `"ta\u017fkId"`, `"params"`, `""`})))
	}
	return b
}

// headers sets headers that mostly fit.
func (f forger) headers(h http.Header, method, name string) {
	f.headersOf(h, method, name)
	if f.IntN(3) > 0 {
		return
	}
	key := pick(f.Rand, []string{"Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Authorization", "Mcp-Session-Id", "Last-Event-Id", "Origin", "Mcp-Param-OrderId", "Content-Encoding", "Host", "Transfer-Encoding"})
	value := pick(f.Rand, []string{"", "x", "text/plain", "application/json; charset=utf-16", "2025-11-25", "=?base64?AAAA?=", "=?base64?" + strings.Repeat("A", 5000) + "?=", strings.Repeat("y", f.IntN(30_000)), "http://evil.example", "Bearer x", "gzip", "é", "\xff"})
	if f.IntN(2) == 0 {
		h.Add(key, value)
	} else {
		h.Set(key, value)
	}
}

func (forger) headersOf(h http.Header, method, name string) {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("MCP-Protocol-Version", "2026-07-28")
	h.Set("Mcp-Method", method)
	h.Set("Mcp-Name", name)
	h.Set("Authorization", "Bearer ann/acme")
}

// A body that comes piece by piece.
type trickle struct {
	data []byte
	f    forger
}

func (s *trickle) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Duration(s.f.IntN(3)) * time.Millisecond)
	n := copy(p, s.data[:min(len(s.data), 1+s.f.IntN(1+len(s.data)/4))])
	s.data = s.data[n:]
	return n, nil
}

func bytesBazaar(t *testing.T, c *crowd, seed uint64) (*desk, forger) {
	d := c.desk
	ann := d.as("ann/acme", capsTasks)
	f := forger{rand.New(rand.NewPCG(seed, 9)), ann.call("pay", map[string]any{"orderId": "o1"}).state(), ""}
	f.task, _ = ann.call("export", map[string]any{"orderId": "o1"}).result["taskId"].(string)
	if f.task == "" || f.state == "" {
		t.Fatal("nothing to forge")
	}
	return d, f
}

// Whatever bytes come over HTTP, the answer is no 5xx, comes soon, and leaves
// the server as it was.
func TestForgedRequestsOverHTTP(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	c.Far.Mood = 0
	db, stop := openBazaar(t, c, plainStore)
	d, f := bytesBazaar(t, c, seed)
	end := time.Now().Add(bazaarTime(time.Second))
	var sent, byStatus [600]atomic.Int64
	var wg sync.WaitGroup
	for i := range uint64(6) {
		wg.Go(func() {
			f := forger{rand.New(rand.NewPCG(seed, i)), f.state, f.task}
			for time.Now().Before(end) {
				sent[0].Add(1)
				if f.IntN(20) == 0 {
					f.rawHTTP(t, d.url)
					continue
				}
				body, method, name := f.right()
				bent := f.bend(body)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				var from io.Reader = bytes.NewReader(bent)
				if f.IntN(30) == 0 && len(bent) < 10_000 {
					from = &trickle{bent, f}
				}
				req, err := http.NewRequestWithContext(ctx, pick(f.Rand, []string{"POST", "POST", "POST", "POST", "POST", "GET", "DELETE", "PUT"}), d.url, from)
				if err != nil {
					t.Error(err)
				}
				f.headers(req.Header, method, name)
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					raw, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					byStatus[resp.StatusCode].Add(1)
					if resp.StatusCode >= 500 && !bytes.Contains(raw, []byte("still being worked on")) {
						t.Errorf("%d %s to %.300q (%v)", resp.StatusCode, raw, bent, req.Header)
					}
					if err != nil && ctx.Err() != nil {
						t.Errorf("no end: %.300q (%v)", bent, req.Header)
					}
				} else if ctx.Err() != nil {
					t.Errorf("no answer to %.300q (%v)", bent, req.Header)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	tally := map[int]int64{}
	for i := range byStatus {
		if n := byStatus[i].Load(); n > 0 {
			tally[i] = n
		}
	}
	stillWell(t, d, sent[0].Load(), fmt.Sprint(tally))
	c.check(db)
	stop()
}

// rawHTTP sends what no HTTP client would.
func (f forger) rawHTTP(t *testing.T, url string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	body, method, name := f.right()
	head := pick(f.Rand, []string{
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99999\r\nMcp-Method: %s\r\nMcp-Name: %s\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nMcp-Method: %s\r\nMcp-Name: %s\r\n\r\nzz\r\n",
		"POST / HTTP/1.0\r\nMcp-Method: %s\r\nMcp-Name: %s\r\n\r\n",
		"%s %s\x00\xff\r\n\r\n",
	})
	fmt.Fprintf(conn, head, method, name)
	_, _ = conn.Write(f.bend(body))
	if f.IntN(2) == 0 {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = bufio.NewReader(conn).ReadString('\n')
	}
}

func stillWell(t *testing.T, d *desk, sent int64, tally string) {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("%d requests, %s; heap %d MiB, from the system %d MiB", sent, tally, m.HeapAlloc>>20, m.Sys>>20)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("heap %d", m.HeapAlloc)
	}
	bob := d.as("bob/acme", capsForm)
	r := bob.call("gift", map[string]any{"orderId": "last"})
	if r = bob.retry("gift", map[string]any{"orderId": "last"}, r.state(), map[string]any{"approve": yes}); r.typ() != "complete" || r.isError() {
		t.Errorf("afterwards: %s", r.raw)
	}
}

// The same over stdio, a line each: a right request among them is answered.
func TestForgedRequestsOverStdio(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	c.Far.Mood = 0
	db, stop := openBazaar(t, c, plainStore)
	d, f := bytesBazaar(t, c, seed)
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ss, err := d.sdk.Connect(context.Background(), d.srv.Transport(wire.Stdio(toServer, fromServer, wire.Limits{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	go func() {
		lines := bufio.NewReader(toClient)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				close(heard)
				return
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %.200q", line)
			}
			if strings.Contains(line, `"probe`) {
				heard <- line
			}
		}
	}()
	over := make(chan error, 1)
	go func() { over <- ss.Wait() }()
	n := int64(0)
	var last [][]byte
	for end := time.Now().Add(bazaarTime(time.Second)); time.Now().Before(end); n++ {
		body, _, _ := f.right()
		bent := bytes.ReplaceAll(f.bend(body), []byte("\n"), []byte(" "))
		if last = append(last, bent); len(last) > 6 {
			last = last[1:]
		}
		select {
		case err := <-over:
			t.Fatalf("the connection ended: %v; after %.400q", err, last)
		default:
		}
		write(t, fromClient, bent)
		if n%50 == 0 {
			id := fmt.Sprintf(`"probe%d"`, n)
			write(t, fromClient, []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"tasks/get","params":{"taskId":"none",`+metaOfForger+`}}`))
			select {
			case line, ok := <-heard:
				if !ok || !strings.Contains(line, id) || !strings.Contains(line, "-32602") {
					t.Fatalf("after %d lines: %q, %v", n, line, ok)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("no answer after %d lines; the last: %.300q", n, bent)
			}
		}
	}
	fromClient.Close()
	<-over
	toClient.Close()
	stillWell(t, d, n, "lines")
	c.check(db)
	stop()
}

func write(t *testing.T, w io.Writer, line []byte) {
	t.Helper()
	done := make(chan struct{})
	stuck := time.AfterFunc(5*time.Second, func() {
		select {
		case <-done:
		default:
			t.Errorf("nobody reads; the line: %.300q", line)
		}
	})
	defer stuck.Stop()
	if _, err := w.Write(append(bytes.Clone(line), '\n')); err != nil {
		t.Logf("%v at %.300q", err, line) // the reader has ended, and says why
	}
	close(done)
}
