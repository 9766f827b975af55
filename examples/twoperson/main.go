// Command twoperson is a server with one tool, which transfers money once two
// people of finance have approved it on a web page.
//
//	go run ./examples/twoperson
//
// The MCP endpoint is http://127.0.0.1:8080/mcp, a bearer token "ann". The page
// is http://127.0.0.1:8080/, where frida and felix (their passwords are their
// names) decide.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/examples/internal/web"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "twoperson-data", "`folder` for calls and keys, kept over restarts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *data); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, data string) error {
	s, err := embedded.Open(data, mcp.NewServer(&mcp.Implementation{Name: "twoperson", Version: "1"}, nil), &tallystick.Options{
		AnswerAt: func(string, tallystick.Waiting) string { return "the approvals page" },
	})
	if err != nil {
		return err
	}
	defer s.Close()
	Add(s.Server, &Bank{})
	mux := http.NewServeMux()
	mux.Handle("/", Page(s.Server))
	return web.Serve(ctx, addr, mux, s)
}
