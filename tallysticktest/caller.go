package tallysticktest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tallystick/tallystick"
)

// A Capability is something that a client can be asked, or can deal with.
type Capability string

// Capabilities of clients.
const (
	Nothing  Capability = ""         // alone: a client that can be asked nothing
	Form     Capability = "form"     // elicitation by a form
	URL      Capability = "url"      // elicitation by a web page
	Sampling Capability = "sampling" // deprecated by the protocol
	Roots    Capability = "roots"    // deprecated by the protocol
	Tasks    Capability = "tasks"    // the Tasks extension
)

// A Caller is a client that somebody uses.
type Caller struct {
	b     *Bench
	id    tallystick.Identity
	token string
	caps  map[string]any
}

// As returns a client that id uses, with those capabilities; none given means
// Form and Tasks. An id without a Subject is anonymous.
func (b *Bench) As(id tallystick.Identity, caps ...Capability) *Caller {
	if len(caps) == 0 {
		caps = []Capability{Form, Tasks}
	}
	declared, elicitation := map[string]any{}, map[string]any{}
	for _, c := range caps {
		switch c {
		case Form, URL:
			elicitation[string(c)] = map[string]any{}
			declared["elicitation"] = elicitation
		case Sampling, Roots:
			declared[string(c)] = map[string]any{}
		case Tasks:
			declared["extensions"] = map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}
		}
	}
	return &Caller{b: b, id: id, token: b.people.token(id), caps: declared}
}

// Call calls a tool. args are marshalled to JSON; nil is no arguments.
func (c *Caller) Call(tool string, args any) *Result {
	c.b.t.Helper()
	return c.request("tools/call", tool, arguments(args))
}

// CallKeyed calls a tool with an idempotency key: sent again, the request goes
// back to the call that it made, even if no response to it was ever heard.
func (c *Caller) CallKeyed(key, tool string, args any) *Result {
	c.b.t.Helper()
	params := arguments(args)
	params["_meta"] = map[string]any{"tallystick/idempotencyKey": key}
	return c.request("tools/call", tool, params)
}

// Prompt gets a prompt.
func (c *Caller) Prompt(name string, args map[string]string) *Result {
	c.b.t.Helper()
	return c.request("prompts/get", name, arguments(args))
}

// Read reads a resource.
func (c *Caller) Read(uri string) *Result {
	c.b.t.Helper()
	return c.request("resources/read", uri, nil)
}

func arguments(args any) map[string]any {
	if args == nil {
		return map[string]any{}
	}
	return map[string]any{"arguments": args}
}

// request sends a request until it has a response, as a client does whose
// connection is lost.
func (c *Caller) request(method, name string, params map[string]any) *Result {
	c.b.t.Helper()
	limit := time.Now().Add(patience)
	for {
		changed := c.b.world.changed()
		p := c.b.current()
		r, err := c.send(p, method, name, params)
		switch {
		case p.isDead(): // what it may still have said was never heard
			c.b.revive(p)
		case err != nil:
			c.b.t.Fatalf("%s %s: %v", method, name, err)
		case r.HTTPStatus == http.StatusServiceUnavailable && time.Now().Before(limit):
			pause(changed)
		default:
			return r
		}
	}
}

// send puts one request through the process's handler.
func (c *Caller) send(p *process, method, name string, params map[string]any) (*Result, error) {
	body, err := c.body(method, name, params)
	if err != nil {
		return nil, err
	}
	req := httptest.NewRequest("POST", "http://127.0.0.1/mcp", bytes.NewReader(body))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": headerValue(name),
	} {
		req.Header.Set(k, v)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	w := httptest.NewRecorder()
	if !p.do(func() { p.web.ServeHTTP(w, req) }) {
		return nil, errDied
	}
	r := &Result{c: c, method: method, name: name, params: params, HTTPStatus: w.Code}
	return r, r.read(w.Header().Get("Content-Type"), w.Body.Bytes())
}

// do runs f, and reports whether it came to its end before the process's.
func (p *process) do(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return !p.isDead()
	case <-p.dead:
		return false
	}
}

func (c *Caller) body(method, name string, more map[string]any) ([]byte, error) {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": c.caps,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "tallysticktest", "version": "1"},
	}
	params := map[string]any{}
	maps.Copy(params, more)
	if extra, ok := params["_meta"].(map[string]any); ok {
		maps.Copy(meta, extra)
	}
	params["_meta"] = meta
	switch {
	case strings.HasPrefix(method, "tasks/"):
		params["taskId"] = name
	case method == "resources/read":
		params["uri"] = name
	default:
		params["name"] = name
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.b.ids.Add(1), "method": method, "params": params})
	if err != nil {
		return nil, fmt.Errorf("marshalling the request: %w", err)
	}
	return body, nil
}

// headerValue is a name as it goes into a header.
func headerValue(s string) string {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
		}
	}
	return s
}
