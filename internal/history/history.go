// Package history is one history of requests and of people that takes a server
// through every transition of the law, for tests of what a fault at any of its
// writes would mean.
//
// It is told in chapters, which share a store or have one each. Clients see no
// crash: what got no response is sent again, with the same state, the same
// answers and the same idempotency key. Chapters run in a testing/synctest
// bubble, so that hours take no time.
package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
)

// A Chapter is a part of the history that stands by itself.
type Chapter struct {
	Name string
	tool string // that it calls
	play func(w *World)
}

// A World is what a crash does not undo: clients, people, the far side, and what
// was seen of the store.
type World struct {
	T testing.TB
	// Boot gives the store of the next process over what is durable, and how to
	// let go of it once that process is gone.
	Boot func() (s *faulty.Store, release func())
	// Tap is what the stores that Boot gives write through.
	Tap *Tap
	// Faithful: writes never fail but by a crash, so that everything comes to
	// the end that it is to have.
	Faithful bool

	far    far
	called []string // tools that are needed: to add one takes longer than a call
	keys   tink.AEAD
	ends   []end
	mu     sync.Mutex // guards may
	may    func(a tallystick.Access) error
	proc   *process
	ids    int
	deaths int
}

// Play plays chapters and checks what was promised.
func (w *World) Play(chapters ...Chapter) {
	w.T.Helper()
	keys, err := sharedKeys()
	if err != nil {
		w.T.Fatal(err)
	}
	w.keys = keys
	defer func() {
		if w.proc != nil {
			w.proc.stop()
		}
	}()
	for _, c := range chapters {
		w.called = append(w.called, c.tool)
	}
	for _, c := range chapters {
		c.play(w)
		if w.T.Failed() {
			w.T.Logf("in chapter %s", c.Name)
			return
		}
		w.quiet()
		w.told()
	}
	w.proc.stop()
	w.proc = nil
	w.ledger()
	w.replay()
}

// sharedKeys are those of every world: to make some takes longer than a chapter.
var sharedKeys = sync.OnceValues(func() (tink.AEAD, error) {
	ks, err := seal.NewKeyset()
	if err != nil {
		return nil, err
	}
	return ks.AEAD(), nil
})

// A process is a server, until it is stopped or killed.
type process struct {
	srv     *tallystick.Server
	web     http.Handler
	store   *faulty.Store
	release func()
	cancel  context.CancelFunc
	ran     chan error
	flights sync.WaitGroup // requests that it serves, and that may have lost their client
}

// alive returns the process that serves now. If the last one was killed, it
// starts the next.
func (w *World) alive() *process {
	w.T.Helper()
	for tries := 0; ; tries++ {
		if w.proc != nil {
			select {
			case <-w.proc.store.Killed():
				w.deaths++
				w.proc.stop()
				w.proc = nil
			default:
				return w.proc
			}
		}
		if tries > 20 {
			w.T.Fatal("every process is killed at once")
		}
		w.start()
	}
}

func (w *World) start() {
	w.T.Helper()
	p := &process{ran: make(chan error, 1)}
	p.store, p.release = w.Boot()
	srv, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "history", Version: "1"}, nil), &tallystick.Options{
		Store: p.store, Keys: w.keys, Node: "node", Log: slog.New(slog.DiscardHandler),
		Identify: identify, Authorize: w.authorize,
		Limits: tallystick.Limits{Drain: 4 * time.Second, Retention: 2 * time.Hour},
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.tools(srv)
	p.srv, p.web = srv, srv.Handler(nil)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.ran <- srv.Run(ctx) }()
	w.proc = p
}

// stop lets a process end: in good order, or if it was killed, whatever it
// still does.
func (p *process) stop() {
	p.cancel()
	<-p.ran
	p.flights.Wait()
	p.release()
}

// Restart stops the server in good order, and starts the next one.
func (w *World) restart() {
	w.T.Helper()
	w.alive().stop()
	w.proc = nil
	w.alive()
}

// crash kills the process.
func (w *World) crash() { w.alive().store.Kill() }

func identify(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
	if extra == nil || extra.Header == nil {
		return tallystick.Identity{}, nil
	}
	return person(strings.TrimPrefix(extra.Header.Get("Authorization"), "Bearer ")), nil
}

// person is somebody by name. eve and dan are of finance, ops is an operator.
func person(name string) tallystick.Identity {
	id := tallystick.Identity{Issuer: "test", Tenant: "acme", Subject: name}
	switch name {
	case "eve", "dan":
		id.Roles = []string{"finance"}
	case "ops":
		id.Roles = []string{"operator"}
	}
	return id
}

func (w *World) authorize(_ context.Context, a tallystick.Access) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.may == nil {
		return nil
	}
	return w.may(a)
}

// allow changes what Authorize says; nil: everything is allowed.
func (w *World) allow(may func(a tallystick.Access) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.may = may
}

// A reply is what a client got, and what for.
type reply struct {
	w                 *World
	who, method, name string
	params            map[string]any
	Result            map[string]any
	Code              int
	Reason            string // of the error's data
	raw               string
}

// internal is the code of an error after which nothing is known: clients say the
// same again.
const internal = -32603

// send sends a request until there is a response, as a client does that has lost
// its connection, or was told that something went wrong.
func (w *World) send(who, method, name string, params map[string]any) reply {
	w.T.Helper()
	for tries := 0; ; tries++ {
		p := w.alive()
		r, ok := w.try(context.Background(), p, who, method, name, params)
		switch {
		case !ok:
			continue
		case tries < 50 && (strings.Contains(r.raw, "draining") || r.Code == internal && !strings.Contains(r.raw, `"outcome"`)):
			time.Sleep(50 * time.Millisecond)
			continue
		}
		w.heard(r)
		return r
	}
}

// try sends a request once. ok: there was a response before the process died.
func (w *World) try(ctx context.Context, p *process, who, method, name string, params map[string]any) (r reply, ok bool) {
	w.T.Helper()
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(`{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`),
	}
	all := map[string]any{"_meta": meta, "name": name}
	if strings.HasPrefix(method, "tasks/") {
		all = map[string]any{"_meta": meta, "taskId": name}
	}
	for k, v := range params {
		if k == "key" {
			meta["tallystick/idempotencyKey"] = v
		} else {
			all[k] = v
		}
	}
	w.ids++
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": w.ids, "method": method, "params": all})
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	req := httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/mcp", bytes.NewReader(body))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + who,
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		req.Header.Set(k, v)
	}
	rec := httptest.NewRecorder()
	if !p.do(func() { p.web.ServeHTTP(rec, req) }) {
		return r, false
	}
	r = reply{w: w, who: who, method: method, name: name, params: params, raw: rec.Body.String()}
	if rec.Code == http.StatusServiceUnavailable {
		r.raw = "draining"
		return r, true
	}
	var msg struct {
		Result map[string]any
		Error  *struct {
			Code int
			Data struct{ Reason string }
		}
	}
	body = rec.Body.Bytes()
	if strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(rec.Body.Bytes()) { // the response is the last event
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				body = data
			}
		}
	}
	if err := json.Unmarshal(body, &msg); err != nil {
		w.T.Fatalf("%s %s: HTTP %d, %s", method, name, rec.Code, r.raw)
	}
	r.Result = msg.Result
	if msg.Error != nil {
		r.Code, r.Reason = msg.Error.Code, msg.Error.Data.Reason
	}
	return r, true
}

// do runs f for a client, and reports whether it came to its end before the
// process's.
func (p *process) do(f func()) bool {
	done := make(chan struct{})
	p.flights.Go(func() {
		defer close(done)
		f()
	})
	select {
	case <-p.store.Killed():
		return false
	case <-done:
	}
	select {
	case <-p.store.Killed(): // what it may still have said was never heard
		return false
	default:
		return true
	}
}

// decide decides out of band, again if it is not known what came of it.
func (w *World) decide(who string, d tallystick.Decision) error {
	w.T.Helper()
	unsure := false
	for tries := 0; ; tries++ {
		p := w.alive()
		var err error
		if !p.do(func() { err = p.srv.Decide(context.Background(), person(who), d) }) {
			unsure = true
			continue
		}
		switch {
		case err == nil, unsure && errors.Is(err, tallystick.ErrSettled):
			return nil
		case isNot(err), tries > 50:
			return err
		}
		unsure = true
		time.Sleep(50 * time.Millisecond)
	}
}

// durable is the store under all processes.
func (w *World) durable() store.Store { return w.Tap }
