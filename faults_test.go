package tallystick_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/internal/history"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/memory"
)

// A faultKind is what may happen at a write.
type faultKind struct {
	name  string
	fault faulty.Fault
	skip  time.Duration // by how much the store's clock is on when it is applied
}

var errDisk = errors.New("input/output error")

var faultKinds = []faultKind{
	{name: "an error before", fault: faulty.Fault{Err: errDisk}},
	{name: "an error after", fault: faulty.Fault{Err: errDisk, After: true}},
	{name: "a delay past the lease", skip: 15 * time.Second},
	{name: "killed before", fault: faulty.KillBefore},
	{name: "killed after", fault: faulty.KillAfter},
}

// playFaulty plays chapters on a store in memory, with a fault at the n-th
// write, whichever process makes it. It reports how many writes there were and
// whether the fault has come.
func playFaulty(t *testing.T, k faultKind, n int, chapters ...history.Chapter) (writes int, struck bool, tap *history.Tap) {
	t.Helper()
	var mu sync.Mutex
	var skew time.Duration
	inner := memory.New(memory.Options{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(skew)
	}})
	tap = &history.Tap{Store: inner}
	w := &history.World{T: t, Tap: tap, Faithful: n == 0 || k.fault.Kills}
	w.Boot = func() (*faulty.Store, func()) {
		return faulty.New(tap, func(_ int, c record.Change) faulty.Fault {
			if c.ID == "" { // when it comes depends on the time
				return faulty.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if writes++; writes != n {
				return faulty.Fault{}
			}
			struck = true
			f := k.fault
			if k.skip > 0 {
				f.Delay = func() {
					mu.Lock()
					defer mu.Unlock()
					skew += k.skip
				}
			}
			return f
		}), func() {}
	}
	w.Play(chapters...)
	return writes, struck, tap
}

// Every kind of fault, at every write of every chapter.
func TestFaultsAtEveryWrite(t *testing.T) {
	for _, c := range history.Chapters {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for _, k := range faultKinds {
				for n, struck := 1, true; struck && !t.Failed(); n++ {
					t.Run(fmt.Sprintf("%s write %d", k.name, n), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { _, struck, _ = playFaulty(t, k, n, c) })
					})
				}
			}
		})
	}
}

// The chapters go on one after the other too, on one store.
func TestTheHistoryInOneGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes, _, _ := playFaulty(t, faultKind{}, 0, history.Chapters...)
		t.Logf("%d writes", writes)
	})
}
