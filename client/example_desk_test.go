package client_test

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// deskAddress is where the example's server is, and how one is let in.
type deskAddress struct {
	URL  string
	Auth http.RoundTripper
}

// exampleDesk serves a refund tool that asks.
func exampleDesk() (deskAddress, func()) {
	keys, err := seal.NewKeyset()
	if err != nil {
		log.Fatal(err)
	}
	s, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "refunds", Version: "1"}, nil), &tallystick.Options{
		Store: memory.New(memory.Options{}), Keys: keys.AEAD(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "refund"}, nil, func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, order, error) {
		if err := call.Confirm(tallystick.Question{Key: "sure", Message: "Refund " + in.Order + "?"}); err != nil {
			return nil, order{}, err
		}
		return nil, order{"R-" + in.Order}, nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	web := httptest.NewServer(auth.RequireBearerToken(verify, nil)(s.Handler(nil)))
	return deskAddress{web.URL, bearer{"ann", &http.Transport{}}}, func() {
		stop()
		if err := <-ran; err != nil {
			log.Print(err)
		}
		web.CloseClientConnections()
		web.Close()
	}
}
