package tallystick_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// A desk is a server under test, served over HTTP with bearer tokens that name
// their holder: "subject/tenant/role,role/client/expiry".
type desk struct {
	t     *testing.T
	sdk   *mcp.Server
	srv   *tallystick.Server
	store store.Store
	clock *clock
	url   string
	stop  func()
	ids   atomic.Int64
	log   *bytes.Buffer
}

// clock is a store's clock that tests move.
type clock struct {
	mu   sync.Mutex
	skew time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skew)
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// setup changes a desk before it is served.
type setup struct {
	opts  tallystick.Options
	tools func(d *desk)
	sdk   *mcp.Server
	clock *clock
}

func newDesk(t *testing.T, s setup) *desk {
	t.Helper()
	d := &desk{t: t, sdk: s.sdk, clock: s.clock, log: &bytes.Buffer{}}
	if d.sdk == nil {
		d.sdk = mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	}
	if d.clock == nil {
		d.clock = &clock{}
	}
	if s.opts.Store == nil {
		s.opts.Store = memory.New(memory.Options{Now: d.clock.Now})
	}
	d.store = s.opts.Store
	if s.opts.Keys == nil {
		ks, err := seal.NewKeyset()
		if err != nil {
			t.Fatal(err)
		}
		s.opts.Keys = ks.AEAD()
	}
	if s.opts.Limits.InlineWait == 0 {
		s.opts.Limits.InlineWait = 200 * time.Millisecond
	}
	if s.opts.Limits.Drain == 0 {
		s.opts.Limits.Drain = 2 * time.Second
	}
	if s.opts.Log == nil {
		s.opts.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: d.log}, nil))
	}
	srv, err := tallystick.New(d.sdk, &s.opts)
	if err != nil {
		t.Fatal(err)
	}
	d.srv = srv
	if s.tools != nil {
		s.tools(d)
	}
	d.serve()
	return d
}

func (d *desk) serve() {
	d.t.Helper()
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		f := append(strings.Split(token, "/"), "", "", "", "")
		expires := time.Now().Add(time.Hour)
		if at, err := time.Parse(time.RFC3339Nano, f[4]); err == nil {
			expires = at
		}
		info := &auth.TokenInfo{UserID: f[0], Expiration: expires, Extra: map[string]any{"iss": "test", "tenant": f[1], "client_id": f[3]}}
		if f[2] != "" {
			info.Extra["roles"] = strings.Split(f[2], ",")
		}
		return info, nil
	}
	inner := judged(d.t, d.srv.Handler(nil))
	checked := auth.RequireBearerToken(verify, nil)(inner)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			inner.ServeHTTP(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	}))
	d.url = web.URL
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- d.srv.Run(ctx) }()
	var once sync.Once
	d.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ran; err != nil {
				d.t.Errorf("Run: %v", err)
			}
			web.Close()
		})
	}
	d.t.Cleanup(d.stop)
	for range 200 {
		resp, err := http.Get(d.url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	d.t.Fatal("the server did not get ready")
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// A caller sends modern requests, as somebody with some capabilities.
type caller struct {
	d     *desk
	token string
	caps  string
}

const (
	capsForm  = bazaar.CapsForm
	capsTasks = bazaar.CapsTasks
	capsNone  = bazaar.CapsNone
)

func (d *desk) as(token, caps string) caller { return caller{d, token, caps} }

// A reply is what came back.
type reply struct {
	status int
	result map[string]any
	err    *rpcError
	raw    string
}

type rpcError bazaar.RPCError

func (r reply) text() string {
	content, _ := r.result["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	block, _ := content[0].(map[string]any)
	s, _ := block["text"].(string)
	return s
}

func (r reply) outcome() string {
	meta, _ := r.result["_meta"].(map[string]any)
	s, _ := meta["tallystick/outcome"].(string)
	return s
}

func (r reply) state() string { s, _ := r.result["requestState"].(string); return s }
func (r reply) typ() string   { s, _ := r.result["resultType"].(string); return s }
func (r reply) isError() bool { b, _ := r.result["isError"].(bool); return b }

func (r reply) keys() []string {
	var keys []string
	m, _ := r.result["inputRequests"].(map[string]any)
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// send posts one request; more adds members to params.
func (c caller) send(method, name string, more map[string]any) reply {
	c.d.t.Helper()
	r, err := c.try(context.Background(), method, name, more)
	if err != nil {
		c.d.t.Fatal(err)
	}
	return r
}

func (c caller) try(ctx context.Context, method, name string, more map[string]any) (reply, error) {
	r, err := bazaar.Caller{URL: c.d.url, Token: c.token, Caps: c.caps}.Send(ctx, method, name, more)
	return replyOf(r), err
}

func replyOf(r bazaar.Reply) reply { return reply{r.Status, r.Result, (*rpcError)(r.Err), r.Raw} }

func (c caller) call(tool string, args map[string]any) reply {
	c.d.t.Helper()
	return c.send("tools/call", tool, map[string]any{"arguments": args})
}

// retry answers a round.
func (c caller) retry(tool string, args map[string]any, state string, answers map[string]any) reply {
	c.d.t.Helper()
	return c.send("tools/call", tool, map[string]any{"arguments": args, "requestState": state, "inputResponses": answers})
}

func accept(content map[string]any) map[string]any {
	return map[string]any{"action": "accept", "content": content}
}

var yes = accept(map[string]any{"confirm": true})

// await polls a task until done.
func (c caller) await(id string, done func(reply) bool) reply {
	c.d.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		r := c.send("tasks/get", id, nil)
		if done(r) {
			return r
		}
		if time.Now().After(deadline) {
			c.d.t.Fatalf("the task did not get there: %s", r.raw)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func status(want string) func(reply) bool {
	return func(r reply) bool { return r.result["status"] == want }
}

// trail returns the audit events of a call.
func (d *desk) trail(call string) []record.Entry {
	d.t.Helper()
	rows, err := d.store.Audit(context.Background(), store.AuditQuery{Call: call, Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	var entries []record.Entry
	for _, r := range rows {
		entries = append(entries, r.Entry)
	}
	return entries
}

func (d *desk) audited(call, event string, reason record.Reason) bool {
	for _, e := range d.trail(call) {
		if e.Event == event && (reason == "" || e.Reason == reason) {
			return true
		}
	}
	return false
}
