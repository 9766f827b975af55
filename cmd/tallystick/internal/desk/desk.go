// Package desk is the refund desk of the demo: an MCP server whose tools need
// approvals, take long, and must not do anything twice.
package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/metric"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

// Options of a desk.
type Options struct {
	Data string // folder for all that survives a restart; made if need be
	Addr string // to listen on; loopback only, since there is no TLS
	Log  *slog.Logger
	// Metrics are served as Prometheus text on /metrics, to everybody who
	// reaches the address.
	Metrics bool
	// Ready is called with the desk's address once it answers.
	Ready func(url string)
}

type desk struct {
	srv    *embedded.Server
	shop   *Shop
	people People
	log    *slog.Logger
}

// Serve serves the desk until ctx ends, and then drains: what runs is brought
// to its end or handed back.
func Serve(ctx context.Context, o Options) (err error) {
	l, err := listen(ctx, o.Addr)
	if err != nil {
		return err
	}
	defer l.Close()
	url := "http://" + l.Addr().String()
	var provider metric.MeterProvider
	var page http.Handler
	if o.Metrics {
		if provider, page, err = metrics(); err != nil {
			return err
		}
	}
	d, err := open(o, url, provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.srv.Close(), d.shop.Close()) }()

	mux := http.NewServeMux()
	mux.Handle("/mcp", auth.RequireBearerToken(d.people.verify, nil)(d.srv.Handler(nil)))
	d.addApprovals(mux)
	if page != nil {
		mux.Handle("GET /metrics", page)
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn)}
	ctx, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end() // there is no use in working on without a listener
		served <- web.Serve(l)
	}()
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		d.announce(ctx, url, o.Ready)
	}()

	ran := d.srv.Run(ctx) // returns when it has drained
	end()
	<-announced
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	stopped := web.Shutdown(closing)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(ran, stopped, err)
	}
	return errors.Join(ran, stopped)
}

// listen refuses what others could reach: the tokens are sent in the clear.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q: the demo serves this machine only; use 127.0.0.1:PORT", addr)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
}

func open(o Options, url string, provider metric.MeterProvider) (*desk, error) {
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return nil, err
	}
	d := &desk{log: o.Log}
	var err error
	if d.people, err = LoadPeople(o.Data); err != nil {
		return nil, err
	}
	if d.shop, err = OpenShop(o.Data); err != nil {
		return nil, err
	}
	sdk := mcp.NewServer(&mcp.Implementation{Name: "refund-desk", Version: "1"}, nil)
	d.srv, err = embedded.Open(o.Data, sdk, &tallystick.Options{
		Authorize: d.people.authorize,
		Operators: tallystick.Who{Roles: []string{RoleOperator}},
		AnswerAt:  func(string, tallystick.Waiting) string { return url + "/" },
		Node:      "desk",
		Log:       o.Log,

		MeterProvider: provider,
		// Short, so that a reader does not wait: a newcomer's patience is not a
		// client's.
		Limits: tallystick.Limits{InlineWait: time.Second, Drain: 5 * time.Second},
	})
	if err != nil {
		return nil, errors.Join(err, d.shop.Close())
	}
	d.addTools()
	return d, nil
}

// announce says where the desk is once it no longer answers that it is not
// ready.
func (d *desk) announce(ctx context.Context, url string, ready func(string)) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mcp", http.NoBody)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+d.people[0].Token)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				ready(url)
				return
			}
		}
		_ = wait(ctx, 5*time.Millisecond)
	}
}
