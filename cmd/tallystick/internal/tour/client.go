package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
)

const protocol = "2026-07-28"

// A client is one person's way to the desk: the SDK's client where that can do
// what is to be shown, single requests where it cannot (tasks/*, the same
// request again, a state that is somebody else's).
type client struct {
	who  desk.Person
	url  string
	http *http.Client
	p    *printer
	ids  atomic.Int64

	// mute keeps tasks/get that tell nothing new from being printed.
	mute atomic.Bool

	mu    sync.Mutex // guards what follows
	bodys [][]byte   // of the tools/call requests sent, in order
	last  reply      // to the last of them
}

func newClient(who desk.Person, url string, p *printer) *client {
	c := &client{who: who, url: url, p: p}
	c.http = &http.Client{Transport: &tap{c: c, next: &http.Transport{}}}
	return c
}

// close ends connections, at the end and when the server is killed.
func (c *client) close() { c.http.CloseIdleConnections() }

// A tap is the wire under both kinds of requests: it adds the token, and shows
// and keeps each exchange that the tour is about.
type tap struct {
	c    *client
	next *http.Transport
}

func (t *tap) CloseIdleConnections() { t.next.CloseIdleConnections() }

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.c.who.Token)
	method := r.Header.Get("Mcp-Method")
	if method != "tools/call" && method != "tasks/get" && method != "tasks/cancel" || r.Body == nil {
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
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if method == "tools/call" {
		t.c.bodys = append(t.c.bodys, sent)
	}
	t.c.last = answer
	return resp, nil
}

// lastCall returns the last tools/call as it was sent, and its reply.
func (c *client) lastCall() ([]byte, reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bodys[len(c.bodys)-1], c.last
}

// call calls a tool with the SDK's client, which asks answer what the server
// asks, sends the retries, and returns the end of it.
func (c *client) call(ctx context.Context, tool string, args any, answer func(ctx context.Context, message string) string) (reply, error) {
	sdk := mcp.NewClient(&mcp.Implementation{Name: "tallystick-demo", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			res := &mcp.ElicitResult{Action: answer(ctx, r.Params.Message)}
			if res.Action == accept {
				res.Content = map[string]any{"confirm": true}
			}
			return res, nil
		},
	})
	session, err := sdk.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: c.url + "/mcp", HTTPClient: c.http, DisableStandaloneSSE: true, MaxRetries: -1,
	}, nil)
	if err != nil {
		return reply{}, fmt.Errorf("connecting to the desk: %w", err)
	}
	defer session.Close()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args}); err != nil {
		return reply{}, fmt.Errorf("calling %s: %w", tool, err)
	}
	_, last := c.lastCall()
	return last, nil
}

// params of a single request.
type params map[string]any

// send sends a single request of the modern era, as the specification has it.
func (c *client) send(ctx context.Context, method, name string, p params) (reply, error) {
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
func (c *client) post(ctx context.Context, method, name string, body []byte) (reply, error) {
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
func (c *client) tool(ctx context.Context, name string, args any, state string, answers map[string]string) (reply, error) {
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

// task sends one tasks/get or tasks/cancel.
func (c *client) task(ctx context.Context, method, id string) (reply, error) {
	return c.send(ctx, method, id, params{"taskId": id})
}

// desk asks the desk's own endpoints, beside MCP. A status but 200 is told by
// its number, not by err.
func (c *client) desk(ctx context.Context, method, path string, in, out any) (int, error) {
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
