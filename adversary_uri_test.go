package tallystick_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// Data of a handler's own error that is no JSON costs no more than the data.
func TestAnErrorWithBadDataIsStillAnError(t *testing.T) {
	for way, connect := range map[string]func(*testing.T, *desk) rawPeer{"http": peerOverHTTP, "stdio": peerOverStdio, "memory": peerOverMemory} {
		t.Run(way, func(t *testing.T) {
			d := newDesk(t, setup{tools: func(d *desk) {
				for name, use := range map[string]tallystick.TaskUse{"inline": tallystick.TaskForbidden, "task": tallystick.TaskRequired} {
					d.tool(name, &tallystick.ToolOptions{Task: use}, func(context.Context, *tallystick.Call) (string, error) {
						return "", &jsonrpc.Error{Code: 77, Message: "no\xff", Data: json.RawMessage("{no")}
					})
				}
			}})
			peer := connect(t, d)
			if out := peer(t, "tools/call", map[string]any{"name": "inline"}); out["error"] == nil {
				t.Errorf("%v", out)
			}
			id := peer(t, "tools/call", map[string]any{"name": "task"})["taskId"]
			waitFor(t, func() bool { return peer(t, "tasks/get", map[string]any{"taskId": id})["status"] == "failed" })
		})
	}
}

// The SDK writes the URI of an unknown resource into its error as Go would
// quote it, which is no JSON for control characters. That costs one answer, and
// not the connection, whichever way it came.
func TestAURIThatIsNoJSONCostsOneAnswer(t *testing.T) {
	uri := "none://1\x00\a\u00ad"
	start := func(t *testing.T) *desk {
		return newDesk(t, setup{tools: func(d *desk) {
			addEcho(d, "echo", tallystick.TaskForbidden)
			d.sdk.AddResource(&mcp.Resource{Name: "r", URI: "some://r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{}, nil
			})
		}})
	}
	for way, connect := range map[string]func(*testing.T, *desk) rawPeer{"stdio": peerOverStdio, "memory": peerOverMemory} {
		t.Run(way, func(t *testing.T) {
			peer := connect(t, start(t))
			if out := peer(t, "resources/read", map[string]any{"uri": uri}); out["error"] == nil {
				t.Errorf("%v", out)
			}
			if out := peer(t, "tools/call", map[string]any{"name": "echo"}); out["resultType"] != "complete" {
				t.Errorf("afterwards: %v", out)
			}
		})
	}
	t.Run("http", func(t *testing.T) {
		d := start(t)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		body := `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"none://1\u0000\u0007\u00ad",` + metaOfForger + `}}`
		req, _ := http.NewRequestWithContext(ctx, "POST", d.url, strings.NewReader(body))
		forger{}.headersOf(req.Header, "resources/read", "=?base64?"+base64.StdEncoding.EncodeToString([]byte(uri))+"?=")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(raw), `"error"`) {
			t.Errorf("%d %q, %v", resp.StatusCode, raw, err)
		}
	})
	t.Run("2025 era", func(t *testing.T) {
		d := start(t)
		for way, cs := range map[string]*mcp.ClientSession{"http": overHTTP(t, d, nil), "stdio": overStdio(t, d, nil)} {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
			if err == nil || ctx.Err() != nil {
				t.Errorf("%s: %v", way, err)
			}
			if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"}); err != nil {
				t.Errorf("%s afterwards: %v", way, err)
			}
		}
	})
}
