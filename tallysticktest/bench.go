// Package tallysticktest tests the handlers of a tallystick.Server: with
// restarts, late answers, and a crash at every write to the store.
//
// [New] serves the tools that a test adds, on a store in memory whose clock the
// test moves. Requests go through the server's own HTTP handler, without a
// network, so that what a test sees is what a client would see. [CrashEverywhere]
// repeats a whole scenario and kills the server once at each write.
//
// What must not happen twice happens on the far side: keep that (a ledger, a
// fake shop) in the test, outside of the server, where it survives a crash.
//
// Everything works inside a testing/synctest bubble as well as outside of one.
package tallysticktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
)

// TB is what is used of a testing.TB: *testing.T, *testing.B and *testing.F
// are ones, and so can be what runs an example.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// patience is how long a bench waits, in real time, for something that ought to
// happen by itself.
const patience = 10 * time.Second

// drain is how long a dead server's goroutines have to notice. Its handlers'
// contexts end after half of it, its leases at its end.
const drain = 20 * time.Millisecond

// forever is a lease that no Advance outlives. A restart ends it all the same.
const forever = 10 * 365 * 24 * time.Hour

// A Bench is a server under test, which may die and start again on the same
// store. It is safe for concurrent use.
type Bench struct {
	t      TB
	add    func(*tallystick.Server)
	opts   tallystick.Options
	world  *world
	log    *logBuffer
	people people
	ids    atomic.Int64

	mu     sync.Mutex
	proc   *process
	closed bool
}

// New serves what add adds to a server. add is called again at every restart,
// for the server that is new then. The bench ends with the test.
//
// Of opts, which may be nil, Store must be nil. Unless they are given,
// Limits.InlineWait is 50 ms, so that "pending" comes soon, Limits.Drain is
// 20 ms, and Limits.Lease is so long that no Advance takes a call from a
// handler that is at work. Options.Log goes to the test's log if it fails.
func New(t TB, add func(s *tallystick.Server), opts *tallystick.Options) *Bench {
	t.Helper()
	return newBench(t, add, opts, fault{})
}

func newBench(t TB, add func(*tallystick.Server), opts *tallystick.Options, f fault) *Bench {
	t.Helper()
	b := &Bench{t: t, add: add, world: newWorld(f), log: &logBuffer{}}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Store != nil {
		t.Fatalf("tallysticktest.New: Options.Store must be nil: the bench has its own")
	}
	if b.opts.Keys == nil {
		keys, err := seal.NewKeyset()
		if err != nil {
			t.Fatalf("tallysticktest.New: %v", err)
		}
		b.opts.Keys = keys.AEAD()
	}
	l := &b.opts.Limits
	for _, d := range []struct {
		at *time.Duration
		to time.Duration
	}{{&l.InlineWait, 50 * time.Millisecond}, {&l.Drain, drain}, {&l.Lease, forever}} {
		if *d.at == 0 {
			*d.at = d.to
		}
	}
	if b.opts.Log == nil {
		b.opts.Log = slog.New(slog.NewTextHandler(b.log, nil))
	}
	t.Cleanup(b.close)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start()
	return b
}

// start makes the next process. The caller holds mu.
func (b *Bench) start() {
	b.t.Helper()
	p := newProcess(b.world, b.opts.Limits.Drain)
	opts := b.opts
	opts.Store = p
	srv, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "tallysticktest", Version: "1"}, nil), &opts)
	if err != nil {
		b.t.Fatalf("tallystick.New: %v", err)
	}
	b.add(srv)
	p.server = srv
	inner := srv.Handler(nil)
	known := auth.RequireBearerToken(b.people.verify, nil)(inner)
	p.web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			inner.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r)
	})
	go func() {
		defer close(p.ran)
		p.runErr = srv.Run(p.ctx)
	}()
	if err := p.ready(); err != nil {
		b.t.Fatalf("the server does not start: %v", err)
	}
	b.proc = p
}

// Server is the one that serves now: another one after a restart.
func (b *Bench) Server() *tallystick.Server { return b.current().server }

func (b *Bench) current() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc
}

// Restart kills the server and starts another one on the same store. It dies as
// in a crash: nothing is handed back, no write of it reaches the store any more,
// and requests in flight lose their connection. The contexts of its handlers
// end; one that does not heed that goes on, as a request would that a dead
// process had already sent.
func (b *Bench) Restart() {
	b.t.Helper()
	p := b.current()
	p.kill()
	b.revive(p)
}

// revive starts the process that comes after p, which is dead, unless somebody
// has done so already.
func (b *Bench) revive(p *process) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != p || b.closed {
		return
	}
	<-p.ran // its leases and contexts are over
	b.start()
}

// Advance moves the store's clock, by which questions, deadlines and retention
// go, and waits until what is due then has been looked at. Timers in handlers
// and on the far side run on real time.
func (b *Bench) Advance(d time.Duration) {
	b.t.Helper()
	b.world.advance(d)
	b.until("what is due is looked at", func() bool {
		b.mend()
		due, err := b.world.inner.Due(context.Background(), b.world.now(), 1, nil)
		return err == nil && len(due.Overdue) == 0
	})
}

// Now is the time on the store's clock.
func (b *Bench) Now() time.Time { return b.world.now() }

// Quiet waits until no handler is running and no call is ready to run: all have
// ended, or wait for somebody.
func (b *Bench) Quiet() {
	b.t.Helper()
	b.until("nothing runs", func() bool {
		b.mend()
		due, err := b.world.inner.Due(context.Background(), b.world.now(), 1, nil)
		return err == nil && len(due.Overdue) == 0 && b.world.quiet()
	})
}

// mend restarts the server if it has died.
func (b *Bench) mend() {
	if p := b.current(); p.isDead() {
		b.revive(p)
	}
}

// until waits for something that a change of the store, or a little time, will
// bring about.
func (b *Bench) until(what string, done func() bool) {
	b.t.Helper()
	limit := time.Now().Add(patience)
	for {
		changed := b.world.changed()
		if done() {
			return
		}
		if time.Now().After(limit) {
			b.t.Fatalf("waited %v in vain until %s\n%s", patience, what, b.Trail())
		}
		pause(changed)
	}
}

// pause waits for a change, or a little.
func pause(changed <-chan struct{}) {
	t := time.NewTimer(5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

// Audit is the audit trail so far, of all calls.
func (b *Bench) Audit() []record.Entry {
	b.t.Helper()
	var entries []record.Entry
	for after := int64(0); ; {
		rows, err := b.world.inner.Audit(context.Background(), store.AuditQuery{After: after, Limit: 1000})
		if err != nil {
			b.t.Fatalf("reading the audit trail: %v", err)
		}
		if len(rows) == 0 {
			return entries
		}
		for _, r := range rows {
			entries = append(entries, r.Entry)
			after = r.Seq
		}
	}
}

// Trail is the audit trail as text, for a failing test's log: a line per entry,
// the calls numbered in their order.
func (b *Bench) Trail() string {
	b.t.Helper()
	numbers := map[string]int{}
	var s strings.Builder
	for _, e := range b.Audit() {
		if _, ok := numbers[e.Call]; !ok {
			numbers[e.Call] = len(numbers) + 1
		}
		fmt.Fprintf(&s, "call %d: %-16s round %d, run %d, by %s %s", numbers[e.Call], e.Event, e.Round, e.Epoch, e.By.Channel, e.By.Subject)
		for _, part := range []struct{ name, value string }{{"key", e.Key}, {"effect", e.Effect}, {"note", e.Note}, {"reason", string(e.Reason)}, {"outcome", string(e.Outcome)}} {
			if part.value != "" {
				fmt.Fprintf(&s, ", %s %s", part.name, part.value)
			}
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// close ends the bench. Handlers that run are told to stop.
func (b *Bench) close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	p := b.proc
	b.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.ran
		if err := p.runErr; err != nil && !errors.Is(err, errDied) && !errors.Is(err, context.Canceled) {
			b.t.Errorf("Server.Run: %v", err)
		}
	}
	if b.t.Failed() {
		b.t.Logf("the server's log:\n%s", b.log.String())
	}
}

// people are those in whose name requests are sent: a bearer token each, so that
// the server learns who it is in the way it does in production.
type people struct {
	mu     sync.Mutex
	tokens map[string]tallystick.Identity
}

func (p *people) token(id tallystick.Identity) string {
	if id.Subject == "" {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokens == nil {
		p.tokens = map[string]tallystick.Identity{}
	}
	token := fmt.Sprintf("token-%d", len(p.tokens)+1)
	p.tokens[token] = id
	return token
}

func (p *people) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, ok := p.tokens[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{
		UserID: id.Subject, Scopes: id.Scopes, Expiration: time.Now().Add(forever),
		Extra: map[string]any{"iss": id.Issuer, "tenant": id.Tenant, "client_id": id.Client, "roles": id.Roles},
	}, nil
}

// logBuffer keeps what the servers log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
