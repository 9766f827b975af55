package trace

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// secret is in every place of these tests that must not be shown.
const secret = "s3cret"

func TestSecretsOfAMessageAreMasked(t *testing.T) {
	var m masker
	m.message([]byte(`{"result":{"inputRequests":{"a":{"params":{"requestedSchema":{"properties":{
		"pin":{"type":"string","format":"password"},"note":{"type":"string"},"once":{"writeOnly":true}}}}}}}}`))
	m.message([]byte(`{"result":{"tools":[{"name":"t","inputSchema":{}}]}}`))
	got := m.message([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","requestState":"s3cret",
		"_meta":{"tallystick/idempotencyKey":"s3cret","progressToken":7},
		"inputResponses":{"a":{"action":"accept","content":{"pin":"s3cret","once":{"x":"s3cret"},"note":"shown"}}},
		"arguments":{"pin":"s3cret","password":"s3cret","big":9007199254740993},"access_token":["s3cret"]}}`))
	if strings.Contains(got, secret) {
		t.Errorf("it shows a secret: %s", got)
	}
	for _, want := range []string{`"note":"shown"`, `"requestState":"***(8 bytes)"`, `"big":9007199254740993`, `"progressToken":7`} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %s: %s", want, got)
		}
	}
	// An error's code is none of OAuth's, and a pin outside answers is a pin.
	if got = m.message([]byte(`{"error":{"code":-32602,"message":"pin"},"pin":4}`)); got != `{"error":{"code":-32602,"message":"pin"},"pin":4}` {
		t.Error(got)
	}
}

func TestATraceCannotDriveTheTerminal(t *testing.T) {
	var m masker
	got := m.message([]byte("{\"a\":\"\\u001b[2K \u009b2K \u202e \u200b \u2028 \U000e0001 é 漢 \x7f\",\"a\":1}"))
	if want := `{"a":"\u001b[2K \u009b2K \u202e \u200b \u2028 \udb40\udc01 é 漢 \u007f","a":1}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got = m.message([]byte("\x1b]0;owned\x07")); got != "(10 bytes that are not JSON)" {
		t.Error(got)
	}
	if got = m.message([]byte(`{"requestState":"s3cret`)); strings.Contains(got, secret) {
		t.Error(got)
	}
}

func TestHTTPIsShownWithoutItsSecrets(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Set-Cookie", "a=s3cret")
		w.Header().Set("Location", "https://u:s3cret@else.example/x?code=s3cret&s3cret#s3cret")
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": alive\n\nevent: message\ndata: {\"requestState\":\"s3cret\",\"n\":1}\n\ndata: {\"n\":2}")
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"access_token":"s3cret","n":3}`)
	}))
	defer srv.Close()
	var out bytes.Buffer
	client := &http.Client{Transport: New(&out, "X-Mine").HTTP(http.DefaultTransport)}
	do := func(method, kind, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/mcp?code=s3cret&x=", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer s3cret", "X-Mine": "s3cret", "X-Api-Key": "s3cret", "Mcp-Param-Pin": "s3cret", "Referer": "https://%zz?s3cret", "X-Other": "shown", "Content-Type": kind} {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := do(http.MethodPost, "application/json", `{"requestState":"s3cret","n":0}`); got != `{"access_token":"s3cret","n":3}` {
		t.Errorf("the body has changed: %s", got)
	}
	do(http.MethodPost, "application/x-www-form-urlencoded", "code_verifier=s3cret")
	if got := do(http.MethodGet, "", ""); !strings.Contains(got, "alive") || !strings.HasSuffix(got, `{"n":2}`) {
		t.Errorf("the stream has changed: %q", got)
	}
	got := out.String()
	if strings.Contains(got, secret) {
		t.Errorf("it shows a secret:\n%s", got)
	}
	for _, want := range []string{
		"trace: → #1 POST " + srv.URL + "/mcp?code=***(6 bytes)&x=***(0 bytes)\n", "X-Other: shown", "Location: https://else.example/x?code=***(6 bytes)&***(6 bytes)#", "Authorization: ***(13 bytes)",
		`trace: → #1 {"requestState":"***(8 bytes)","n":0}`, "trace: ← #1 200 OK", `trace: ← #1 {"access_token":"***(8 bytes)","n":3}`,
		"trace: → #2 (20 bytes of application/x-www-form-urlencoded)",
		`trace: ← #3 {"requestState":"***(8 bytes)","n":1}`, `trace: ← #3 {"n":2}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}

func TestStdioIsShownToo(t *testing.T) {
	near, far := mcp.NewInMemoryTransports()
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	ss, err := server.Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, nil).Connect(context.WithoutCancel(t.Context()), New(&out).Transport(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_ = cs.Close()
	_ = ss.Wait()
	for _, want := range []string{`trace: → {"jsonrpc":"2.0","id":`, `"name":"near"`, `trace: ← {"jsonrpc":"2.0","id":`, `"name":"far"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}

func TestAHugeMessageIsDescribed(t *testing.T) {
	var out bytes.Buffer
	b := New(&out).body("←", 1, http.Header{"Content-Type": {"application/json"}}, io.NopCloser(strings.NewReader(strings.Repeat(" ", maxShown+1))))
	if n, err := io.Copy(io.Discard, b); err != nil || n != maxShown+1 {
		t.Errorf("%d, %v", n, err)
	}
	if got := out.String(); got != "trace: ← #1 (1048577 bytes of application/json)\n" {
		t.Error(got)
	}
}
