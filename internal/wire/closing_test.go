package wire

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A deafConn is the connection of a client that sends some requests and reads
// nothing: not even Close ends a write to it.
type deafConn struct {
	requests chan jsonrpc.Message
	writing  chan struct{} // receives when a write begins
	release  chan struct{} // closed to end all writes
	closed   chan struct{}
	once     sync.Once
}

func (*deafConn) SessionID() string                                 { return "" }
func (c *deafConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }
func (c *deafConn) Close() error                                    { c.once.Do(func() { close(c.closed) }); return nil }

func (c *deafConn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.requests:
		return m, nil
	case <-c.closed:
		return nil, io.EOF
	}
}

func (c *deafConn) Write(context.Context, jsonrpc.Message) error {
	c.writing <- struct{}{}
	<-c.release
	return io.ErrClosedPipe
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whoever closes a connection waits for what runs on it, and not for ever: that
// would hold up the shutdown of the whole server.
func TestAClientThatDoesNotReadHoldsUpNoClose(t *testing.T) {
	for name, requests := range map[string][]string{
		"a call":           {call("1", "echo", "{}")},
		"a refusal":        {call("1", "", "{}")},
		"several, a queue": {call("1", "echo", "{}"), call("2", "", "{}"), call("3", "notify", "{}")},
		"a listen":         {strings.Replace(call("1", "", "{}"), `"tools/call","params":{"name":"","arguments":{}`, `"subscriptions/listen","params":{"notifications":{}`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			deaf := &deafConn{
				requests: make(chan jsonrpc.Message, len(requests)), writing: make(chan struct{}, 8),
				release: make(chan struct{}), closed: make(chan struct{}),
			}
			log := &lockedBuffer{}
			fake := newFake()
			fake.listens = true
			opened, err := NewTransport(deaf, fake, TransportOptions{Log: slog.New(slog.NewTextHandler(log, nil))}).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := opened.(*connection)
			c.farewell, c.leaving = 10*time.Millisecond, 50*time.Millisecond
			read := make(chan error, 1) // as the SDK reads
			go func() {
				_, err := c.Read(context.Background())
				read <- err
			}()
			for _, r := range requests {
				m, err := jsonrpc.DecodeMessage([]byte(r))
				if err != nil {
					t.Fatal(err)
				}
				deaf.requests <- m
			}
			<-deaf.writing
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			select {
			case err := <-closed:
				if err != nil {
					t.Errorf("Close: %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("Close does not return")
			}
			select {
			case err := <-read:
				if err == nil {
					t.Error("something was read after that")
				}
			case <-time.After(5 * time.Second):
				t.Error("Read does not return")
			}
			if !strings.Contains(log.String(), "still running") {
				t.Errorf("nothing says so: %q", log.String())
			}
			close(deaf.release)
			c.running.Wait() // nothing is left behind once the write has ended
		})
	}
}
