package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// Weather is what goes wrong in a history.
type weather struct {
	shared   bool    // two replicas on one store, else one after the other
	crashes  bool    // replicas die and come back
	drains   bool    // replicas are told to stop, and come back
	pauses   bool    // replicas stand still, past their leases too
	doubts   float64 // share of the store's answers that are errors, before or after the deed
	jumps    bool    // the store's clock is set forward and back
	denials  bool    // rights come and go
	rotates  bool    // a key is added, promoted, and the old one disabled
	lossy    float64 // share of requests whose response is lost
	slow     bool    // some steps take longer than a lease
	moody    float64 // share of charges that end badly
	live     int     // Limits.LiveCalls; 0: the default
	restless bool    // facts change
}

func forecast(r *rand.Rand) weather {
	w := weather{shared: r.IntN(2) == 0}
	if r.IntN(6) == 0 {
		return w // a fine day
	}
	often := func() bool { return r.IntN(3) == 0 }
	w.crashes, w.drains, w.pauses, w.jumps, w.denials, w.rotates, w.slow, w.restless = often(), r.IntN(5) == 0, often(), r.IntN(5) == 0, r.IntN(4) == 0, often(), often(), often()
	if often() {
		w.doubts = 0.02 + 0.1*r.Float64()
	}
	if often() {
		w.lossy = 0.3 * r.Float64()
	}
	if often() {
		w.moody = 0.5 * r.Float64()
	}
	if r.IntN(8) == 0 {
		w.live = 1 + r.IntN(4)
	}
	return w
}

// calm reports whether nothing of it may make a request fail.
func (w weather) calm() bool {
	return !w.crashes && !w.drains && !w.pauses && w.doubts == 0 && !w.jumps && !w.denials && w.lossy == 0 && !w.slow && w.live == 0
}

const (
	drain     = 4 * time.Second
	lease     = 10 * time.Second
	deadline  = 3 * time.Hour
	retention = 24 * time.Hour
	question  = 15 * time.Minute
	inline    = 20 * time.Second
	// farthest is how late a charge may arrive at the far side after it was sent.
	farthest = time.Minute
)

// A world is one history: what is in it, and what was seen of it.
type world struct {
	t       testing.TB
	seed    uint64
	weather weather
	inner   *memory.Store
	keys    *seal.Keyset
	began   time.Time
	over    chan struct{} // closed when the bad weather is

	applying sync.Mutex // one commit at a time, in the order of the journal

	mu       sync.Mutex // guards what follows; nobody sleeps with it
	counts   map[string]uint64
	skew     time.Duration
	replicas []*replica // those that serve, or will again
	calls    map[string]*record.Call
	journal  []commit
	asked    []asked
	denied   map[string]bool
	orders   map[string]int
	ledger   []charge
	byKey    map[string]int
	charged  map[string]bool // keys of charges that are on their way, or were
	tickets  []ticket
	told     []told
	owners   map[string]string // token that made a call, by id
	heldAt   map[string]time.Time
	wrong    []string
	lines    []string // what happened, in words
	sum      uint64   // of lines
}

// A commit is one change that the store has applied.
type commit struct {
	at, clock time.Time // by the world, by the store
	replica   *replica  // that wrote it
	who       string    // the request that it was written for; empty: none
	sent      time.Time // when that began to write it
	heard     time.Time // when that knew of it
	before    *record.Call
	record.Change
}

// asked is what Options.Authorize was asked, and said.
type asked struct {
	at  time.Time
	who string // the request that it was asked for; empty: none
	a   tallystick.Access
	ok  bool
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, seed: seed, began: time.Now(), over: make(chan struct{}),
		counts: map[string]uint64{}, calls: map[string]*record.Call{}, denied: map[string]bool{},
		orders: map[string]int{}, byKey: map[string]int{}, charged: map[string]bool{}, owners: map[string]string{}, heldAt: map[string]time.Time{},
	}
	w.weather = forecast(w.rand("weather"))
	w.inner = memory.New(memory.Options{Now: w.clock, Shared: w.weather.shared})
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	w.keys = keys
	return w
}

// clock is the store's.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew)
}

// rand is chance, by the seed, for the next thing of that name.
func (w *world) rand(name string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.counts[name]
	w.counts[name]++
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{w.seed, n})
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), w.seed))
}

// lag is how long the next thing of that name takes: never the same twice, so
// that what happens at one moment happens alone.
func (w *world) lag(name string) time.Duration { return w.lagOf(w.rand(name)) }

func (w *world) lagOf(r *rand.Rand) time.Duration {
	jitter := time.Duration(1 + r.Int64N(int64(time.Microsecond)))
	switch n := r.IntN(100); {
	case n < 70:
		return jitter
	case n < 97 || w.calmNow():
		return time.Duration(r.Int64N(int64(20*time.Millisecond))) + jitter
	case n < 99 || !w.weather.slow:
		return time.Duration(r.Int64N(int64(2*time.Second))) + jitter
	}
	return time.Duration(r.Int64N(int64(3*lease))) + jitter
}

func (w *world) calmNow() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// chance reports whether something of that name happens, in bad weather only.
func (w *world) chance(name string, share float64) bool {
	return share > 0 && !w.calmNow() && w.rand(name).Float64() < share
}

// rest sleeps that long, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// say writes down what happened.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayLocked(format, args...)
}

func (w *world) sayLocked(format string, args ...any) {
	line := fmt.Sprintf("%15.9f  ", time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, w.sum)
	h.Write([]byte(line))
	w.sum = h.Sum64()
	w.lines = append(w.lines, line)
}

// blame says which promise was broken, and how.
func (w *world) blame(promise int, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blameLocked(promise, format, args...)
}

func (w *world) blameLocked(promise int, format string, args ...any) {
	what := fmt.Sprintf("promise %d: ", promise) + fmt.Sprintf(format, args...)
	w.wrong = append(w.wrong, what)
	w.sayLocked("WRONG %s", what)
}

var errIll = errors.New("sim: the store is ill")

// apply carries a change to the store and writes it down.
func (w *world) apply(ctx context.Context, c record.Change, r *replica, sent time.Time) (n int, err error) {
	who := r.node
	w.applying.Lock()
	defer w.applying.Unlock()
	now := w.clock()
	before, err := w.inner.Load(context.Background(), c.ID)
	if err != nil {
		before = nil
	}
	if err := w.inner.Commit(ctx, c); err != nil {
		w.say("%s: %s of %s: %v", who, events(c), name(c.ID), err)
		return -1, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayLocked("%s: %s of %s", who, events(c), name(c.ID))
	w.journal = append(w.journal, commit{at: time.Now(), clock: now, replica: r, who: forWhom(ctx), sent: sent, heard: never, before: before, Change: c})
	switch {
	case c.Remove:
		delete(w.calls, c.ID)
	case c.After != nil:
		w.calls[c.ID] = c.After
	}
	return len(w.journal) - 1, nil
}

// never is when a replica hears of what it is not told.
var never = time.Unix(1<<40, 0)

// heard notes when the writer of a commit knew of it: until then it serves what
// it knew before. From a doubtful answer it finds out within a lease.
func (w *world) heard(n int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.journal[n].heard.After(at) {
		w.journal[n].heard = at
	}
}

// events names what a change is about.
func events(c record.Change) string {
	var list []string
	for _, e := range c.Audit {
		what := e.Event
		for _, more := range []string{e.Key, e.Effect, string(e.Reason), string(e.Outcome)} {
			if more != "" {
				what += " " + more
			}
		}
		if e.By.Subject != "" {
			what += " by " + e.By.Subject
		}
		list = append(list, what)
	}
	return strings.Join(list, ", ")
}

// name is a call's id, short.
func name(id string) string { return id[:min(len(id), 6)] }
