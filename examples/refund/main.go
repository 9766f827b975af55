// Command refund is a server with one tool, which refunds an order once
// somebody of finance has approved exactly that refund: if the order changes
// meanwhile, the approval is void and asked for again.
//
// The MCP endpoint is /mcp. The client of ann, who requests the refund, is told
// that it is pending; frida, who approves it, does so out of band:
//
//	go run ./examples/refund &
//	curl -H 'Authorization: Bearer frida' http://127.0.0.1:8080/waiting
//	curl -H 'Authorization: Bearer frida' http://127.0.0.1:8080/decide \
//	    -d '{"callId": "…", "key": "approve", "digest": "…", "accept": true}'
//
// Bearer tokens are the names of the people in package web.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/examples/internal/web"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "refund-data", "`folder` for calls and keys, kept over restarts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *data); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, data string) error {
	s, err := embedded.Open(data, mcp.NewServer(&mcp.Implementation{Name: "refund", Version: "1"}, nil), nil)
	if err != nil {
		return err
	}
	defer s.Close()
	Add(s.Server, NewShop())
	mux := http.NewServeMux()
	approvals(mux, s.Server)
	return web.Serve(ctx, addr, mux, s)
}

// approvals are two requests by which people with a token see what waits for
// them, and decide. A browser does not send bearer tokens by itself, so that no
// other page can have somebody decide unknowingly.
func approvals(mux *http.ServeMux, s *tallystick.Server) {
	known := auth.RequireBearerToken(web.Verify, nil)
	by := func(r *http.Request) tallystick.Identity {
		return web.People[auth.TokenInfoFromContext(r.Context()).UserID]
	}
	mux.Handle("GET /waiting", known(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, err := s.Waiting(r.Context(), by(r))
		if err != nil {
			http.Error(w, "the store does not answer", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // a client that is gone needs no answer
	})))
	mux.Handle("POST /decide", known(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d tallystick.Decision
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&d); err != nil {
			http.Error(w, "the decision cannot be read", http.StatusBadRequest)
			return
		}
		switch err := s.Decide(r.Context(), by(r), d); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, tallystick.ErrNoQuestion):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, tallystick.ErrSettled):
			http.Error(w, err.Error(), http.StatusConflict)
		case errors.Is(err, tallystick.ErrBadAnswer):
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		default:
			http.Error(w, "the store does not answer; nothing may have been recorded", http.StatusInternalServerError)
		}
	})))
}
