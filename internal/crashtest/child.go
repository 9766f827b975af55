//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/internal/bazaar"
)

const (
	lease = 600 * time.Millisecond
	drain = 300 * time.Millisecond
	grace = 500 * time.Millisecond
)

// serve is the whole life of a server process. It drains at SIGTERM, and when
// whoever started it has gone.
func serve(folder, far string) error {
	opts := bazaar.Options(nil)
	opts.Identify = bazaar.Identify
	opts.Limits.Lease, opts.Limits.Drain, opts.Limits.Grace = lease, drain, grace
	opts.Limits.Settle = time.Second // a call's deadline may pass in the middle of an effect
	opts.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := embedded.Open(folder, mcp.NewServer(&mcp.Implementation{Name: "bazaar", Version: "1"}, nil), &opts)
	if err != nil {
		return err
	}
	bazaar.Add(s.Server, bazaar.Faraway(far))
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(nil))
	mux.Handle("/page", bazaar.Page(s.Server, s.Store))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	web := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, alone := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		alone()
	}()
	fmt.Printf("serving http://%s\n", l.Addr())
	err = errors.Join(s.Run(ctx), web.Close(), s.Close())
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// A child is a server process.
type child struct {
	cmd  *exec.Cmd
	in   io.Closer // it ends when this is closed
	out  *bufio.Reader
	log  *os.File
	dead chan struct{} // closed once it has ended
	err  error         // how, after that
}

// launch starts a server process, which may not serve yet.
func launch(self, folder, far string) (*child, error) {
	c := &child{cmd: exec.Command(self, "-serve", filepath.Join(folder, "data"), "-far", far), dead: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"=1", "GORACE=halt_on_error=1")
	var err error
	if c.log, err = os.OpenFile(filepath.Join(folder, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	c.cmd.Stderr = c.log
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, c.log.Close())
	}
	out, w, err := os.Pipe() // and not StdoutPipe, which Wait closes
	if err != nil {
		return nil, errors.Join(err, c.log.Close())
	}
	c.out, c.cmd.Stdout = bufio.NewReader(out), w
	err = c.cmd.Start()
	_ = w.Close() // it is the child's
	if err != nil {
		return nil, errors.Join(err, out.Close(), c.log.Close())
	}
	go func() {
		c.err = c.cmd.Wait()
		_ = out.Close()
		_ = c.log.Close()
		close(c.dead)
	}()
	return c, nil
}

// childVariable tells a test's binary that it is to be a server, and logFile is
// what servers have said.
const (
	childVariable = "TALLYSTICK_CRASHTEST_SERVER"
	logFile       = "server.log"
)

// ready waits until the server serves, and returns where.
func (c *child) ready(within time.Duration) (base string, err error) {
	over := time.AfterFunc(within, c.kill)
	defer over.Stop()
	line, err := c.out.ReadString('\n')
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if !ok {
		<-c.dead
		return "", fmt.Errorf("the server ended without serving: %w, %w", err, c.err)
	}
	for {
		resp, err := http.Get(base + "/mcp")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				return base, nil
			}
		}
		select {
		case <-c.dead:
			return "", fmt.Errorf("the server ended before it was ready: %w", c.err)
		case <-time.After(time.Millisecond):
		}
	}
}

// kill ends it as a crash does. It does not wait for that.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // it may have ended

// drained has it end by itself, and waits.
func (c *child) drained() error {
	c.signal(syscall.SIGTERM)
	select {
	case <-c.dead:
		return c.err
	case <-time.After(drain + grace + 10*time.Second):
		c.kill()
		<-c.dead
		return errors.New("the server was told to stop and did not")
	}
}
