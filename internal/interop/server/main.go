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
	"log"
	"net/http"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/internal/serving"
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
	return serving.Serve(ctx, addr, auth.RequireBearerToken(verify, nil)(s.Handler(nil)), s.Run, "ann")
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
