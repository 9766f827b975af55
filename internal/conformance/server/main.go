// Command server is the fixtures' server of the MCP conformance suite: every
// tool, prompt and resource that the suite of revision 2026-07-28 asks for, on
// Tallystick's public API. It has no authentication; keep it on 127.0.0.1.
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
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	data := flag.String("data", "", "`folder` for state and keys, kept over restarts (required)")
	flag.Parse()
	if *data == "" {
		log.Fatal("-data is required: the folder for state and keys")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *data); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, then drains: running work is handed back, open
// requests are finished, the store is closed.
func run(ctx context.Context, addr, data string) error {
	plain := mcp.NewServer(&mcp.Implementation{Name: "tallystick-conformance", Version: "1"}, &mcp.ServerOptions{CompletionHandler: complete})
	addPlainTools(plain)
	addPlainResources(plain)
	addPlainPrompts(plain)

	// The suite has no tokens, so every caller is anonymous.
	s, err := embedded.Open(data, plain, &tallystick.Options{AnonymousEffects: true})
	if err != nil {
		return err
	}
	defer s.Close()
	addRounds(s.Server)
	addBackground(s.Server)

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(nil))
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
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				fmt.Println("listening on", url)
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}
