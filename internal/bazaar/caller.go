package bazaar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Caller sends modern requests over HTTP, as somebody with some capabilities.
type Caller struct{ URL, Token, Caps string }

// Capabilities that clients declare.
const (
	CapsForm  = `{"elicitation":{}}`
	CapsTasks = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	CapsNone  = `{}`
)

// A Reply is what came back.
type Reply struct {
	Status int
	Result map[string]any
	Err    *RPCError
	Raw    string
}

// An RPCError is an error of JSON-RPC.
type RPCError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

func (r Reply) text(member string) string { s, _ := r.Result[member].(string); return s }

func (r Reply) meta(member string) string {
	meta, _ := r.Result["_meta"].(map[string]any)
	s, _ := meta["tallystick/"+member].(string)
	return s
}

func (r Reply) keys() []string {
	var keys []string
	m, _ := r.Result["inputRequests"].(map[string]any)
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// call is the call that the bazaar's question says it is of.
func (r Reply) call() string {
	_, rest, _ := strings.Cut(r.Raw, asksFor)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

var ids atomic.Int64

// Send posts one request; more adds members to params.
func (c Caller) Send(ctx context.Context, method, name string, more map[string]any) (Reply, error) {
	params := map[string]any{}
	switch {
	case strings.HasPrefix(method, "tasks/"):
		params["taskId"] = name
	case method == "resources/read":
		params["uri"] = name
	case name != "":
		params["name"] = name
	}
	resp, err := c.post(ctx, method, name, params, more)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return Reply{}, err
	}
	return ReadReply(resp.StatusCode, resp.Header.Get("Content-Type"), raw)
}

// post posts a request and returns the response, its body not read.
func (c Caller) post(ctx context.Context, method, name string, params, more map[string]any) (*http.Response, error) {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(c.Caps),
	}
	params["_meta"] = meta
	for k, v := range more {
		if m, ok := v.(map[string]any); v == nil || ok && m == nil {
			continue
		}
		if k == "_meta" {
			for mk, mv := range v.(map[string]any) {
				meta[mk] = mv
			}
			continue
		}
		params[k] = v
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": ids.Add(1), "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", method)
	if name != "" {
		req.Header.Set("Mcp-Name", name)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return http.DefaultClient.Do(req)
}

// ReadReply reads a response: one JSON object, or the last event of a stream.
func ReadReply(status int, contentType string, raw []byte) (Reply, error) {
	r := Reply{Status: status, Raw: string(raw)}
	if strings.HasPrefix(contentType, "text/event-stream") {
		var last []byte
		for line := range bytes.Lines(raw) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				last = data
			}
		}
		raw = last
	}
	var msg struct {
		Result map[string]any `json:"result"`
		Error  *RPCError      `json:"error"`
	}
	if err := json.Unmarshal(raw, &msg); err != nil {
		return r, errors.New(strconv.Itoa(status) + ": " + string(raw))
	}
	r.Result, r.Err = msg.Result, msg.Error
	return r, nil
}

// listen tells of what a subscription to tasks brings, until it or ctx ends.
func (c Caller) listen(ctx context.Context, tasks []string, heard func(line []byte)) error {
	resp, err := c.post(ctx, "subscriptions/listen", "", map[string]any{"notifications": map[string]any{"taskIds": tasks}}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			heard(data)
		}
	}
	return lines.Err()
}
