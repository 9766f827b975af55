package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A conn is an HTTP client on one connection that is kept alive. It does as
// little as it can: it shares the processors with the server, and what it does
// itself would make all servers look alike.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte
	out  []byte
}

func dial(address string) (*conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// do sends a request as it is and returns the response's status and body. The
// body is good until the next request.
func (c *conn) do(request []byte) (status int, body []byte, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.line()
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, fmt.Errorf("a strange response: %q", line)
	}
	status, err = strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, nil, err
	}
	length := -1
	for {
		line, err := c.line()
		if err != nil {
			return 0, nil, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		if string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, nil, err
			}
		}
	}
	if length >= 0 {
		c.body, err = c.read(c.body[:0], length)
		return status, c.body, err
	}
	c.body = c.body[:0]
	for { // chunked
		line, err := c.line()
		if err != nil {
			return 0, nil, err
		}
		n, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return 0, nil, err
		}
		if c.body, err = c.read(c.body, int(n)); err != nil {
			return 0, nil, err
		}
		if _, err := c.line(); err != nil || n == 0 {
			return status, c.body, err
		}
	}
}

func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

func (c *conn) read(to []byte, n int) ([]byte, error) {
	start := len(to)
	to = append(to, make([]byte, n)...)
	_, err := io.ReadFull(c.in, to[start:])
	return to, err
}

// call sends a request, which must succeed, and returns the body.
func (c *conn) call(request []byte) ([]byte, error) {
	status, body, err := c.do(request)
	if err != nil {
		return nil, err
	}
	if status != 200 || bytes.Contains(body, []byte(`"error":{`)) {
		return nil, fmt.Errorf("status %d: %.500s", status, body)
	}
	return body, nil
}

// want is call, of which the body must contain something.
func (c *conn) want(request []byte, what string) ([]byte, error) {
	body, err := c.call(request)
	if err == nil && !bytes.Contains(body, []byte(what)) {
		err = fmt.Errorf("no %s in %.500s", what, body)
	}
	return body, err
}

// A message is a request in parts, so that what differs between two of them is
// all that has to be written.
type message struct {
	head []string // up to the content length
	body []string // what is filled in comes between
}

// place is a string to be filled in, and all of it.
const place = "{}"

// compose makes the request of a client that declares forms and tasks. The
// places in params are filled in in the order of the members' names. If name is
// one, it is the only one.
func compose(address, method, name string, params map[string]any) message {
	all := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "bench", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"elicitation": map[string]any{"form": map[string]any{}},
			"extensions":  map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}},
		},
	}}
	maps.Copy(all, params)
	if strings.HasPrefix(method, "tasks/") {
		all["taskId"] = name
	} else if name != "" {
		all["name"] = name
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": all})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	head := "POST /mcp HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: " + method + "\r\n"
	if name != "" {
		head += "Mcp-Name: " + name + "\r\n"
	}
	return message{strings.Split(head+"Content-Length: ", place), strings.Split(string(body), `"`+place+`"`)}
}

// fill is the request with its places filled in.
func (m message) fill(to []byte, with ...string) []byte {
	length := 0
	for i, part := range m.body {
		length += len(part)
		if i > 0 {
			length += len(with[i-1]) + 2
		}
	}
	to = to[:0]
	for i, part := range m.head {
		if i > 0 {
			to = append(to, with[0]...)
		}
		to = append(to, part...)
	}
	to = strconv.AppendInt(to, int64(length), 10)
	to = append(to, "\r\n\r\n"...)
	for i, part := range m.body {
		if i > 0 {
			to = append(append(append(to, '"'), with[i-1]...), '"')
		}
		to = append(to, part...)
	}
	return to
}

// member finds the string member of that name in a response.
func member(body []byte, name string) (string, error) {
	_, rest, ok := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, closed := bytes.Cut(rest, []byte(`"`))
	if !ok || !closed {
		return "", fmt.Errorf("no %s in %.500s", name, body)
	}
	return string(value), nil
}

// A crowd is clients that each have a connection to one server.
type crowd []*conn

func gather(address string, n int) (crowd, error) {
	var all crowd
	for range n {
		c, err := dial(address)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (all crowd) close() {
	for _, c := range all {
		_ = c.Close()
	}
}

// during has each client do one thing after the other until the time is over,
// and counts how many were done.
func (all crowd) during(length time.Duration, one func(client int, c *conn) error) (int, error) {
	end := time.Now().Add(length)
	return all.while(func(int) bool { return time.Now().Before(end) }, one)
}

// times has the clients do n things altogether.
func (all crowd) times(n int, one func(client int, c *conn) error) (int, error) {
	return all.while(func(i int) bool { return i < n }, one)
}

func (all crowd) while(more func(i int) bool, one func(client int, c *conn) error) (int, error) {
	var work sync.WaitGroup
	var begun, done atomic.Int64
	errs := make([]error, len(all))
	for client, c := range all {
		work.Go(func() {
			_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // a server that hangs fails the run
			for more(int(begun.Add(1)) - 1) {
				if errs[client] = one(client, c); errs[client] != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	work.Wait()
	return int(done.Load()), errors.Join(errs...)
}
