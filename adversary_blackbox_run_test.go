package tallystick_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/sqlite"
)

// A crowd of the bazaar tries a server in this process.
type crowd struct {
	*bazaar.Crowd
	t    *testing.T
	desk *desk
	opts tallystick.Options
}

func newCrowd(t *testing.T, far *bazaar.FarSide) *crowd {
	return &crowd{Crowd: bazaar.NewCrowd(far), t: t}
}

// bazaarSeed is printed with each campaign; bazaarTime is how long it takes.
// TALLYSTICK_BAZAAR_SEED and TALLYSTICK_BAZAAR_TIME set them by hand.
func bazaarSeed(t *testing.T) uint64 {
	seed := rand.Uint64N(1 << 40)
	if s := os.Getenv("TALLYSTICK_BAZAAR_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	t.Logf("TALLYSTICK_BAZAAR_SEED=%d", seed)
	return seed
}

func bazaarTime(short time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TALLYSTICK_BAZAAR_TIME")); err == nil {
		return d
	}
	return short
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
	opts := bazaar.Options(wrap(db))
	opts.Authorize = c.opts.Authorize
	c.desk = newDesk(c.t, setup{opts: opts, tools: func(d *desk) { bazaar.Add(d.srv, bazaar.Nearby(c.Far)) }})
	page := httptest.NewServer(bazaar.Page(c.desk.srv, db))
	c.Serve(c.desk.url, page.URL)
	return func() {
		page.Close()
		c.desk.stop()
		if err := db.Close(); err != nil {
			c.t.Error(err)
		}
		if err := bazaar.Sound(path); err != nil {
			c.t.Error(err)
		}
	}
}

// crowded lets the crowd loose.
func (c *crowd) crowded(seed uint64, people int, for_ time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), for_)
	defer cancel()
	var wg sync.WaitGroup
	for i := range people {
		wg.Go(func() { c.Wander(ctx, seed+uint64(i)) })
	}
	wg.Wait()
}

// check waits until everything has settled, and compares.
func (c *crowd) check(db store.Store) {
	c.t.Helper()
	if err := c.Settle(context.Background()); err != nil {
		c.t.Error(err)
	}
	tally, err := c.Check(context.Background(), db, true)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%+v", tally)
	for _, w := range c.Wrong() {
		c.t.Error(w)
	}
}

// Whatever a crowd does, nothing is charged twice or without the approval of
// those who had to, nothing is lost and nothing leaks.
func TestACrowdGetsNothingWrong(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	db, stop := openBazaar(t, c, plainStore)
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	c.check(db)
	stop()
}

// The same while the disk is slow and writes fail, before they are applied or
// after, so that nobody hears of it.
func TestACrowdOnABadDiskGetsNothingWrong(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	c.Crashes = true
	var mu sync.Mutex
	broken := true
	fate := rand.New(rand.NewPCG(seed, 8))
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
	c.check(db)
	stop()
}

func plainStore(s store.Store) store.Store { return s }
