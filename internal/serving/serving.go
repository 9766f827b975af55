// Package serving is the HTTP side of the servers that tests start as processes
// (internal/child).
package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve serves MCP at /mcp of the address until ctx ends, and drains: running
// work is handed back, open requests are finished. run is the server's Run; it
// returns when it has drained. Once the server answers, "listening on " and its
// URL are printed; token, if any, is whose it is asked with.
func Serve(ctx context.Context, addr string, h http.Handler, run func(context.Context) error, token string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end() // there is no use in working on without a listener
		served <- web.Serve(l)
	}()
	go announce(ctx, "http://"+l.Addr().String()+"/mcp", token)

	ran := run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	stopped := web.Shutdown(closing)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(ran, stopped, err)
	}
	return errors.Join(ran, stopped)
}

// announce says where the server is once it no longer answers that it is not
// ready.
func announce(ctx context.Context, url, token string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				fmt.Println("listening on", url)
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}
