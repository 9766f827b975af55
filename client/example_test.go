package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// region answerer
// chat asks one person in a chat.
type chat struct {
	ask func(ctx context.Context, message string) (yes bool, err error)
}

func (chat) Kinds() []client.Kind { return []client.Kind{client.Form} }

func (c chat) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	yes, err := c.ask(ctx, q.Server+" asks: "+q.Message)
	if err != nil {
		return client.Answer{}, err // it stays open
	}
	if !yes {
		return client.Decline(), nil
	}
	return client.Accept(map[string]any{"confirm": true})
}

// endregion

func Example() {
	desk, stop := exampleDesk()
	defer stop()
	folder, err := os.MkdirTemp("", "client-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()
	person := chat{func(_ context.Context, message string) (bool, error) {
		fmt.Println(message)
		return true, nil
	}}

	// region call
	memory, err := client.OpenMemory(ctx, client.MemoryOptions{Path: filepath.Join(folder, "calls.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close()
	c, err := client.New(client.Options{
		Memory: memory, Server: "refunds", Answerer: person,
		Transport: func() (mcp.Transport, error) {
			return &mcp.StreamableClientTransport{Endpoint: desk.URL, HTTPClient: &http.Client{Transport: desk.Auth}}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	// What an earlier process has begun and not brought to its end.
	unfinished, err := c.Resume(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range unfinished {
		if _, err := h.Wait(ctx); err != nil {
			log.Print(err)
		}
	}

	result, err := c.Call(ctx, "refund", map[string]string{"order": "1001"})
	switch {
	case errors.Is(err, client.ErrUnknown):
		log.Fatal(err) // it may have been done: look before it is done again
	case err != nil:
		log.Fatal(err)
	}
	// endregion
	fmt.Println(result.StructuredContent)
	// Output:
	// refunds asks: Refund 1001?
	// map[order:R-1001]
}
