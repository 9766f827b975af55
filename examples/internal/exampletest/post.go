package exampletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// Post sends one request of revision 2026-07-28 as a client with tasks does,
// which the official SDK's is not yet. It fails the test on an error.
func (p *Process) Post(t *testing.T, token, method, name string, params map[string]any, result any) {
	t.Helper()
	all := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"elicitation": map[string]any{}, "extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}},
		},
	}}
	if strings.HasPrefix(method, "tasks/") {
		all["taskId"] = name
	} else {
		all["name"] = name
	}
	maps.Copy(all, params)
	if err := p.post(token, method, name, map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": all}, result); err != nil {
		t.Fatalf("%s %s: %v", method, name, err)
	}
}

func (p *Process) post(token, method, name string, message, result any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	req, err := http.NewRequest("POST", p.URL+"/mcp", bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		req.Header.Set(k, v)
	}
	resp, err := (&http.Client{Transport: Bearer(token)}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var got struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return err
	}
	if got.Error != nil {
		return fmt.Errorf("error %s", got.Error)
	}
	return json.Unmarshal(got.Result, result)
}
