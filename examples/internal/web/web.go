// Package web serves the examples on this machine.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

// People are the users of the examples. Their names are their passwords and
// their bearer tokens, which is fit for an example on one's own machine and for
// nothing else.
var People = map[string]tallystick.Identity{
	"ann":   {Issuer: "example", Tenant: "acme", Subject: "ann", Roles: []string{"clerk"}},
	"frida": {Issuer: "example", Tenant: "acme", Subject: "frida", Roles: []string{"finance"}},
	"felix": {Issuer: "example", Tenant: "acme", Subject: "felix", Roles: []string{"finance"}},
	"olga":  {Issuer: "example", Tenant: "acme", Subject: "olga", Roles: []string{"operator"}},
}

// Verify takes a bearer token and says whose it is.
func Verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	p, ok := People[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{
		UserID: p.Subject, Expiration: time.Now().Add(time.Hour),
		Extra: map[string]any{"iss": p.Issuer, "tenant": p.Tenant, "roles": p.Roles},
	}, nil
}

// Serve serves the MCP endpoint at /mcp for holders of a token, and the pages
// that are in mux already, until ctx ends. Then it drains.
func Serve(ctx context.Context, addr string, mux *http.ServeMux, s *embedded.Server) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux.Handle("/mcp", auth.RequireBearerToken(Verify, nil)(s.Handler(nil)))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end() // there is no use in working on without a listener
		served <- web.Serve(l)
	}()
	fmt.Printf("listening on http://%s\n", l.Addr())

	ran := s.Run(ctx) // returns when it has drained
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	stopped := web.Shutdown(closing)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(ran, stopped, err)
	}
	return errors.Join(ran, stopped)
}
