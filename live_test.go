package tallystick_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// A client that fails one of several live questions is not waited for with the
// others: they are withdrawn, and its request is told.
func TestALiveQuestionThatFailsEndsTheOthers(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("two", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			return "", errors.Join(confirm(call, "a", tallystick.Who{}), confirm(call, "b", tallystick.Who{}))
		})
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	open, withdrawn := make(chan struct{}), make(chan struct{})
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: httpClient("ann/acme")}, &mcp.ClientOptions{ElicitationHandler: func(one context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if r.Params.Message == "b?" {
			<-open
			return nil, errors.New("no screen")
		}
		close(open)
		select {
		case <-one.Done():
			close(withdrawn)
		case <-ctx.Done():
		}
		return nil, errors.New("nobody")
	}})
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if text := res.Content[0].(*mcp.TextContent).Text; !res.IsError || !strings.Contains(text, `"b"`) || strings.Contains(text, `"a"`) {
		t.Errorf("told %q", text)
	}
	select {
	case <-withdrawn:
	case <-time.After(time.Second): // the SDK tells that when it can, and not if the call's stream ends sooner
		t.Log("the other question was not withdrawn before the call's end")
		cancel()
	}
}

// What is decided at another server of the same store settles a live question.
func TestALiveQuestionIsSettledByAnotherServer(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New(memory.Options{Shared: true})
	var servers []*desk
	for _, node := range []string{"a", "b"} {
		servers = append(servers, newDesk(t, setup{opts: tallystick.Options{Store: st, Keys: keys.AEAD(), Node: node}, tools: func(d *desk) {
			d.tool("ask", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
				return "agreed", confirm(call, "q", finance)
			})
		}}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var decided sync.WaitGroup
	cs := legacyClient(t, &mcp.StreamableClientTransport{Endpoint: servers[0].url, HTTPClient: httpClient("ann/acme/finance")}, &mcp.ClientOptions{ElicitationHandler: func(one context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		decided.Go(func() {
			eve := person("eve", "finance")
			w, err := servers[1].srv.Waiting(ctx, eve)
			if err != nil || len(w) != 1 || servers[1].srv.Decide(ctx, eve, tallystick.Decision{CallID: w[0].CallID, Key: "q", Accept: true}) != nil {
				t.Errorf("waiting: %v, %v", w, err)
			}
		})
		select {
		case <-one.Done():
		case <-ctx.Done(): // that it is withdrawn the SDK tells when it can, be it after the call's end
		}
		return nil, errors.New("nobody")
	}})
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "ask"})
	decided.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(res.Content, func(c mcp.Content) bool { return c.(*mcp.TextContent).Text == "agreed" }) {
		t.Errorf("told %+v", res)
	}
}
