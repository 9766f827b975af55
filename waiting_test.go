//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/store/memory"
)

// addKinds adds a tool per kind of question, and one that asks three rounds.
func addKinds(d *desk) {
	for kind, ask := range map[string]func(*tallystick.Call) error{
		"form": func(c *tallystick.Call) error {
			return c.Confirm(tallystick.Question{Key: "q", Message: "Yes?"})
		},
		"url": func(c *tallystick.Call) error {
			_, err := c.Input(tallystick.Question{Key: "q"}, &mcp.ElicitParams{Mode: "url", Message: "Look", URL: "https://bank.example/pay"})
			return err
		},
		"sampling": func(c *tallystick.Call) error {
			r, err := c.Input(tallystick.Question{Key: "q"}, &mcp.CreateMessageParams{MaxTokens: 5, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}})
			if err == nil {
				_ = r.(*mcp.CreateMessageWithToolsResult)
			}
			return err
		},
		"roots": func(c *tallystick.Call) error {
			r, err := c.Input(tallystick.Question{Key: "q"}, &mcp.ListRootsParams{})
			if err == nil {
				_ = r.(*mcp.ListRootsResult).Roots[0]
			}
			return err
		},
	} {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: kind, Description: kind}, nil,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, ask(call)
			})
	}
	type name struct {
		Name string `json:"name"`
	}
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "rounds", Description: "Asks three times."}, nil,
		func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			var all []string
			for i := range 3 {
				n, err := tallystick.Ask[name](call, tallystick.Question{Key: fmt.Sprint("q", i), Message: fmt.Sprint("Name ", i)})
				if err != nil {
					return nil, nil, err
				}
				all = append(all, n.Name)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(all, " ")}}}, nil, nil
		})
}

// Each client of this table can be told in one way only.
func TestWaysOfWaitingByRounds(t *testing.T) {
	d := newDesk(t, setup{tools: addKinds})
	for kind, c := range map[string]struct {
		caps   string
		method string
		answer map[string]any
	}{
		"form":     {`{"elicitation":{"form":{}}}`, "elicitation/create", yes},
		"sampling": {`{"sampling":{}}`, "sampling/createMessage", map[string]any{"role": "assistant", "model": "m", "content": map[string]any{"type": "text", "text": "hello"}}},
		"roots":    {`{"roots":{}}`, "roots/list", map[string]any{"roots": []any{map[string]any{"uri": "file:///tmp", "name": "tmp"}}}},
	} {
		ann := d.as("ann/acme", c.caps)
		r := ann.call(kind, nil)
		q, _ := r.result["inputRequests"].(map[string]any)["q"].(map[string]any)
		if q["method"] != c.method {
			t.Errorf("%s: %s", kind, r.raw)
			continue
		}
		if r := ann.retry(kind, nil, r.state(), map[string]any{"q": c.answer}); r.text() != "done" {
			t.Errorf("%s: %s", kind, r.raw)
		}
		// case S17: no other kind is sent to this client.
		for other := range map[string]bool{"form": true, "url": true, "sampling": true, "roots": true} {
			if other == kind {
				continue
			}
			r := ann.call(other, nil)
			if r.err == nil || r.err.Code != -32021 || r.err.Data["requiredCapabilities"] == nil || r.status != 400 {
				t.Errorf("%s asked of a client that can only %s: %s", other, kind, r.raw)
			}
		}
	}
}

// case S57, S58, S59, S60
func TestWaysOfWaitingForAURL(t *testing.T) {
	d := newDesk(t, setup{tools: addKinds})
	ann := d.as("ann/acme", `{"elicitation":{"url":{}}}`)
	r := ann.call("url", nil)
	if r.typ() != "input_required" || !strings.Contains(r.raw, `"url":"https://bank.example/pay"`) {
		t.Fatalf("asked: %s", r.raw)
	}
	consent := map[string]any{"q": map[string]any{"action": "accept"}}
	for range 2 { // consent to open is no answer
		if r = ann.retry("url", nil, r.state(), consent); r.typ() != "input_required" || !slices.Equal(r.keys(), []string{"q"}) {
			t.Fatalf("consent: %s", r.raw)
		}
	}
	id := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "ann"}
	w, err := d.srv.Waiting(context.Background(), id)
	if err != nil || len(w) != 1 {
		t.Fatalf("waiting: %v, %v", w, err)
	}
	if err := d.srv.Decide(context.Background(), id, tallystick.Decision{CallID: w[0].CallID, Key: "q", Accept: true}); err != nil {
		t.Fatal(err)
	}
	if r = ann.retry("url", nil, r.state(), consent); r.text() != "done" {
		t.Fatalf("decided: %s", r.raw)
	}
	no := ann.call("url", nil)
	if r := ann.retry("url", nil, no.state(), map[string]any{"q": map[string]any{"action": "decline"}}); r.outcome() != "declined" {
		t.Fatalf("declined: %s", r.raw)
	}
}

func TestWaysOfWaitingAsATask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "need"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, nil
			})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "asks"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, call.Confirm(tallystick.Question{Key: "q", Message: "?"})
			})
	}})
	r := d.as("ann/acme", capsForm).call("need", nil)
	need, _ := r.err.Data["requiredCapabilities"].(map[string]any)
	if r.err.Code != -32021 || need["extensions"].(map[string]any)["io.modelcontextprotocol/tasks"] == nil {
		t.Errorf("a client without the extension: %s", r.raw)
	}
	// A client with tasks and nothing else: nobody can be asked, and it is told.
	onlyTasks := d.as("ann/acme", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	id := onlyTasks.call("asks", nil).result["taskId"].(string)
	end := onlyTasks.await(id, status("failed"))
	if end.result["error"].(map[string]any)["code"] != float64(-32021) {
		t.Errorf("nobody to ask: %s", end.raw)
	}
	// A question of a kind that this request does not declare is not shown to it.
	id = d.as("ann/acme", capsTasks).call("asks", nil).result["taskId"].(string)
	d.as("ann/acme", capsTasks).await(id, status("input_required"))
	if r := onlyTasks.send("tasks/get", id, nil); r.result["status"] != "working" || r.result["inputRequests"] != nil {
		t.Errorf("to a client that cannot show it: %s", r.raw)
	}
}

// A client drops a result that lacks the structured content its tool's output
// schema promises, and the call id with it, unless the result is an error.
func TestPendingOfAToolWithAnOutputSchemaPassesItsClients(t *testing.T) {
	d, _ := refundDesk(t, tallystick.Who{Roles: []string{"finance"}}, tallystick.Options{})
	check := func(era string, isError bool, meta map[string]any) {
		if !isError || meta["tallystick/outcome"] != "pending" || meta["tallystick/call"] == nil {
			t.Errorf("%s: isError %t, %v", era, isError, meta)
		}
	}
	r := d.as("ann/acme", capsForm).call("refund", map[string]any{"orderId": "7"})
	check("modern", r.isError(), r.result["_meta"].(map[string]any))
	res, err := overHTTP(t, d, nil).CallTool(context.Background(), &mcp.CallToolParams{Name: "refund", Arguments: order1})
	if err != nil {
		t.Fatal(err)
	}
	check("2025 era", res.IsError, res.Meta)
}

func TestWaysOfWaitingElsewhere(t *testing.T) {
	opts := tallystick.Options{AnswerAt: func(id string, _ tallystick.Waiting) string { return "https://desk.example/" + id }}
	d := newDesk(t, setup{opts: opts, tools: addKinds})
	ann := d.as("ann/acme", capsNone)
	r := ann.call("form", nil)
	id, _ := r.result["_meta"].(map[string]any)["tallystick/call"].(string)
	if r.outcome() != "pending" || r.isError() || !strings.Contains(r.text(), "https://desk.example/"+id) || !strings.Contains(r.text(), "call_status") {
		t.Fatalf("pending: %s", r.raw)
	}
	if r := d.as("bob/acme", capsNone).call("call_status", map[string]any{"callId": id}); !r.isError() || strings.Contains(r.raw, "pending") {
		t.Errorf("somebody else's call: %s", r.raw)
	}
	if r := ann.call("call_status", map[string]any{"callId": id}); r.outcome() != "pending" {
		t.Errorf("status: %s", r.raw)
	}
	by := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "ann"}
	if err := d.srv.Decide(context.Background(), by, tallystick.Decision{CallID: id, Key: "q", Accept: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return ann.call("call_status", map[string]any{"callId": id}).text() == "done" })
}

// An approver who is quick: the request itself gets the result.
func TestWaysOfWaitingBounded(t *testing.T) {
	opts := tallystick.Options{Limits: tallystick.Limits{InlineWait: 10 * time.Second}}
	d, sh := refundDesk(t, tallystick.Who{Roles: []string{"finance"}}, opts)
	var r reply
	var wg sync.WaitGroup
	wg.Go(func() { r = d.as("ann/acme", capsNone).call("refund", order1) })
	eve := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: "eve", Roles: []string{"finance"}}
	var w []tallystick.Waiting
	waitFor(t, func() bool { w, _ = d.srv.Waiting(context.Background(), eve); return len(w) == 1 })
	if err := d.srv.Decide(context.Background(), eve, tallystick.Decision{CallID: w[0].CallID, Key: w[0].Key, Digest: w[0].Digest, Accept: true}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if r.isError() || r.outcome() != "" || sh.refunds.Load() != 1 {
		t.Fatalf("%s", r.raw)
	}
}

// legacyClient connects as a client of the 2025 era.
func legacyClient(t *testing.T, tr mcp.Transport, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "old", Version: "1"}, opts)
	cs, err := c.Connect(context.Background(), tr, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	if v := cs.InitializeResult(); v == nil || v.ProtocolVersion != "2025-11-25" {
		t.Fatalf("the session is not of the 2025 era: %+v", v)
	}
	return cs
}

type withToken string

func (tok withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(tok))
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP, overStdio and overMemory are ways for a 2025-era client to connect.
func overHTTP(t *testing.T, d *desk, opts *mcp.ClientOptions) *mcp.ClientSession {
	return legacyClient(t, &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: httpClient("ann/acme")}, opts)
}

func overStdio(t *testing.T, d *desk, opts *mcp.ClientOptions) *mcp.ClientSession {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ss, err := d.sdk.Connect(context.Background(), d.srv.Transport(wire.Stdio(toServer, fromServer, wire.Limits{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ss.Close() })
	return legacyClient(t, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, opts)
}

func overMemory(t *testing.T, d *desk, opts *mcp.ClientOptions) *mcp.ClientSession {
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := d.sdk.Connect(context.Background(), d.srv.Transport(theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ss.Close() })
	return legacyClient(t, ours, opts)
}

// case S18: a client of the 2025 era is asked live, in several rounds.
func TestWaysOfWaitingLive(t *testing.T) {
	for way, connect := range map[string]func(*testing.T, *desk, *mcp.ClientOptions) *mcp.ClientSession{
		"http": overHTTP, "stdio": overStdio, "memory": overMemory,
	} {
		t.Run(way, func(t *testing.T) {
			d := newDesk(t, setup{tools: addKinds})
			var asked atomic.Int64
			cs := connect(t, d, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					n := asked.Add(1)
					if strings.HasPrefix(r.Params.Message, "Yes") {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
					}
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": fmt.Sprint("n", n)}}, nil
				},
				CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
					return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "hello"}}, nil
				},
			})
			for tool, want := range map[string]string{"rounds": "n1 n2 n3", "form": "done", "sampling": "done"} {
				asked.Store(0)
				res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
				if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != want {
					t.Errorf("%s: %+v, %v", tool, res, err)
				}
			}
			// What this client does not declare is named in a tool result.
			res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "url"})
			if err != nil || !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "elicitation.url") {
				t.Errorf("url: %+v, %v", res, err)
			}
		})
	}
}

// case S37: a session without a handler for it, too.
func TestWaysOfWaitingLiveOutcomes(t *testing.T) {
	sh := &shop{total: "1"}
	d := newDesk(t, setup{tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	for _, c := range []struct {
		want   string
		answer *mcp.ElicitResult
	}{
		{"declined", &mcp.ElicitResult{Action: "decline"}},
		{"dismissed", &mcp.ElicitResult{Action: "cancel"}},
		{"declined", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": false}}},
	} {
		cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return c.answer, nil }})
		res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "refund", Arguments: order1})
		if err != nil || !res.IsError || res.Meta["tallystick/outcome"] != c.want {
			t.Errorf("want %s: %+v, %v", c.want, res, err)
		}
	}
	mute := overHTTP(t, d, nil)
	res, err := mute.CallTool(context.Background(), &mcp.CallToolParams{Name: "refund", Arguments: order1})
	if err != nil || !res.IsError || res.Meta["tallystick/outcome"] != "nobody_to_ask" || sh.refunds.Load() != 0 {
		t.Errorf("a client that cannot be asked: %+v, %v, %d refunds", res, err, sh.refunds.Load())
	}
}

func TestAskFirstIsRoundsThenATask(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, AskFirst: true},
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				if err := call.Confirm(tallystick.Question{Key: "start", Message: "Start?"}); err != nil {
					return nil, nil, err
				}
				call.Report("half", 1, 2)
				if err := call.Confirm(tallystick.Question{Key: "finish", Message: "Finish?"}); err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
			})
	}})
	ann := d.as("ann/acme", capsTasks)
	r := ann.call("job", nil)
	if !slices.Equal(r.keys(), []string{"start"}) || r.result["taskId"] != nil {
		t.Fatalf("first: %s", r.raw)
	}
	state := r.state()
	r = ann.retry("job", nil, state, map[string]any{"start": yes})
	if r.typ() != "task" || r.result["requestState"] != nil || r.result["inputRequests"] != nil {
		t.Fatalf("then: %s", r.raw)
	}
	id := r.result["taskId"].(string)
	ann.await(id, status("input_required"))
	ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"finish": yes}})
	if end := ann.await(id, status("completed")); !strings.Contains(end.raw, `"done"`) {
		t.Fatalf("end: %s", end.raw)
	}
	if again := ann.retry("job", nil, state, map[string]any{"start": yes}); again.typ() != "task" || again.result["taskId"] != id {
		t.Fatalf("the same retry: %s", again.raw)
	}
	// Without the extension it stays inline.
	plain := d.as("ann/acme", capsForm)
	r = plain.call("job", nil)
	r = plain.retry("job", nil, r.state(), map[string]any{"start": yes})
	if !slices.Equal(r.keys(), []string{"finish"}) {
		t.Fatalf("inline: %s", r.raw)
	}
}

func TestPromptsAndResourcesAsk(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Store: memory.New(memory.Options{})}, tools: func(d *desk) {
		tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "p"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
			if err := call.Confirm(tallystick.Question{Key: "ok", Message: "Ok?"}); err != nil {
				return nil, err
			}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
		})
		tallystick.AddResourceTemplate(d.srv, &mcp.ResourceTemplate{Name: "r", URITemplate: "test://{id}"}, func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
			if err := call.Confirm(tallystick.Question{Key: "ok", Message: "Ok?"}); err != nil {
				return nil, err
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: "of " + uri}}}, nil
		})
	}})
	ann := d.as("ann/acme", capsForm)
	for method, name := range map[string]string{"prompts/get": "p", "resources/read": "test://7"} {
		r := ann.send(method, name, nil)
		if r.typ() != "input_required" {
			t.Errorf("%s: %s", method, r.raw)
			continue
		}
		done := ann.send(method, name, map[string]any{"requestState": r.state(), "inputResponses": map[string]any{"ok": yes}})
		if done.typ() != "complete" || method == "resources/read" && done.result["cacheScope"] != "private" {
			t.Errorf("%s: %s", method, done.raw)
		}
		r = ann.send(method, name, nil)
		no := ann.send(method, name, map[string]any{"requestState": r.state(), "inputResponses": map[string]any{"ok": map[string]any{"action": "decline"}}})
		if no.err == nil || no.err.Code != tallystick.CodeDeclined {
			t.Errorf("%s declined: %s", method, no.raw)
		}
	}
	other := ann.send("resources/read", "test://7", nil)
	r := ann.send("resources/read", "test://8", map[string]any{"requestState": other.state(), "inputResponses": map[string]any{"ok": yes}})
	refusedState(t, "the state of another URI", r)
	cs := overHTTP(t, d, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
	}})
	if res, err := cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "p"}); err != nil || len(res.Messages) != 1 {
		t.Errorf("2025 era prompt: %+v, %v", res, err)
	}
	if res, err := cs.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "test://9"}); err != nil || res.Contents[0].Text != "of test://9" {
		t.Errorf("2025 era resource: %+v, %v", res, err)
	}
}

func httpClient(token string) *http.Client { return &http.Client{Transport: withToken(token)} }
