// Command server is what clients that others wrote are tried against: a desk
// with tools, a prompt and a resource that ask, on Tallystick's public API. It
// serves both eras, over HTTP to holders of a token, or with -stdio.
//
// What its effects did is in the file effects.jsonl of the folder -data.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	data := flag.String("data", "", "`folder` for calls, keys and the ledger (required)")
	stdio := flag.Bool("stdio", false, "serve over standard input and output instead")
	flag.Parse()
	if *data == "" {
		log.Fatal("-data is required: the folder for calls, keys and the ledger")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *data, *stdio); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, data string, stdio bool) error {
	plain := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	// Whoever waits for somebody else is told so after a second.
	s, err := embedded.Open(data, plain, &tallystick.Options{Limits: tallystick.Limits{InlineWait: time.Second}})
	if err != nil {
		return err
	}
	defer s.Close()
	add(s.Server, ledger(filepath.Join(data, "effects.jsonl")))
	if stdio {
		return overStdio(ctx, s, plain)
	}
	return overHTTP(ctx, s, addr)
}

// overStdio serves until the client closes its end, and then drains.
func overStdio(ctx context.Context, s *embedded.Server, plain *mcp.Server) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(working) }()
	err := plain.Run(ctx, s.Transport(&mcp.StdioTransport{}))
	if ctx.Err() != nil {
		err = nil // told to stop
	}
	stop()
	return errors.Join(err, <-ran)
}

// overHTTP serves until ctx ends, and then drains.
func overHTTP(ctx context.Context, s *embedded.Server, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", auth.RequireBearerToken(verify, nil)(s.Handler(nil)))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end() // there is no use in working on without a listener
		served <- web.Serve(l)
	}()
	go announce(ctx, "http://"+l.Addr().String()+"/mcp")

	ran := s.Run(ctx) // returns when it has drained
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
func announce(ctx context.Context, url string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer ann")
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

// verify takes ann and frida, whose names are their tokens. Frida is of finance.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	roles := map[string][]string{"ann": {"clerk"}, "frida": {"finance"}}[token]
	if roles == nil {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{
		UserID: token, Expiration: time.Now().Add(time.Hour),
		Extra: map[string]any{"iss": "interop", "tenant": "acme", "roles": roles},
	}, nil
}
