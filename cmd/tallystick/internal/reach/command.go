package reach

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// grace is how long a command has to end after its input has, and again after
// SIGTERM.
const grace = 2 * time.Second

// A command is a server that is a command. When the connection to it closes,
// all that it has started ends with it: a shell or npx passes on no signal.
type command struct{ cmd *exec.Cmd }

func (c command) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := (&mcp.CommandTransport{Command: c.cmd, TerminateDuration: grace}).Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &commandConn{Connection: conn, cmd: c.cmd}, nil
}

type commandConn struct {
	mcp.Connection
	cmd  *exec.Cmd
	once sync.Once
	err  error
}

// Close gives the command the time to end by itself, and then ends what is left
// of it.
func (c *commandConn) Close() error {
	c.once.Do(func() {
		c.err = c.Connection.Close()
		if err := endGroup(c.cmd.Process.Pid); err != nil {
			c.err = errors.Join(c.err, err)
		}
	})
	return c.err
}
