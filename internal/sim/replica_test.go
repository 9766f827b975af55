package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var errDied = errors.New("sim: this replica is dead")

// A replica is one life of a server. It is its own store: everything on the way
// to the store and back takes time, waits while the replica stands still, and
// gets nowhere once it is dead.
type replica struct {
	w      *world
	node   string
	server *tallystick.Server
	web    http.Handler
	life   context.Context // ends with kill
	end    context.CancelFunc
	cancel context.CancelFunc // of Run
	ran    chan struct{}      // closed when Run has returned
	gone   chan struct{}      // closed when its goroutines have had time to notice

	mu    sync.Mutex
	still time.Time // it stands still until then
}

var _ store.Store = (*replica)(nil)

// begin starts a server on the node.
func (w *world) begin(node string) *replica {
	r := &replica{w: w, node: node, ran: make(chan struct{}), gone: make(chan struct{})}
	r.life, r.end = context.WithCancel(context.Background())
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	srv, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "sim", Version: "1"}, nil), &tallystick.Options{
		Store: r, Keys: w.keys.AEAD(), Node: node, Workers: 4, Log: slog.New(slog.DiscardHandler),
		Identify: func(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
			return identity(extra.Header.Get("Authorization")), nil
		},
		Authorize: w.authorize,
		Limits: tallystick.Limits{
			Question: question, Deadline: deadline, Retention: retention, InlineWait: inline, Drain: drain, Lease: lease, LiveCalls: w.weather.live,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r.addTools(srv)
	r.server, r.web = srv, srv.Handler(nil)
	go func() {
		defer close(r.ran)
		if err := srv.Run(ctx); err != nil && !r.isDead() {
			w.say("%s does not start: %v", node, err)
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = append(w.replicas, r)
	return r
}

// identity is who a token names: "subject/tenant/role,role".
func identity(token string) tallystick.Identity {
	f := append(strings.Split(token, "/"), "", "")
	id := tallystick.Identity{Issuer: "sim", Subject: f[0], Tenant: f[1]}
	if f[2] != "" {
		id.Roles = strings.Split(f[2], ",")
	}
	return id
}

// authorize refuses those whose rights are withdrawn just now.
func (w *world) authorize(ctx context.Context, a tallystick.Access) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := !w.denied[a.By.Subject]
	w.asked = append(w.asked, asked{time.Now(), forWhom(ctx), a, ok})
	if !ok {
		return errors.New("not just now")
	}
	return nil
}

// kill ends the replica as a crash does: whatever its goroutines would do next
// is not done.
func (r *replica) kill() {
	r.w.say("%s dies", r.node)
	r.end()
	for i, c := range r.w.journal {
		if c.replica == r {
			r.w.heard(i, time.Now())
		}
	}
	r.cancel() // with the drain, this ends its handlers' contexts
	time.AfterFunc(3*drain, func() { close(r.gone) })
	r.leave()
}

// stop ends the replica as a deployment does.
func (r *replica) stop() {
	r.w.say("%s is told to stop", r.node)
	r.cancel()
	r.leave()
	<-r.ran
	r.w.say("%s has stopped", r.node)
}

func (r *replica) leave() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for i, o := range r.w.replicas {
		if o == r {
			r.w.replicas = append(r.w.replicas[:i:i], r.w.replicas[i+1:]...)
			return
		}
	}
}

// pause makes the replica stand still.
func (r *replica) pause(d time.Duration) {
	r.w.say("%s stands still for %v", r.node, d.Round(time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); time.Until(r.still) <= 0 { // no pause is longer than another's end
		r.still = until
	}
}

func (r *replica) isDead() bool { return r.life.Err() != nil }

// lineage is the key of a context's value that says for whom things are done:
// chance goes by it, so that what goes on at one time has no part in it.
type lineage struct{}

func forWhom(ctx context.Context) string {
	who, _ := ctx.Value(lineage{}).(string)
	return who
}

// move is a step of something inside the replica: it takes a while.
func (r *replica) move(ctx context.Context, what string) error {
	what = r.node + " " + forWhom(ctx) + " " + what
	d := r.w.lag(what)
	for {
		if err := rest(ctx, d); err != nil && !r.isDead() {
			return err
		}
		if r.isDead() {
			return r.limbo(ctx)
		}
		r.mu.Lock()
		d = time.Until(r.still)
		r.mu.Unlock()
		if d <= 0 {
			return nil
		}
		d += time.Duration(1 + r.w.rand(what+" wakes").Int64N(int64(time.Millisecond)))
	}
}

// limbo is where a dead replica's goroutines wait until they are told to stop.
func (r *replica) limbo(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-r.gone:
	}
	return errDied
}

// ask is one use of the store. An answer may be lost on its way back, or be an
// error that says nothing.
func ask[T any](ctx context.Context, r *replica, what string, use func() (T, error)) (T, error) {
	var none T
	if err := r.move(ctx, what); err != nil {
		return none, err
	}
	ill := r.w.chance(r.node+" ill "+what, r.w.weather.doubts)
	if ill && r.w.rand(r.node+" before or after "+what).IntN(2) == 0 {
		r.w.say("%s: %s fails", r.node, what)
		return none, errIll
	}
	v, err := use()
	// Once it is done, nothing but death keeps the answer away.
	if lost := r.move(context.WithoutCancel(ctx), what+" done"); lost != nil {
		return none, lost
	}
	if ill {
		r.w.say("%s: %s says that it failed", r.node, what)
		return none, errIll
	}
	return v, err
}

func (r *replica) Commit(ctx context.Context, c record.Change) error {
	n, sent := -1, time.Now()
	_, err := ask(ctx, r, "commit "+name(c.ID), func() (_ struct{}, err error) {
		n, err = r.w.apply(ctx, c, r, sent)
		return struct{}{}, err
	})
	switch {
	case n < 0 || errors.Is(err, errDied):
	case err == nil:
		r.w.heard(n, time.Now())
	default:
		r.w.heard(n, time.Now().Add(2*lease))
	}
	return err
}

func (r *replica) Now(ctx context.Context) (time.Time, error) {
	if r.isDead() {
		return time.Time{}, r.limbo(ctx)
	}
	return r.w.inner.Now(ctx)
}

func (r *replica) Load(ctx context.Context, id string) (*record.Call, error) {
	return ask(ctx, r, "load "+name(id), func() (*record.Call, error) { return r.w.inner.Load(ctx, id) })
}

func (r *replica) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	return ask(ctx, r, "mark "+name(id.Name), func() (*record.Mark, error) { return r.w.inner.Mark(ctx, id) })
}

func (r *replica) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	return ask(ctx, r, "due", func() (store.Due, error) { return r.w.inner.Due(ctx, now, limit, except) })
}

func (r *replica) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	return ask(ctx, r, "renew", func() ([]store.LeaseRef, error) { return r.w.inner.Renew(ctx, holder, leases, until) })
}

func (r *replica) Takeover(ctx context.Context, node, boot string) error {
	if r.isDead() {
		return r.limbo(ctx)
	}
	return r.w.inner.Takeover(ctx, node, boot)
}

func (r *replica) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	return ask(ctx, r, "list", func() ([]*record.Call, error) { return r.w.inner.List(ctx, f) })
}

func (r *replica) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	return ask(ctx, r, "audit", func() ([]store.AuditRow, error) { return r.w.inner.Audit(ctx, q) })
}

func (r *replica) Counts(ctx context.Context) (store.Counts, error) {
	return ask(ctx, r, "counts", func() (store.Counts, error) { return r.w.inner.Counts(ctx) })
}

func (r *replica) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	return ask(ctx, r, "purge", func() (int, error) { return r.w.inner.Purge(ctx, now, limit) })
}

func (r *replica) Wake() <-chan struct{} { return r.w.inner.Wake() }
func (r *replica) Shared() bool          { return r.w.inner.Shared() }
func (r *replica) Close() error          { return nil }

// weatherly makes the weather, until it is over.
func (w *world) weatherly() {
	sky := w.weather
	r := w.rand("sky")
	for {
		if rest(context.Background(), time.Duration(r.Int64N(int64(40*time.Second)))+time.Millisecond); w.calmNow() {
			return
		}
		w.mu.Lock()
		var one *replica
		if len(w.replicas) > 0 {
			one = w.replicas[r.IntN(len(w.replicas))]
		}
		w.mu.Unlock()
		switch r.IntN(8) {
		case 0, 1:
			if sky.crashes && one != nil {
				one.kill()
				w.back(one.node, r.IntN(3) == 0)
			}
		case 2:
			if sky.drains && one != nil {
				one.stop()
				w.back(one.node, false)
			}
		case 3, 4:
			if sky.pauses && one != nil {
				one.pause(time.Duration(r.Int64N(int64(4 * lease))))
			}
		case 5:
			if sky.jumps {
				w.jump(time.Duration(r.Int64N(int64(40*time.Minute))) - 20*time.Minute)
			}
		case 6:
			if sky.denials {
				w.deny([]string{"ann", "bob", "fay", "flo"}[r.IntN(4)])
			}
		case 7:
			if sky.restless {
				w.change(fmt.Sprint("o", r.IntN(orders)))
			}
		}
	}
}

// back starts the node again, at once or after a while.
func (w *world) back(node string, late bool) {
	d := w.lag("restart")
	if late {
		d += 2 * lease
	}
	_ = rest(context.Background(), d)
	w.say("%s is back", node)
	w.begin(node)
}

func (w *world) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
	w.sayLocked("the clock jumps by %v", d)
}

// deny withdraws somebody's rights, or gives them back.
func (w *world) deny(who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied[who] = !w.denied[who]
	w.sayLocked("%s may: %v", who, !w.denied[who])
}

// rotate changes the key that seals, a step at a time.
func (w *world) rotate() {
	r := w.rand("keys")
	old := w.keys.List()[0].ID
	pause := func() { _ = rest(context.Background(), time.Duration(r.Int64N(int64(5*time.Minute)))) }
	pause()
	id, err := w.keys.Add()
	if err != nil {
		w.t.Fatal(err)
	}
	pause()
	if err := w.keys.Promote(id); err != nil {
		w.t.Fatal(err)
	}
	w.say("a new key seals")
	_ = rest(context.Background(), deadline) // the last state under the old one has expired
	if err := w.keys.Disable(old); err != nil {
		w.t.Fatal(err)
	}
}
