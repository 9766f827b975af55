// Command after is a server of the official SDK with two tools, one of which
// closes accounts: once its caller has confirmed it, and once. Command before,
// in the folder beside it, is the same without that.
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

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
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

func addClose(s *tallystick.Server, a *Accounts) {
	tallystick.AddTool(s, &mcp.Tool{Name: "close", Description: "Closes an account and pays out what is on it."}, nil,
		func(ctx context.Context, call *tallystick.Call, in accountArgs) (*mcp.CallToolResult, amount, error) {
			if err := call.Confirm(tallystick.Question{Key: "sure", Message: "Close " + in.Account + "?"}); err != nil {
				return nil, amount{}, err
			}
			n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "close", Subject: in.Account},
				func(ctx context.Context, _ string) (int, error) { return a.Close(ctx, in.Account) })
			return nil, amount{n}, err
		})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "accounts", Version: "1"}, nil)
	accounts := NewAccounts()
	addBalance(server, accounts)
	safe, err := embedded.Open("accounts-data", server, nil)
	if err != nil {
		log.Fatal(err)
	}
	addClose(safe.Server, accounts)
	go func() { log.Fatal(safe.Run(context.Background())) }()
	http.Handle("/mcp", auth.RequireBearerToken(web.Verify, nil)(safe.Handler(nil)))
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", l.Addr())
	log.Fatal(http.Serve(l, nil))
}
