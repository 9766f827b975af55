package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Stdio is a transport of newline-delimited messages, as the SDK's IOTransport,
// but a line that is malformed or longer than limits.BodyBytes costs the client
// one error and not the connection, a batch is refused, and ids of any size
// come back unchanged.
//
// Both ends are closed with the connection. Reading stops with in: if its Close
// does not end a Read, as with a terminal, one goroutine stays until it does.
func Stdio(in io.ReadCloser, out io.WriteCloser, limits Limits) mcp.Transport {
	return &stdio{in: in, out: out, limits: limits.withDefaults()}
}

type stdio struct {
	in     io.ReadCloser
	out    io.WriteCloser
	limits Limits
}

// Connect implements [mcp.Transport].
func (s *stdio) Connect(context.Context) (mcp.Connection, error) {
	c := &stdioConn{
		stdio:  s,
		ids:    newIDAlias(),
		lines:  make(chan line),
		closed: make(chan struct{}),
	}
	go c.readLines()
	return c, nil
}

// stdioExtra rides on a request to where its id is needed as it came.
type stdioExtra struct{ id json.RawMessage }

type line struct {
	text []byte
	long bool // over the limit; text is not kept
	err  error
}

type stdioConn struct {
	*stdio
	ids   idAlias
	lines chan line // from readLines

	writing   sync.Mutex // held while out is written
	closed    chan struct{}
	closeOnce sync.Once
	closeErr  error
}

// SessionID implements [mcp.Connection]: there is one session.
func (c *stdioConn) SessionID() string { return "" }

// Read implements [mcp.Connection].
func (c *stdioConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var l line
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, io.EOF
		case l = <-c.lines:
		}
		if l.err != nil {
			return nil, l.err
		}
		msg, err := c.message(l)
		if err != nil {
			return nil, err
		}
		if msg != nil {
			return msg, nil
		}
	}
}

// message makes the SDK's form of a line. A nil message was answered here.
func (c *stdioConn) message(l line) (jsonrpc.Message, error) {
	if l.long {
		return nil, c.writeLine(encodeError(nil, tooLarge(CodeInvalidRequest, "the line", "BodyBytes", c.limits.BodyBytes)))
	}
	if len(l.text) == 0 {
		return nil, nil
	}
	m, bad := parseMessage(l.text, c.limits)
	if bad != nil {
		return nil, c.writeLine(encodeError(m.ID, bad))
	}
	p := params{}
	if m.Method == methodCancelled {
		p, _ = parseParams(m.Params, m.strict, c.limits) // bad ones are the reader's to refuse
	}
	msg, err := jsonrpc.DecodeMessage(c.ids.in(l.text, m, p))
	if err != nil {
		// Only the SDK's own limit of nesting is left to be broken.
		if _, bad = parseParams(m.Params, m.strict, c.limits); bad == nil {
			bad = Errorf(CodeInvalidRequest, "the message cannot be read")
		}
		return nil, c.writeLine(encodeError(m.ID, bad))
	}
	if req, ok := msg.(*jsonrpc.Request); ok {
		req.Extra = &stdioExtra{m.ID}
	}
	return msg, nil
}

// Write implements [mcp.Connection].
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.writeLine(c.ids.out(b))
}

func (c *stdioConn) writeLine(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(b, '\n')) // one write, so that a crash leaves no half line
	return err
}

// Close implements [mcp.Connection].
func (c *stdioConn) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		c.closeErr = errors.Join(c.in.Close(), c.out.Close())
	})
	return c.closeErr
}

// readLines runs until the input ends or the connection closes.
func (c *stdioConn) readLines() {
	r := bufio.NewReaderSize(c.in, 64<<10)
	for {
		l := c.readLine(r)
		select {
		case c.lines <- l:
		case <-c.closed:
			return
		}
		if l.err != nil {
			return
		}
	}
}

// readLine reads one line, keeping at most limits.BodyBytes. A last line without
// its newline counts.
func (c *stdioConn) readLine(r *bufio.Reader) line {
	var l line
	for {
		part, err := r.ReadSlice('\n')
		if !l.long {
			l.text = append(l.text, part...)
		}
		if int64(len(l.text)) > c.limits.BodyBytes+int64(len("\r\n")) {
			l.long, l.text = true, nil
		}
		switch {
		case err == nil, err == io.EOF && (l.long || len(l.text) > 0):
			l.text = trimSpace(l.text)
			if int64(len(l.text)) > c.limits.BodyBytes {
				l.long, l.text = true, nil
			}
			return l
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			l.err = err
			return l
		}
	}
}

// trimSpace drops what JSON calls white space from both ends.
func trimSpace(b []byte) []byte {
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	for len(b) > 0 && space(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	return b
}
