package tallystick_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// A listen tells what it asked for and nothing else: no other task of the same
// owner, no list that has changed, and neither progress nor logs of its task,
// though the request that made it asked for both.
func TestAListenTellsOnlyWhatItAskedFor(t *testing.T) {
	step := make(chan struct{})
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("job", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(ctx context.Context, call *tallystick.Call) (string, error) {
			for n := range 3 {
				call.Report("on it", float64(n), 3)
				select {
				case <-step:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return "done", confirm(call, "sure", tallystick.Who{})
		})
		addEcho(d, "other", tallystick.TaskRequired)
	}})
	ann := d.as("ann/acme", capsTasks)
	meta := map[string]any{"_meta": map[string]any{"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}}
	id := ann.send("tools/call", "job", meta).result["taskId"].(string)
	e := ann.listen(map[string]any{"taskIds": []string{id}, "promptsListChanged": false})
	ack := e.next()
	if f := ack.filter(); ack.Method != "notifications/subscriptions/acknowledged" || len(f) != 1 || f["taskIds"] == nil {
		t.Fatalf("acknowledged: %+v", ack)
	}
	d.sdk.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	d.sdk.AddPrompt(&mcp.Prompt{Name: "new"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { return nil, nil })
	ann.await(ann.newTask("other"), status("completed"))
	for range 3 {
		step <- struct{}{}
	}
	close(step) // the next run, after the answer, goes straight through
	ann.await(id, status("input_required"))
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"sure": yes}})
	for last := ""; last != "completed"; {
		m := e.next()
		if m.Method != "notifications/tasks" || m.Params["taskId"] != id || m.id() != ack.id() {
			t.Fatalf("told: %+v", m)
		}
		last = m.status()
	}
}
