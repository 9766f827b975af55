// Command server is the fixtures' server of the MCP conformance suite: every
// tool, prompt and resource that the suite of revision 2026-07-28 asks for, on
// Tallystick's public API. It has no authentication; keep it on 127.0.0.1.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/internal/serving"
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

	return serving.Serve(ctx, addr, s.Handler(nil), s.Run, "")
}
