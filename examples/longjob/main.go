// Command longjob is a server with one tool, which imports a list of customers
// for a while, says how far it is, and asks in the middle what to do with those
// that are known already.
//
// To a client that declares the Tasks extension the call is a task, which goes
// on when the server is killed and started again. To others it is a request
// that asks in rounds.
//
//	go run ./examples/longjob
//
// The MCP endpoint is http://127.0.0.1:8080/mcp, a bearer token "ann".
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/examples/internal/web"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "longjob-data", "`folder` for calls and keys, kept over restarts")
	pause := flag.Duration("pause", time.Second, "how `long` ten rows take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *data, *pause); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, data string, pause time.Duration) error {
	s, err := embedded.Open(data, mcp.NewServer(&mcp.Implementation{Name: "longjob", Version: "1"}, nil), nil)
	if err != nil {
		return err
	}
	defer s.Close()
	Add(s.Server, NewCRM(), pause)
	return web.Serve(ctx, addr, http.NewServeMux(), s)
}
