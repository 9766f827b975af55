package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// A legacyClient posts to a session as somebody.
type legacyClient struct {
	server       *httptest.Server
	user, tenant string
	session      string
}

func (c legacyClient) request(t *testing.T, method, body string) *http.Request {
	req := newPost(t, c.server.URL, body)
	req.Method = method
	req.Header.Set("Authorization", "Bearer "+c.user)
	req.Header.Set("Test-Tenant", c.tenant)
	if c.session != "" {
		req.Header.Set(headerSession, c.session)
		req.Header.Set(headerVersion, "2025-11-25")
	}
	return req
}

func (c legacyClient) post(t *testing.T, body string) (int, []string) {
	return send(t, c.server, c.request(t, http.MethodPost, body))
}

// open returns the client in a new session.
func (c legacyClient) open(t *testing.T) legacyClient {
	t.Helper()
	resp, err := c.server.Client().Do(c.request(t, http.MethodPost, initialize))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if c.session = resp.Header.Get(headerSession); resp.StatusCode != 200 || c.session == "" {
		t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	return c
}

func newLegacyServer(t *testing.T, change func(*HTTPOptions)) (*HTTP, legacyClient) {
	t.Helper()
	opts := HTTPOptions{Server: newSDKServer(), ServerInfo: json.RawMessage(serverInfo), Principal: func(_ context.Context, extra *mcp.RequestExtra) (string, error) {
		return fmt.Sprintf("%s/%v", extra.TokenInfo.UserID, extra.TokenInfo.Extra["tenant"]), nil
	}}
	if change != nil {
		change(&opts)
	}
	front := NewHTTP(newFake(), opts)
	server := httptest.NewServer(withToken(front, time.Now().Add(time.Hour)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := front.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		server.Close()
	})
	return front, legacyClient{server: server, user: "ann", tenant: "a"}
}

const legacyCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sdk_tool","arguments":{"a":1}}}`

func TestASessionIsServedByTheSDK(t *testing.T) {
	_, c := newLegacyServer(t, nil)
	c = c.open(t)
	if status, messages := c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 {
		t.Fatalf("initialized: %d %s", status, messages)
	}
	status, messages := c.post(t, legacyCall)
	if status != 200 || len(messages) != 1 || !strings.Contains(messages[0], `from the SDK {\"a\":1}`) {
		t.Errorf("call: %d %s", status, messages)
	}
	if status, messages := c.post(t, strings.Replace(legacyCall, `"id":2`, `"id":9007199254740993`, 1)); status != 200 || !strings.Contains(messages[0], `"id":9007199254740993,`) {
		t.Errorf("a large id: %d %s", status, messages)
	}
	if status, _ := send(t, c.server, c.request(t, http.MethodDelete, "")); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	if status, _ := c.post(t, legacyCall); status != 404 {
		t.Errorf("after DELETE: %d", status)
	}
}

// case S101
func TestSessionsAreParsedAsStrictly(t *testing.T) {
	_, c := newLegacyServer(t, nil)
	c = c.open(t)
	for name, body := range map[string]string{
		"duplicate":    strings.Replace(legacyCall, `"a":1`, `"a":1,"a":2`, 1),
		"case folding": strings.Replace(legacyCall, `"name":`, `"Name":"x","name":`, 1),
		"batch":        "[" + legacyCall + "]",
		"depth":        strings.Replace(legacyCall, `{"a":1}`, strings.Repeat(`{"a":`, 70)+"1"+strings.Repeat("}", 70), 1),
		"no UTF-8":     strings.Replace(legacyCall, `1}`, "\"\xff\"}", 1),
	} {
		if status, messages := c.post(t, body); status != 400 {
			t.Errorf("%s: %d %s", name, status, messages)
		}
	}
}

func TestASessionOfAnotherPrincipalReadsAsNone(t *testing.T) {
	_, ann := newLegacyServer(t, nil)
	ann = ann.open(t)
	none := ann
	none.session = "unknown"
	wantStatus, want := none.post(t, legacyCall)
	if wantStatus != 404 {
		t.Fatalf("unknown session: %d %s", wantStatus, want)
	}
	for _, who := range []struct{ user, tenant string }{{"bob", "a"}, {"ann", "b"}} {
		other := ann
		other.user, other.tenant = who.user, who.tenant
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			status, messages := send(t, ann.server, other.request(t, method, legacyCall))
			if status != wantStatus || fmt.Sprint(messages) != fmt.Sprint(want) {
				t.Errorf("%s as %v: %d %s", method, who, status, messages)
			}
		}
	}
	if status, messages := ann.post(t, legacyCall); status != 200 {
		t.Errorf("the owner: %d %s", status, messages)
	}
}

// case S103
func TestSessionsAreBoundedAndPlacesComeBack(t *testing.T) {
	_, c := newLegacyServer(t, func(o *HTTPOptions) { o.Limits.Sessions, o.Limits.SessionsPerPrincipal = 3, 2 })
	first := c.open(t)
	c.open(t)
	if status, messages := c.post(t, initialize); status != 503 || !strings.Contains(messages[0], "Limits.SessionsPerPrincipal") {
		t.Errorf("a third session of ann: %d %s", status, messages)
	}
	bob := c
	bob.user = "bob"
	bob.open(t)
	carol := c
	carol.user = "carol"
	if status, _ := carol.post(t, initialize); status != 503 {
		t.Errorf("a fourth session: %d", status)
	}
	if status, _ := send(t, c.server, first.request(t, http.MethodDelete, "")); status != 204 {
		t.Fatalf("DELETE: %d", status)
	}
	carol.open(t)
}

func TestSessionsThatTheSDKEndedFreeTheirPlaces(t *testing.T) {
	front, c := newLegacyServer(t, func(o *HTTPOptions) { o.Limits.Sessions = 1 })
	c.open(t)
	for _, s := range front.sessions.live() {
		s.Close() // as a timeout does
	}
	c.open(t)
}

func TestAGetStreamEndsWithTheServer(t *testing.T) {
	front, c := newLegacyServer(t, nil)
	c = c.open(t)
	resp, err := c.server.Client().Do(c.request(t, http.MethodGet, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("GET: %d", resp.StatusCode)
	}
	if err := front.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(resp.Body) // ends
	if n := len(front.sessions.live()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestModernRequestsOfASessionNeedNoSession(t *testing.T) {
	_, c := newLegacyServer(t, nil)
	c = c.open(t)
	req := c.request(t, http.MethodPost, call("1", "echo", "{}"))
	req.Header.Set(headerVersion, Version)
	if status, messages := send(t, c.server, req); status != 200 {
		t.Errorf("%d %s", status, messages)
	}
}

func TestAnUnknownPrincipalOpensNoSession(t *testing.T) {
	_, c := newLegacyServer(t, func(o *HTTPOptions) {
		o.Principal = func(context.Context, *mcp.RequestExtra) (string, error) { return "", fmt.Errorf("no tenant") }
	})
	if status, _ := c.post(t, initialize); status != 401 {
		t.Errorf("status %d", status)
	}
}
