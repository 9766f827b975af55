package tallysticktest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// errDied is the error of everything that a dead process asks of its store.
var errDied = errors.New("tallysticktest: this server is dead")

// A world is what survives a crash: the store and the time.
type world struct {
	inner *memory.Store

	mu     sync.Mutex
	skew   time.Duration
	moved  chan struct{} // closed by the next advance
	to     time.Time     // where the last advance led
	change chan struct{} // closed by the next commit
	busy   map[string]bool
	writes int
	fault  fault
	struck bool // the fault has happened
}

func newWorld(f fault) *world {
	w := &world{moved: make(chan struct{}), change: make(chan struct{}), busy: map[string]bool{}, fault: f}
	w.inner = memory.New(memory.Options{Now: w.now})
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew)
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
	w.to = time.Now().Add(w.skew)
	close(w.moved)
	w.moved = make(chan struct{})
}

// closed is a channel that always receives.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wake returns a channel that receives at the next advance, or at once for who
// last looked before the latest one: it may have read the clock just before.
func (w *world) wake(seen time.Time) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen.Before(w.to) {
		return closed
	}
	return w.moved
}

// changed returns a channel that receives after the next commit.
func (w *world) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.change
}

// commit applies a change and tells who waits for one.
func (w *world) commit(ctx context.Context, c record.Change) error {
	err := w.inner.Commit(ctx, c)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Remove:
		delete(w.busy, c.ID)
	case c.After != nil:
		w.busy[c.After.ID] = c.After.State == record.Ready || c.After.State == record.Running
	}
	close(w.change)
	w.change = make(chan struct{})
	return nil
}

// strikes counts a write and reports whether the process dies at it. What is
// counted outside of calls, in batches, is no write to die at: when it comes
// depends on the time.
func (w *world) strikes(c record.Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.ID == "" {
		return false
	}
	w.writes++
	strikes := w.writes == w.fault.write
	w.struck = w.struck || strikes
	return strikes
}

// history is how many writes there were, and whether a process died at one.
func (w *world) history() (writes int, struck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes, w.struck
}

// quiet reports whether no call is running or ready to.
func (w *world) quiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.busy {
		if b {
			return false
		}
	}
	return true
}

// A fault says at which write the process dies; write 0: at none.
type fault struct {
	write int
	after bool // the write is applied, and nobody hears
}

// A process is one server's life. It is the server's store: it passes
// everything to the world until it dies.
type process struct {
	world  *world
	server *tallystick.Server
	web    http.Handler
	drain  time.Duration

	ctx    context.Context // of Server.Run
	cancel context.CancelFunc
	ran    chan struct{} // closed when Run has returned
	runErr error         // of Run; read it after ran

	mu   sync.RWMutex  // held through each use of the world; death takes it alone
	seen time.Time     // the time by which it last looked for what is due
	dead chan struct{} // closed by death
	gone chan struct{} // closed when its goroutines have had time to notice
}

var _ store.Store = (*process)(nil)

func newProcess(w *world, drain time.Duration) *process {
	p := &process{world: w, drain: drain, ran: make(chan struct{}), dead: make(chan struct{}), gone: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// ready waits until the server works: connecting waits for that.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.ran:
			cancel()
		case <-stop:
		}
	}()
	_, err := p.server.Transport(nowhere{}).Connect(ctx)
	if errors.Is(err, errNowhere) {
		return nil
	}
	select {
	case <-p.ran:
		return p.runErr
	default:
		return err
	}
}

// nowhere is a transport to nobody, with which to see that a server is ready.
type nowhere struct{}

var errNowhere = errors.New("connected to nobody")

func (nowhere) Connect(context.Context) (mcp.Connection, error) { return nil, errNowhere }

// kill ends the process at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.die()
}

// die makes every later use of the store fail. The caller holds mu, so that no
// write is under way.
func (p *process) die() {
	if p.isDead() {
		return
	}
	close(p.dead)
	p.cancel() // with the drain, this ends its handlers' contexts
	time.AfterFunc(3*p.drain, func() { close(p.gone) })
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// limbo is where a dead process's goroutines wait: whatever they would do next,
// the process would not have done. They leave once they have been told to stop.
func (p *process) limbo(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.gone:
	}
	return errDied
}

// Commit implements [store.Store]. The process may die at it.
func (p *process) Commit(ctx context.Context, c record.Change) error {
	p.mu.Lock()
	if p.isDead() {
		p.mu.Unlock()
		return p.limbo(ctx)
	}
	if !p.world.strikes(c) {
		defer p.mu.Unlock()
		return p.world.commit(ctx, c)
	}
	if p.world.fault.after {
		_ = p.world.commit(context.WithoutCancel(ctx), c) // nobody hears what the store says
	}
	p.die()
	p.mu.Unlock()
	return p.limbo(ctx)
}

// alive runs one use of the world, which the process's death waits for.
func alive[T any](ctx context.Context, p *process, use func() (T, error)) (T, error) {
	p.mu.RLock()
	if p.isDead() {
		p.mu.RUnlock()
		var zero T
		return zero, p.limbo(ctx)
	}
	defer p.mu.RUnlock()
	return use()
}

// Now implements [store.Store].
func (p *process) Now(ctx context.Context) (time.Time, error) {
	return alive(ctx, p, func() (time.Time, error) { return p.world.inner.Now(ctx) })
}

// Load implements [store.Store].
func (p *process) Load(ctx context.Context, id string) (*record.Call, error) {
	return alive(ctx, p, func() (*record.Call, error) { return p.world.inner.Load(ctx, id) })
}

// Mark implements [store.Store].
func (p *process) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	return alive(ctx, p, func() (*record.Mark, error) { return p.world.inner.Mark(ctx, id) })
}

// Due implements [store.Store].
func (p *process) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	p.mu.Lock()
	p.seen = now
	p.mu.Unlock()
	return alive(ctx, p, func() (store.Due, error) { return p.world.inner.Due(ctx, now, limit, except) })
}

// Renew implements [store.Store].
func (p *process) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	return alive(ctx, p, func() ([]store.LeaseRef, error) { return p.world.inner.Renew(ctx, holder, leases, until) })
}

// Takeover implements [store.Store].
func (p *process) Takeover(ctx context.Context, node, boot string) error {
	_, err := alive(ctx, p, func() (struct{}, error) { return struct{}{}, p.world.inner.Takeover(ctx, node, boot) })
	return err
}

// List implements [store.Store].
func (p *process) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	return alive(ctx, p, func() ([]*record.Call, error) { return p.world.inner.List(ctx, f) })
}

// Audit implements [store.Store].
func (p *process) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	return alive(ctx, p, func() ([]store.AuditRow, error) { return p.world.inner.Audit(ctx, q) })
}

// Counts implements [store.Store].
func (p *process) Counts(ctx context.Context) (store.Counts, error) {
	return alive(ctx, p, func() (store.Counts, error) { return p.world.inner.Counts(ctx) })
}

// Purge implements [store.Store].
func (p *process) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	return alive(ctx, p, func() (int, error) { return p.world.inner.Purge(ctx, now, limit) })
}

// Wake implements [store.Store]: the engine's timers do not see that the clock
// was moved.
func (p *process) Wake() <-chan struct{} {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.world.wake(p.seen)
}

// Shared implements [store.Store].
func (p *process) Shared() bool { return false }

// Close leaves the world as it is: it is the next process's too.
func (p *process) Close() error { return nil }
