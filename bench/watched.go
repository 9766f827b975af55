package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/client"
)

// A counter counts the requests that a client sends, and can be a server that
// has no listens.
type counter struct {
	next     http.RoundTripper
	noListen bool
	sent     atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	if c.noListen && r.Header.Get("Mcp-Method") == "subscriptions/listen" {
		body := `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"method not found"}}`
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
		}, nil
	}
	return c.next.RoundTrip(r)
}

// watched has one client watch many tasks that wait for somebody else.
func watched(b *bench) (rows []row, err error) {
	for _, noListen := range []bool{false, true} {
		r, err := b.watch(noListen)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

func (b *bench) watch(noListen bool) (rows []row, err error) {
	how := "listening"
	if noListen {
		how = "polling"
	}
	p, err := b.open("tallystick", "watched-"+how)
	if err != nil {
		return nil, err
	}
	defer p.close(&err)
	through := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 256}
	defer through.CloseIdleConnections()
	counted := &counter{next: through, noListen: noListen}
	before := liveMemory()
	c, end, err := b.newClient("watcher-"+how, p.address, nil, counted)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	handles, err := b.startAll(c)
	if err != nil {
		return nil, err
	}
	for _, h := range handles { // all are tasks
		for h.Status().Task == "" {
			select {
			case <-h.Done():
				_, err := h.Wait(context.Background())
				return nil, fmt.Errorf("a task ended: %w", err)
			case <-time.After(time.Millisecond):
			}
		}
	}
	time.Sleep(b.size.look / 2) // the last listens are opened
	sent, cpu := counted.sent.Load(), ownCPU()
	time.Sleep(b.size.look)
	rate := float64(counted.sent.Load()-sent) / b.size.look.Seconds()
	busy := (ownCPU() - cpu).Seconds() / b.size.look.Seconds()
	each := float64(liveMemory()-before) / float64(len(handles))
	runtime.KeepAlive(c)
	name := fmt.Sprintf("%d tasks watched by one client, %s: ", len(handles), how)
	return []row{
		{figure: name + "live memory, each", ours: fmt.Sprintf("%.1f KiB", each/1024)},
		{figure: name + "requests", ours: fmt.Sprintf("%.1f/s", rate), cpu: fmt.Sprintf("%.0f %% of a processor", 100*busy)},
	}, nil
}

func (b *bench) startAll(c *client.Client) ([]*client.Handle, error) {
	var mu sync.Mutex
	var handles []*client.Handle
	var first error
	var wg sync.WaitGroup
	var next atomic.Int64
	for range b.size.clients {
		wg.Go(func() {
			for next.Add(1) <= int64(b.size.watched) {
				h, err := c.Start(context.Background(), "others", approveArgs{nextOrder()})
				mu.Lock()
				if handles = append(handles, h); err != nil && first == nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return handles, first
}

func liveMemory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
