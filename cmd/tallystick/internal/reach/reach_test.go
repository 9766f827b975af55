package reach

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
)

// TestMain lets this test binary be an MCP server that tells its environment.
func TestMain(m *testing.M) {
	if os.Getenv("BE_A_SERVER") == "" {
		os.Exit(m.Run())
	}
	_, _ = os.Stderr.WriteString("hello\nfrom \x1b[31m" + strings.Repeat("x", longestLine))
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, &mcp.ServerOptions{Instructions: strings.Join(os.Environ(), "\n")})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

func TestACommandGetsNoneOfOurSecrets(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	var mu sync.Mutex
	var said []string
	var wire bytes.Buffer
	dial, err := Transport(Options{
		Server: settings.Server{Command: []string{os.Args[0]}, Env: map[string]string{"BE_A_SERVER": "1", "PATH": "/mine"}},
		Trace:  &wire, Said: func(line string) { mu.Lock(); defer mu.Unlock(); said = append(said, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a connection may be lost, and made again
		tr, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, nil).Connect(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		env := cs.InitializeResult().Instructions
		if strings.Contains(env, "s3cret") || !strings.Contains(env, "BE_A_SERVER=1") || strings.Count(env, "PATH=") != 1 || !strings.Contains(env, "PATH=/mine") {
			t.Errorf("its environment:\n%s", env)
		}
		if err := cs.Close(); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 4 || said[0] != "hello" || !strings.HasPrefix(said[1], "from ") || len(said[1]) != longestLine {
		t.Errorf("it said %d lines: %.200q", len(said), said)
	}
	if !strings.Contains(wire.String(), `"name":"far"`) {
		t.Error("there is no trace")
	}
}

func TestHeadersGoToTheServerAndNowhereElse(t *testing.T) {
	var elsewhere http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere = r.Header }))
	defer other.Close()
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/mcp":
			http.Redirect(w, r, "/mcp/", http.StatusTemporaryRedirect)
		case "/mcp/":
			http.Redirect(w, r, other.URL+"/x?code=s3cret", http.StatusTemporaryRedirect)
		}
	}))
	defer srv.Close()
	dial, err := Transport(Options{Server: settings.Server{URL: srv.URL + "/mcp", Headers: map[string]string{"Authorization": "Bearer s3cret"}}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	client := tr.(*mcp.StreamableClientTransport).HTTPClient
	resp, err := client.Post(srv.URL+"/mcp", "application/json", strings.NewReader("{}"))
	if err == nil {
		resp.Body.Close()
		t.Error("it went to another host")
	} else if !strings.Contains(err.Error(), "redirects to "+other.URL) || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if want := "/mcp Bearer s3cret,/mcp/ Bearer s3cret"; strings.Join(got, ",") != want || elsewhere != nil {
		t.Errorf("%v, elsewhere %v", got, elsewhere)
	}
	if resp, err = client.Get(other.URL); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if elsewhere.Get("Authorization") != "" {
		t.Error("the header went elsewhere")
	}
}
