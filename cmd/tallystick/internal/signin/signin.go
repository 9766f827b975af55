// Package signin gets a person's OAuth tokens for a server, and keeps them.
package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
)

// ErrSignIn: there are no tokens that the server takes, and a person has to
// get some.
var ErrSignIn = errors.New("nobody is signed in to this server")

// Options of signing in.
type Options struct {
	URL   string // of the MCP server
	OAuth settings.OAuth
	File  string // where tokens are kept: one file for each server
	HTTP  *http.Client
	// Show puts the page to a person. It may take as long as it likes: ctx ends
	// when they have come back from there, and Show is waited for then.
	Show func(ctx context.Context, page string) error
}

// File is where the tokens for a server are, in the folder of a memory.
func File(memory, server string) string {
	return filepath.Join(filepath.Dir(memory), "tokens", server+".json")
}

// kept is what a file of tokens holds.
type kept struct {
	URL          string           `json:"url"` // of the MCP server that the tokens are for
	ClientID     string           `json:"clientId"`
	ClientSecret string           `json:"clientSecret,omitempty"`
	TokenURL     string           `json:"tokenUrl"`
	AuthStyle    oauth2.AuthStyle `json:"authStyle"`
	Scopes       []string         `json:"scopes,omitempty"`
	Token        *oauth2.Token    `json:"token"`
}

// config refreshes tokens; it needs no page for that.
func (k *kept) config() *oauth2.Config {
	return &oauth2.Config{
		ClientID: k.ClientID, ClientSecret: k.ClientSecret, Scopes: k.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: k.TokenURL, AuthStyle: k.AuthStyle},
	}
}

func (k *kept) save(path string) error {
	b, err := json.MarshalIndent(k, "", "\t")
	if err != nil {
		return err
	}
	if err := settings.WritePrivate(path, b); err != nil {
		return fmt.Errorf("keeping the tokens: %w", err)
	}
	return nil
}

// maxFile bounds a file of tokens, in bytes. A longer one does not parse.
const maxFile = 1 << 20

// load returns nil if there are no tokens for the URL.
func load(path, url string) (*kept, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, &settings.Problem{Text: fmt.Sprintf("tokens %s: mode %04o lets others read or change them: run chmod 600 '%s', or sign in again if somebody may have had them", path, perm, path)}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	var k kept
	if json.Unmarshal(b, &k) != nil || k.Token == nil || k.TokenURL == "" { // err would quote it
		return nil, fmt.Errorf("%s holds no tokens: remove it and sign in again", path)
	}
	if k.URL != url { // a name that has come to mean another server
		return nil, nil
	}
	return &k, nil
}

// Out forgets the tokens in a file.
func Out(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// In signs a person in: it asks the server where, shows them the page, waits
// for them to come back to this machine, and keeps the tokens. Whoever else
// has the page cannot come back with it.
func In(ctx context.Context, o Options) error {
	back, err := listen(ctx)
	if err != nil {
		return err
	}
	defer back.close()
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: back.url, Client: o.HTTP, RequestRefreshToken: true, AcceptUnadvertisedIss: true,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			return back.fetch(ctx, args.URL, o.Show)
		},
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			k := &kept{URL: o.URL, ClientID: c.ClientID, ClientSecret: c.ClientSecret, TokenURL: c.Endpoint.TokenURL, AuthStyle: c.Endpoint.AuthStyle, Scopes: c.Scopes, Token: t}
			return oauth2.StaticTokenSource(t), k.save(o.File)
		},
	}
	if o.OAuth.ClientID != "" {
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.OAuth.ClientID}
		if o.OAuth.ClientSecret != "" {
			config.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: o.OAuth.ClientSecret}
		}
	} else {
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "tallystick", RedirectURIs: []string{back.url}, GrantTypes: []string{"authorization_code", "refresh_token"},
			ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: "none",
		}}
	}
	h, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		return err
	}
	req, resp, err := challenge(ctx, o)
	if err != nil {
		return err
	}
	return h.Authorize(ctx, req, resp)
}

// challenge asks the server for what nobody gets, so that it says where to
// sign in.
func challenge(ctx context.Context, o Options) (*http.Request, *http.Response, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"tallystick","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover",
	} {
		req.Header.Set(name, value)
	}
	resp, err := o.HTTP.Do(req)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusUnauthorized {
		resp.Body.Close()
		return nil, nil, fmt.Errorf("the server asks nobody to sign in: it answered %s without tokens", resp.Status)
	}
	return req, resp, nil
}

// A callback is the address on this machine to which the browser comes back.
type callback struct {
	url string
	l   net.Listener
	got chan url.Values // capacity 1
}

func listen(ctx context.Context) (*callback, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &callback{url: "http://" + l.Addr().String() + "/callback", l: l, got: make(chan url.Values, 1)}, nil
}

func (c *callback) close() { _ = c.l.Close() }

// fetch shows the page and waits for the browser.
func (c *callback) fetch(ctx context.Context, page string, show func(context.Context, string) error) (*auth.AuthorizationResult, error) {
	u, err := url.Parse(page)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("the page to sign in on is no web page")
	}
	web := &http.Server{Handler: c.handler(u.Query().Get("state")), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = web.Serve(c.l) }() // its end is ours
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = web.Shutdown(closing)
		<-served
	}()
	ctx, end := context.WithCancel(ctx)
	shown, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		shown <- show(ctx, page)
	}()
	defer func() { // the terminal is free again before anybody goes on
		end()
		<-gone
	}()
	for {
		select {
		case err := <-shown:
			if err != nil {
				return nil, err
			}
			shown = nil
		case q := <-c.got:
			if e := q.Get("error"); e != "" {
				return nil, fmt.Errorf("signing in was refused: %s %s", e, q.Get("error_description"))
			}
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// handler takes the one request that has the state. Others, which any page may
// have the browser send, change nothing.
func (c *callback) handler(state string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if state == "" || q.Get("state") != state || q.Get("code") == "" && q.Get("error") == "" {
			http.Error(w, "This is not the sign-in that is under way.", http.StatusBadRequest)
			return
		}
		select {
		case c.got <- q:
		default:
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		text := "tallystick has what it needs. You can close this page."
		if e := q.Get("error"); e != "" {
			text = "Signing in was refused: " + e
		}
		_, _ = io.WriteString(w, "<!doctype html><title>tallystick</title><p>"+html.EscapeString(text))
	})
	return mux
}
