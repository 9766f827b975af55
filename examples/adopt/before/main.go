// Command before is a server of the official SDK with two tools, one of which
// closes accounts: at once, and again whenever it is called again. Command
// after, in the folder beside it, is the same with that tool made safe.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/examples/internal/web"
)

type accountArgs struct {
	Account string `json:"account"`
}

type amount struct {
	Euros int `json:"euros"`
}

func addBalance(s *mcp.Server, a *Accounts) {
	mcp.AddTool(s, &mcp.Tool{Name: "balance", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest, in accountArgs) (*mcp.CallToolResult, amount, error) {
			n, err := a.Balance(ctx, in.Account)
			return nil, amount{n}, err
		})
}

func addClose(s *mcp.Server, a *Accounts) {
	mcp.AddTool(s, &mcp.Tool{Name: "close", Description: "Closes an account and pays out what is on it."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in accountArgs) (*mcp.CallToolResult, amount, error) {
			n, err := a.Close(ctx, in.Account)
			return nil, amount{n}, err
		})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "accounts", Version: "1"}, nil)
	accounts := NewAccounts()
	addBalance(server, accounts)
	addClose(server, accounts)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	http.Handle("/mcp", auth.RequireBearerToken(web.Verify, nil)(handler))
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", l.Addr())
	log.Fatal(http.Serve(l, nil))
}
