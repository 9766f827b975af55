package trace

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Transport wraps a transport that is not HTTP. What it carries is not changed.
func (t *Tracer) Transport(next mcp.Transport) mcp.Transport { return transport{t, next} }

type transport struct {
	*Tracer
	next mcp.Transport
}

func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.next.Connect(ctx)
	if err != nil {
		t.line("← %s", visible(err.Error()))
		return nil, err
	}
	return connection{c, t.Tracer}, nil
}

type connection struct {
	mcp.Connection
	t *Tracer
}

func (c connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		c.t.line("← %s", visible(err.Error()))
		return m, err
	}
	c.show("←", m)
	return m, nil
}

func (c connection) Write(ctx context.Context, m jsonrpc.Message) error {
	c.show("→", m)
	return c.Connection.Write(ctx, m)
}

func (c connection) show(arrow string, m jsonrpc.Message) {
	raw, err := jsonrpc.EncodeMessage(m)
	switch {
	case err != nil:
		c.t.line("%s (a message that does not encode)", arrow)
	case len(raw) > maxShown:
		c.t.line("%s (a message of %d bytes)", arrow, len(raw))
	default:
		c.t.line("%s %s", arrow, c.t.mask.message(raw))
	}
}
