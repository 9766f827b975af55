package signin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// Handler has the tokens that [In] has kept, or, for a machine, gets some. It
// asks nobody: without tokens, [ErrSignIn] is its answer to a server that
// wants them.
func Handler(o Options) (auth.OAuthHandler, error) {
	if o.OAuth.Machine {
		return extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
			Credentials: &oauthex.ClientCredentials{ClientID: o.OAuth.ClientID, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: o.OAuth.ClientSecret}},
			HTTPClient:  o.HTTP,
		})
	}
	h := &handler{}
	k, err := load(o.File, o.URL)
	if err != nil || k == nil {
		return h, err
	}
	h.source = &source{o: o, ctx: context.WithValue(context.Background(), oauth2.HTTPClient, o.HTTP), kept: k}
	return h, nil
}

type handler struct {
	source *source // nil: nobody has signed in
}

// TokenSource returns none if the authorisation server takes back what it
// gave, so that the server says 401 and Authorize what to do.
func (h *handler) TokenSource(context.Context) (oauth2.TokenSource, error) {
	if h.source == nil {
		return nil, nil
	}
	var refused *oauth2.RetrieveError
	if _, err := h.source.Token(); errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < http.StatusInternalServerError {
		return nil, nil
	}
	return h.source, nil
}

// Authorize is called when the server has refused a request.
func (h *handler) Authorize(_ context.Context, _ *http.Request, resp *http.Response) error {
	resp.Body.Close()
	if resp.StatusCode == http.StatusForbidden && !strings.Contains(resp.Header.Get("WWW-Authenticate"), "insufficient_scope") {
		return nil // other tokens would not help
	}
	return ErrSignIn
}

// A source keeps each token that it has got on disk before it gives it away: a
// refresh may have made the one before useless.
type source struct {
	o    Options
	ctx  context.Context // of refreshes
	mu   sync.Mutex      // guards what follows, and that one token at a time is got
	kept *kept
}

func (s *source) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept.Token.Valid() {
		return s.kept.Token, nil
	}
	// Another process may have refreshed it, and used up our way to do so.
	if k, err := load(s.o.File, s.o.URL); err == nil && k != nil {
		s.kept = k
	}
	if s.kept.Token.Valid() {
		return s.kept.Token, nil
	}
	t, err := s.kept.config().TokenSource(s.ctx, s.kept.Token).Token()
	if err != nil {
		return nil, err
	}
	s.kept.Token = t
	return t, s.kept.save(s.o.File)
}
