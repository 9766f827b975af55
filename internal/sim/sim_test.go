package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "play this history alone, and tell what happened in it with -v")
	histories = flag.Int("histories", played, "how many histories to play")
	from      = flag.Uint64("from", 1, "the first seed")
)

func TestMain(m *testing.M) {
	// One processor: what is ready at one moment then runs in one order.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// play plays one history and returns it.
func play(t *testing.T, seed uint64) (w *world) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.begin("a")
		if w.weather.shared {
			_ = rest(context.Background(), time.Millisecond) // one after the other
			w.begin("b")
		}
		_ = rest(context.Background(), time.Millisecond)
		var sky, people sync.WaitGroup
		sky.Go(w.weatherly)
		if w.weather.rotates {
			sky.Go(w.rotate)
		}
		for i := range 3 + w.rand("people").IntN(3) {
			people.Go(func() { w.person(i) })
		}
		people.Wait()
		close(w.over)
		sky.Wait()
		w.calmDown()
		for len(w.replicas) > 0 {
			w.replicas[0].stop()
		}
	})
	w.check()
	return w
}

// calmDown lets everything come to its end: what is held is looked at, what is
// overdue expires, what has ended is purged.
func (w *world) calmDown() {
	w.mu.Lock()
	clear(w.denied)
	w.mu.Unlock()
	r := w.rand("calm")
	for range 8 {
		w.operate(r)
		_ = rest(context.Background(), deadline/4)
	}
	for id, c := range w.calls {
		if c.State != record.Ended {
			w.blame(4, "%s goes nowhere: %s", name(id), c.State)
		}
	}
	w.final()
	_ = rest(context.Background(), retention+2*deadline)
	for id := range w.calls {
		w.blame(4, "%s is still there", name(id))
	}
	rows, err := w.inner.Audit(context.Background(), store.AuditQuery{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, c := range w.journal {
		for _, e := range c.Audit {
			if n < len(rows) && (rows[n].Seq != int64(n+1) || rows[n].Event != e.Event || rows[n].Call != e.Call || !rows[n].At.Equal(e.At)) {
				w.blame(10, "the trail has %+v where %+v was committed", rows[n], e)
			}
			n++
		}
	}
	if n != len(rows) && n < 1000 {
		w.blame(10, "the trail has %d entries of %d", len(rows), n)
	}
}

// final lets the owners look at their calls once more, when all have ended.
func (w *world) final() {
	r := w.rand("final")
	seen := map[string]bool{}
	for _, t := range w.tickets {
		if t.task && !seen[t.call] {
			seen[t.call] = true
			w.hear(w.send(r, told{method: "tasks/get", token: t.token, ticket: t}, nil))
		}
	}
}

// TestHistories plays histories and holds each against the promises.
func TestHistories(t *testing.T) {
	first, n := *from, *histories
	if *oneSeed != 0 {
		first, n = *oneSeed, 1
	} else if testing.Short() {
		n = min(n, 100)
	}
	var all tally
	began := time.Now()
	for seed := first; seed < first+uint64(n); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := play(t, seed)
			all.add(w)
			for _, wrong := range w.wrong {
				t.Error(wrong)
			}
			if t.Failed() {
				t.Logf("go test ./internal/sim -run TestHistories -seed %d -v", seed)
			}
			if *oneSeed != 0 {
				t.Logf("%+v\n%s", w.weather, strings.Join(w.lines, "\n"))
			}
		})
		if !ok {
			if all.failed++; all.failed > 10 {
				t.Fatal("enough")
			}
		}
		if n > 5000 && (seed-first)%5000 == 4999 {
			fmt.Printf("%d histories in %v: %v\n", seed-first+1, time.Since(began).Round(time.Second), all)
		}
	}
	t.Logf("%d histories in %v: %v", n, time.Since(began).Round(time.Millisecond), all)
}

// A tally is how much happened.
type tally struct {
	calls, commits, told, lost, charges int
	failed                              int
	ends                                map[record.Outcome]int
	events                              map[string]int // of the trail; those that a run or a replica lost apart
}

func (a *tally) add(w *world) {
	if a.ends == nil {
		a.ends, a.events = map[record.Outcome]int{}, map[string]int{}
	}
	a.commits += len(w.journal)
	a.told += len(w.told)
	a.charges += len(w.ledger)
	for _, o := range w.told {
		if o.lost {
			a.lost++
		}
	}
	for _, c := range w.journal {
		for _, e := range c.Audit {
			what := e.Event
			if what == "stopped" {
				what += " " + e.Note
			}
			a.events[what]++
		}
		if c.After != nil && c.After.State == record.Ended && (c.before == nil || c.before.State != record.Ended) {
			a.calls++
			a.ends[c.After.Outcome]++
		}
	}
}

func (a tally) String() string {
	return fmt.Sprintf("%d requests and decisions, %d of them unheard, %d calls (%v), %d commits, %d charges; %v", a.told, a.lost, a.calls, a.ends, a.commits, a.charges, a.events)
}
