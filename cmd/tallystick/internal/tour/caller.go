package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
)

const protocol = "2026-07-28"

// A caller is one person's way to the desk: package client for calls that are
// driven to their end, single requests for what it would never send (the same
// request again, a state that is somebody else's).
type caller struct {
	who    desk.Person
	url    string
	http   *http.Client
	p      *printer
	memory *client.Memory
	driver *client.Client
	ids    atomic.Int64

	// mute keeps requests that tell nothing new from being printed.
	mute atomic.Bool

	mu     sync.Mutex // guards what follows
	bodys  [][]byte   // of the tools/call requests sent, in order
	answer func(ctx context.Context, message string) string
}

// newCaller remembers its calls in folder.
func newCaller(ctx context.Context, who desk.Person, url, folder string, p *printer) (*caller, error) {
	c := &caller{who: who, url: url, p: p}
	c.http = &http.Client{Transport: &tap{c: c, next: &http.Transport{}}}
	var err error
	if c.memory, err = client.OpenMemory(ctx, client.MemoryOptions{Path: filepath.Join(folder, who.Name, "calls.db")}); err != nil {
		return nil, err
	}
	c.driver, err = client.New(client.Options{
		Memory: c.memory, Server: "desk", Answerer: c, Info: &mcp.Implementation{Name: "tallystick-demo", Version: "1"},
		Transport: func() (mcp.Transport, error) {
			return &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: c.http, MaxRetries: -1}, nil
		},
	})
	if err != nil {
		return nil, errors.Join(err, c.memory.Close())
	}
	return c, nil
}

// close ends everything.
func (c *caller) close() error {
	err := errors.Join(c.driver.Close(), c.memory.Close())
	c.hangUp()
	return err
}

// hangUp ends connections, when the server is killed.
func (c *caller) hangUp() { c.http.CloseIdleConnections() }

// Kinds and Answer make the caller its own client's Answerer.
func (*caller) Kinds() []client.Kind { return []client.Kind{client.Form} }

func (c *caller) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	c.mu.Lock()
	answer := c.answer
	c.mu.Unlock()
	if answer == nil {
		return client.Answer{}, client.ErrNoAnswer
	}
	a := client.Answer{Action: answer(ctx, q.Message)}
	if a.Action == accept {
		a.Content = json.RawMessage(`{"confirm":true}`)
	}
	return a, nil
}

// A tap is the wire under both kinds of requests: it adds the token, and shows
// each exchange that the tour is about.
type tap struct {
	c    *caller
	next *http.Transport
}

func (t *tap) CloseIdleConnections() { t.next.CloseIdleConnections() }

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.c.who.Token)
	method := r.Header.Get("Mcp-Method")
	if method != "tools/call" && method != "tasks/cancel" || r.Body == nil {
		return t.next.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(sent))
	if !t.c.mute.Load() {
		t.c.p.sent(t.c.who.Name, described(sent))
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got))
	answer, err := readReply(resp.Header.Get("Content-Type"), got)
	if err != nil {
		return nil, err
	}
	if !t.c.mute.Load() {
		t.c.p.received(answer.String())
	}
	if method == "tools/call" {
		t.c.mu.Lock()
		t.c.bodys = append(t.c.bodys, sent)
		t.c.mu.Unlock()
	}
	return resp, nil
}

// lastCall returns the last tools/call as it was sent.
func (c *caller) lastCall() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bodys[len(c.bodys)-1]
}

// call calls a tool, has answer answer what the server asks, and returns the
// end of it.
func (c *caller) call(ctx context.Context, tool string, args any, answer func(ctx context.Context, message string) string) (reply, error) {
	c.mu.Lock()
	c.answer = answer
	c.mu.Unlock()
	h, err := c.driver.Start(ctx, tool, args)
	if err != nil {
		return reply{}, err
	}
	r, err := h.Wait(ctx)
	if err != nil {
		return reply{}, fmt.Errorf("calling %s: %w", tool, err)
	}
	return replyOf(r.Raw)
}

// params of a single request.
type params map[string]any

// send sends a single request of the modern era, as the specification has it.
func (c *caller) send(ctx context.Context, method, name string, p params) (reply, error) {
	p["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion": protocol,
		"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "tallystick-demo", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"elicitation": map[string]any{},
			"extensions":  map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}},
		},
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.ids.Add(1), "method": method, "params": p})
	if err != nil {
		return reply{}, err
	}
	return c.post(ctx, method, name, body)
}

// post sends a body as it is.
func (c *caller) post(ctx context.Context, method, name string, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", protocol)
	req.Header.Set("Mcp-Method", method)
	req.Header.Set("Mcp-Name", name)
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	return readReply(resp.Header.Get("Content-Type"), raw)
}

// tool sends one tools/call; state and answers make it a retry.
func (c *caller) tool(ctx context.Context, name string, args any, state string, answers map[string]string) (reply, error) {
	p := params{"name": name, "arguments": args}
	if state != "" {
		p["requestState"] = state
	}
	if len(answers) > 0 {
		responses := map[string]any{}
		for key, action := range answers {
			r := map[string]any{"action": action}
			if action == accept {
				r["content"] = map[string]any{"confirm": true}
			}
			responses[key] = r
		}
		p["inputResponses"] = responses
	}
	return c.send(ctx, "tools/call", name, p)
}

// desk asks the desk's own endpoints, beside MCP. A status but 200 is told by
// its number, not by err.
func (c *caller) desk(ctx context.Context, method, path string, in, out any) (int, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(out)
}
