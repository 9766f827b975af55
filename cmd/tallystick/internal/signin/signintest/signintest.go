// Package signintest is an MCP server that wants people to sign in, and the
// authorisation server where they do.
package signintest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
)

// A Site is both servers, on one address.
type Site struct {
	*httptest.Server
	// Lifetime of the tokens that are given, in seconds.
	Lifetime int

	mu        sync.Mutex // guards what follows
	codes     map[string]url.Values
	access    map[string]bool
	refresh   map[string]bool
	came      int // to the page
	refreshes int
	revoked   bool
}

// New starts a site whose "/mcp" is next for those with a token.
func New(next http.Handler) *Site {
	s := &Site{Lifetime: 3600, codes: map[string]url.Values{}, access: map[string]bool{}, refresh: map[string]bool{}}
	mux := http.NewServeMux()
	s.Server = httptest.NewServer(mux)
	say := func(path string, value any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, value) })
	}
	say("/.well-known/oauth-protected-resource/mcp", map[string]any{"resource": s.URL + "/mcp", "authorization_servers": []string{s.URL}})
	say("/.well-known/oauth-authorization-server", map[string]any{
		"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"},
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if json.NewDecoder(r.Body).Decode(&asked) != nil {
			reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_client_metadata"})
			return
		}
		asked["client_id"] = "client-" + rand.Text()
		reply(w, http.StatusCreated, asked)
	})
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ok := s.access[r.Header.Get("Authorization")]
		s.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	return s
}

// Refreshes counts them.
func (s *Site) Refreshes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

// Came counts how often somebody has come to sign in.
func (s *Site) Came() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came
}

// Revoke makes all tokens useless.
func (s *Site) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = true
	clear(s.access)
}

// authorize says yes at once, as a person would after a while.
func (s *Site) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	code := rand.Text()
	s.mu.Lock()
	s.codes[code] = q
	s.came++
	s.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (s *Site) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := map[string]string{"error": "invalid_grant"}
	switch r.FormValue("grant_type") {
	case "authorization_code":
		asked, ok := s.codes[r.FormValue("code")]
		delete(s.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if !ok || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || asked.Get("resource") != s.URL+"/mcp" {
			reply(w, http.StatusBadRequest, refused)
			return
		}
	case "refresh_token":
		if old := r.FormValue("refresh_token"); s.revoked || !s.refresh[old] {
			reply(w, http.StatusBadRequest, refused)
			return
		}
		delete(s.refresh, r.FormValue("refresh_token")) // good for once
		s.refreshes++
	case "client_credentials":
		if _, secret, _ := r.BasicAuth(); secret != "robot-secret" && r.FormValue("client_secret") != "robot-secret" {
			reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
			return
		}
	default:
		reply(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type"})
		return
	}
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	s.access["Bearer "+access], s.refresh[refresh] = true, true
	reply(w, http.StatusOK, map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": s.Lifetime})
}

func reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}
