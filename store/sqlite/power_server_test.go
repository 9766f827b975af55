package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/internal/history"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
)

// patient lets each read come to its end, though whoever asked has gone: when a
// context ends, database/sql waits for the read in a mutex, and while SQLite
// sleeps for a lock just then, the clock of a bubble stands still for ever.
type patient struct{ store.Store }

func (p patient) Load(ctx context.Context, id string) (*record.Call, error) {
	return p.Store.Load(context.WithoutCancel(ctx), id)
}

func (p patient) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	return p.Store.Mark(context.WithoutCancel(ctx), id)
}

func (p patient) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	return p.Store.Due(context.WithoutCancel(ctx), now, limit, except)
}

func (p patient) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	return p.Store.List(context.WithoutCancel(ctx), f)
}

func (p patient) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	return p.Store.Audit(context.WithoutCancel(ctx), q)
}

func (p patient) Counts(ctx context.Context) (store.Counts, error) {
	return p.Store.Counts(context.WithoutCancel(ctx))
}

func (p patient) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	return p.Store.Purge(context.WithoutCancel(ctx), now, limit)
}

// A computer is where server after server runs on one disk. When a server is
// stopped or killed, the system goes on, and the next one finds all that was
// written; when the power is cut, what was synced.
type computer struct {
	t        *testing.T
	tap      *history.Tap
	parent   string
	found    image
	left     int // syncs until the power is cut; 0: it is not
	after    bool
	survival survival
	cuts     int
}

// boot is a World's: the store of the next process.
func (c *computer) boot() (*faulty.Store, func()) {
	c.t.Helper()
	d, end, err := boot(c.parent, c.found, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	d.cutSync.n, d.cutSync.after = c.left, c.after
	inner, err := Open(context.Background(), Options{Path: d.path(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.tap.Onto(patient{inner})
	s := faulty.New(c.tap, func(int, record.Change) faulty.Fault { return faulty.Fault{} })
	released, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-d.off:
			s.Kill()
		case <-released:
		}
	}()
	return s, func() {
		close(released)
		<-watching
		as := written
		if d.isOff() {
			c.cuts++
			c.left, as = 0, c.survival
		}
		syncs := d.synced()
		if c.left > 0 {
			c.left = max(c.left-syncs, 1)
		}
		if c.found, err = d.image(as, uint64(syncs)); err != nil {
			c.t.Fatal(err)
		}
		_ = inner.Close() // its disk is gone
		end()
	}
}

func (d *disk) synced() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// The whole server, at each commit of each chapter: the power is cut just before
// it is synced, or just after, before anybody hears of it.
func TestAServerSurvivesPowerLossAtEveryCommit(t *testing.T) {
	fresh := func() image {
		d := mustBoot(t, nil)
		s := on(t, d, nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return d.mustImage(t, written)
	}()
	every, at := stride(1, 37), 0
	for _, c := range history.Chapters {
		t.Run(c.Name, func(t *testing.T) {
			parent, commits, played := t.TempDir(), 0, 0
			for cut := true; cut && !t.Failed(); {
				commits++
				for _, after := range []bool{false, true} {
					if at++; at%every != 0 && commits > 1 {
						continue
					}
					played++
					s := survivals[(commits+at/every)%len(survivals)]
					t.Run(fmt.Sprintf("at %d, after %t, %s", commits, after, s), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							on := &computer{t: t, tap: &history.Tap{}, parent: parent, found: fresh, left: commits, after: after, survival: s}
							w := &history.World{T: t, Tap: on.tap, Boot: on.boot, Faithful: true}
							w.Play(c)
							cut = on.cuts > 0
						})
					})
				}
			}
			t.Logf("%d of %d commits and as many moments after one", played, commits)
		})
	}
}
