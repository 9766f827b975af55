package conformance

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/child"
)

// startServer starts the fixtures' server as a process of its own on a free
// port of 127.0.0.1 and returns its URL. It must drain and exit with 0 when the
// test ends.
func startServer(t *testing.T, binary, data string) string {
	t.Helper()
	url, _ := child.Serve(t, exec.Command(binary, "-addr", "127.0.0.1:0", "-data", data))
	return url
}

func TestServerKeepsItsStateOverARestart(t *testing.T) {
	binary := child.Build(t, "./server")
	data := filepath.Join(t.TempDir(), "data")
	const tool = "test_input_required_result_request_state"
	var asked struct {
		RequestState string `json:"requestState"`
	}
	t.Run("first start", func(t *testing.T) {
		call(t, startServer(t, binary, data), tool, `"arguments":{}`, &asked)
		if asked.RequestState == "" {
			t.Fatal("the first round has no requestState")
		}
	})
	t.Run("second start", func(t *testing.T) {
		var answered struct {
			ResultType string `json:"resultType"`
		}
		retry := `"arguments":{},"requestState":"` + asked.RequestState + `","inputResponses":{"confirm":{"action":"accept","content":{"ok":true}}}`
		call(t, startServer(t, binary, data), tool, retry, &answered)
		if answered.ResultType != "complete" {
			t.Errorf("the retry's result is %q, want complete", answered.ResultType)
		}
	})
}

// call makes one modern tools/call with more members for its params, and
// decodes its result.
func call(t *testing.T, url, tool, params string, result any) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + params + `,"_meta":{
		"io.modelcontextprotocol/protocolVersion":"` + revision + `",
		"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": revision, "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var message struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(answer, &message); err != nil || message.Result == nil {
		t.Fatalf("%s answers %d %s (%v)", tool, resp.StatusCode, answer, err)
	}
	if err := json.Unmarshal(message.Result, result); err != nil {
		t.Fatal(err)
	}
}
