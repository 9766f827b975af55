package tallystick_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/sqlite"
)

func bazaarOptions(s store.Store) tallystick.Options {
	return tallystick.Options{Store: s, Limits: tallystick.Limits{LiveCalls: 1 << 20, Lease: time.Second, InlineWait: 100 * time.Millisecond}}
}

// openBazaar serves it from a file in this process.
func openBazaar(t *testing.T, c *crowd, wrap func(store.Store) store.Store) (*sqlite.Store, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bazaar.db")
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return db, c.serve(db, wrap, path)
}

// serve serves it from that file.
func (c *crowd) serve(db *sqlite.Store, wrap func(store.Store) store.Store, path string) (stop func()) {
	opts := bazaarOptions(wrap(db))
	opts.Authorize = c.opts.Authorize
	d := newDesk(c.t, setup{opts: opts, tools: func(d *desk) { addBazaar(d.srv, nearby{c.far}) }})
	page := approvals(d.srv)
	c.desk.Store(d)
	c.page.Store(&page.URL)
	return func() {
		page.Close()
		d.stop()
		if err := db.Close(); err != nil {
			c.t.Error(err)
		}
		sound(c.t, path)
	}
}

// crowded lets the crowd loose.
func (c *crowd) crowded(seed uint64, people int, for_ time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), for_)
	defer cancel()
	var wg sync.WaitGroup
	for i := range people {
		wg.Go(func() { c.wander(ctx, seed+uint64(i)) })
	}
	wg.Wait()
}

// Whatever a crowd does, nothing is charged twice or without the approval of
// those who had to, nothing is lost and nothing leaks.
func TestACrowdGetsNothingWrong(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, newFarSide(seed))
	db, stop := openBazaar(t, c, plainStore)
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	c.settle(db)
	c.check(db)
	stop()
}

// The same while the disk is slow and writes fail, before they are applied or
// after, so that nobody hears of it.
func TestACrowdOnABadDiskGetsNothingWrong(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, newFarSide(seed))
	c.crashes = true
	var mu sync.Mutex
	broken := true
	fate := newFarSide(seed + 1).rand
	db, stop := openBazaar(t, c, func(s store.Store) store.Store {
		return faulty.New(s, func(int, record.Change) faulty.Fault {
			mu.Lock()
			n, slow, on := fate.IntN(100), fate.IntN(20), broken
			mu.Unlock()
			switch {
			case !on:
			case n < 3:
				return faulty.Fault{Err: store.ErrFull}
			case n < 6:
				return faulty.Fault{Err: context.DeadlineExceeded}
			case n < 9:
				return faulty.Fault{Err: context.DeadlineExceeded, After: true}
			case n < 12:
				time.Sleep(time.Duration(slow) * 10 * time.Millisecond)
			}
			return faulty.Fault{}
		})
	})
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	mu.Lock()
	broken = false
	mu.Unlock()
	c.settle(db)
	c.check(db)
	stop()
}

func plainStore(s store.Store) store.Store { return s }
