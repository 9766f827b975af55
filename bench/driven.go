package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// A yesman answers every form at once.
type yesman struct{}

func (yesman) Kinds() []client.Kind { return []client.Kind{client.Form} }

func (yesman) Answer(context.Context, client.Question) (client.Answer, error) {
	return client.Accept(map[string]bool{"confirm": true})
}

// reach makes a transport to a server of ours.
func reach(address string, through http.RoundTripper) func() (mcp.Transport, error) {
	return func() (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/mcp", HTTPClient: &http.Client{Transport: through}}, nil
	}
}

// newClient is a client with a memory of its own.
func (b *bench) newClient(name, address string, a client.Answerer, through http.RoundTripper) (*client.Client, func() error, error) {
	memory, err := client.OpenMemory(context.Background(), client.MemoryOptions{Path: filepath.Join(b.folder, name, "calls.db")})
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Options{Memory: memory, Server: "bench", Transport: reach(address, through), Answerer: a})
	if err != nil {
		return nil, nil, errors.Join(err, memory.Close())
	}
	return c, func() error { return errors.Join(c.Close(), memory.Close()) }, nil
}

// atOnce makes calls from so many goroutines until the time is over.
func atOnce(goroutines int, length time.Duration, call func() error) (int, error) {
	var done atomic.Int64
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for range goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := call(); err != nil {
					once.Do(func() { first = err })
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return int(done.Load()), first
}

// driven has package client, and the SDK's own client, drive the same call in
// two rounds through the same server. Ours puts each step on disk.
func driven(b *bench) (rows []row, err error) {
	d, err := b.open("tallystick", "driven")
	if err != nil {
		return nil, err
	}
	defer d.close(&err)
	ctx := context.Background()
	through := &http.Transport{MaxIdleConnsPerHost: b.size.clients}
	defer through.CloseIdleConnections()
	c, end, err := b.newClient("driver", d.address, yesman{}, through)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	t, err := reach(d.address, through)()
	if err != nil {
		return nil, err
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
		},
	}).Connect(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	check := func(r *mcp.CallToolResult, err error) error {
		if err == nil && (r.IsError || r.StructuredContent == nil) {
			err = fmt.Errorf("the result is %+v", r)
		}
		return err
	}
	ours := func(length time.Duration) (int, error) {
		return atOnce(b.size.clients, length, func() error { return check(c.Call(ctx, "approve", approveArgs{nextOrder()})) })
	}
	theirs := func(length time.Duration) (int, error) {
		return atOnce(b.size.clients, length, func() error {
			return check(session.CallTool(ctx, &mcp.CallToolParams{Name: "approve", Arguments: approveArgs{nextOrder()}}))
		})
	}
	keyed := func(length time.Duration) (int, error) {
		return atOnce(b.size.clients, length, func() error {
			order := nextOrder()
			return check(session.CallTool(ctx, &mcp.CallToolParams{
				Meta: mcp.Meta{"tallystick/idempotencyKey": order}, Name: "approve", Arguments: approveArgs{order},
			}))
		})
	}
	both := func() (time.Duration, error) {
		server, err := d.cpu()
		return server + ownCPU(), err
	}
	own := func() (time.Duration, error) { return ownCPU(), nil }
	scores, err := b.turns(contender{"client", ours, both}, contender{"SDK's client", theirs, both}, contender{"SDK's client with keys", keyed, both})
	if err != nil {
		return nil, err
	}
	alone, err := b.turns(contender{"client", ours, own}, contender{"SDK's client", theirs, own})
	if err != nil {
		return nil, err
	}
	line := func(what, aim string, ours, other score) row {
		return row{figure: what, ours: ours.each(), baseline: other.each(), ratio: fmt.Sprintf("%.2f", median(ours.cpu)/median(other.cpu)), aim: aim, cpu: ours.rate() + ", baseline " + other.rate()}
	}
	return []row{
		line("a call of two rounds by package client, against the SDK's client: CPU of both ends", "≤ 1.2", scores[0], scores[1]),
		line("the same, the SDK's client with idempotency keys", "", scores[0], scores[2]),
		line("the same, without: CPU of the client", "", alone[0], alone[1]),
	}, nil
}
