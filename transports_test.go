package tallystick_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/wire"
)

// A rawPeer sends modern requests over some transport and returns what came
// back, result or error, as JSON.
type rawPeer func(t *testing.T, method string, params map[string]any) map[string]any

func peerOverHTTP(_ *testing.T, d *desk) rawPeer {
	// Over HTTP the caller is named by a token, over the others by the
	// operating system; the results are compared without either.
	return func(t *testing.T, method string, params map[string]any) map[string]any {
		t.Helper()
		name, _ := params["name"].(string)
		if id, ok := params["taskId"].(string); ok {
			name = id
		}
		r := d.as("ann", capsTasks).send(method, name, params)
		if r.err != nil {
			return map[string]any{"error": map[string]any{"code": float64(r.err.Code), "message": r.err.Message}}
		}
		return r.result
	}
}

func peerOver(t *testing.T, d *desk, server, client mcp.Transport) rawPeer {
	ctx := context.Background()
	ss, err := d.sdk.Connect(ctx, d.srv.Transport(server), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := client.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); ss.Close() })
	n := 0.0
	return func(t *testing.T, method string, params map[string]any) map[string]any {
		t.Helper()
		n++
		all := map[string]any{"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": json.RawMessage(capsTasks),
		}}
		for k, v := range params {
			all[k] = v
		}
		raw, _ := json.Marshal(all)
		id, _ := jsonrpc.MakeID(n)
		req := &jsonrpc.Request{ID: id, Method: method, Params: raw}
		if err := conn.Write(ctx, req); err != nil {
			t.Fatal(err)
		}
		msg, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		judgeMessage(t, req, msg)
		resp := msg.(*jsonrpc.Response)
		var out map[string]any
		if resp.Error != nil {
			we := resp.Error.(*jsonrpc.Error)
			return map[string]any{"error": map[string]any{"code": float64(we.Code), "message": we.Message}}
		}
		if err := json.Unmarshal(resp.Result, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func peerOverStdio(t *testing.T, d *desk) rawPeer {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	return peerOver(t, d, wire.Stdio(toServer, fromServer, wire.Limits{}), &mcp.IOTransport{Reader: toClient, Writer: fromClient})
}

func peerOverMemory(t *testing.T, d *desk) rawPeer {
	ours, theirs := mcp.NewInMemoryTransports()
	return peerOver(t, d, theirs, ours)
}

var changing = regexp.MustCompile(`"(requestState|taskId|createdAt|lastUpdatedAt|pollIntervalMs|ttlMs|tallystick/call)":("[^"]*"|\d+)`)

// The same conversation over every transport is the same, word by word.
func TestEveryTransportTellsTheSame(t *testing.T) {
	transcripts := map[string][]string{}
	for way, connect := range map[string]func(*testing.T, *desk) rawPeer{"http": peerOverHTTP, "stdio": peerOverStdio, "memory": peerOverMemory} {
		sh := &shop{total: "10 EUR"}
		d := newDesk(t, setup{tools: func(d *desk) {
			sh.addRefund(d, tallystick.Who{})
			addEcho(d, "echo", tallystick.TaskForbidden)
			tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
				func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
					return nil, nil, call.Confirm(tallystick.Question{Key: "go", Message: "Go?"})
				})
		}})
		peer := connect(t, d)
		var said []string
		say := func(method string, params map[string]any) map[string]any {
			out := peer(t, method, params)
			raw, _ := json.Marshal(out)
			said = append(said, method+" "+changing.ReplaceAllString(string(raw), `"$1":"…"`))
			return out
		}
		say("tools/call", map[string]any{"name": "echo"})
		say("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"no": 1}})
		say("tools/call", map[string]any{"name": "refund", "arguments": map[string]any{}})
		asked := say("tools/call", map[string]any{"name": "refund", "arguments": order1})
		state := asked["requestState"]
		say("tools/call", map[string]any{"name": "refund", "arguments": order1, "requestState": fmt.Sprint(state, "x")})
		say("tools/call", map[string]any{"name": "refund", "arguments": order1, "requestState": 7})
		say("tools/call", map[string]any{"name": "refund", "arguments": order1, "requestState": state, "inputResponses": map[string]any{"approve": 12}})
		say("tools/call", map[string]any{"name": "refund", "arguments": order1, "requestState": state, "inputResponses": map[string]any{"approve": map[string]any{"action": "what"}}})
		say("tools/call", map[string]any{"name": "refund", "arguments": order1, "requestState": state, "inputResponses": map[string]any{"approve": yes}})
		task := say("tools/call", map[string]any{"name": "job"})
		id := task["taskId"].(string)
		waitFor(t, func() bool { return peer(t, "tasks/get", map[string]any{"taskId": id})["status"] == "input_required" })
		say("tasks/get", map[string]any{"taskId": id})
		say("tasks/update", map[string]any{"taskId": id})
		say("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"other": map[string]any{"ignored": true}}})
		say("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"go": map[string]any{"action": "accept"}}})
		say("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"go": yes}})
		waitFor(t, func() bool { return peer(t, "tasks/get", map[string]any{"taskId": id})["status"] == "completed" })
		say("tasks/get", map[string]any{"taskId": id})
		say("tasks/cancel", map[string]any{"taskId": id})
		say("tasks/get", map[string]any{"taskId": "nope"})
		say("tasks/list", map[string]any{})
		say("tools/call", map[string]any{"name": "nope"})
		transcripts[way] = said
	}
	for way, said := range transcripts {
		for i, line := range said {
			if want := transcripts["memory"][i]; line != want {
				t.Errorf("%s, step %d:\n %s\nin memory:\n %s", way, i, line, want)
			}
		}
	}
}

// The SDK's own client drives an approval over every transport.
func TestTheSDKsClientDrivesRounds(t *testing.T) {
	sh := &shop{total: "10 EUR"}
	d := newDesk(t, setup{tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	if _, err := d.sdk.Connect(context.Background(), d.srv.Transport(wire.Stdio(toServer, fromServer, wire.Limits{})), nil); err != nil {
		t.Fatal(err)
	}
	for i, tr := range []mcp.Transport{
		&mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: httpClient("ann/acme")},
		&mcp.IOTransport{Reader: toClient, Writer: fromClient},
	} {
		asked := 0
		c := mcp.NewClient(&mcp.Implementation{Name: "new", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
			},
		})
		cs, err := c.Connect(context.Background(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer cs.Close()
		res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "refund", Arguments: map[string]any{"orderId": fmt.Sprint("o", i)}})
		if err != nil || res.IsError || asked != 1 || sh.refunds.Load() != int64(i+1) {
			t.Errorf("transport %d: %+v, %v, asked %d times, %d refunds", i, res, err, asked, sh.refunds.Load())
		}
	}
}
