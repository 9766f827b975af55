package client

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// silent is a server that is there and says nothing.
type silent struct{ tried chan struct{} }

func (s silent) Connect(ctx context.Context) (mcp.Connection, error) {
	select {
	case s.tried <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Nothing has been sent: nobody waits for a connection to cancel that.
func TestCancelDoesNotWaitForAConnection(t *testing.T) {
	m, err := OpenMemory(t.Context(), MemoryOptions{Path: filepath.Join(t.TempDir(), "calls.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := silent{make(chan struct{}, 1)}
	c, err := New(Options{Memory: m, Server: "desk", Transport: func() (mcp.Transport, error) { return s, nil }, Limits: Limits{Outage: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := c.Start(t.Context(), "x", json.RawMessage("{}"))
	if err != nil {
		t.Fatal(err)
	}
	<-s.tried // and the others wait for the same connection
	defer first.Cancel(t.Context())
	for name, cancel := range map[string]func(*Handle) error{
		"here":           func(h *Handle) error { return h.Cancel(t.Context()) },
		"from elsewhere": func(h *Handle) error { return m.Cancel(t.Context(), h.ID()) },
	} {
		h, err := c.Start(t.Context(), "x", json.RawMessage("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := cancel(h); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); !errors.Is(err, ErrCancelled) || h.Status().State != Cancelled {
			t.Errorf("%s: %v, %s", name, err, h.Status().State)
		}
	}
}
