package storetest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var nan = math.NaN()

// workers is how many act at once.
const workers = 50

// crowd runs f by all workers at once and waits for them.
func (x *fixture) crowd(f func(worker int) error) {
	x.Helper()
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	x.must(errors.Join(errs...))
}

var crowds = map[string]func(*fixture){
	// case S110: read, decide, write, by many at once; what was changed
	// meanwhile is a conflict, never another error.
	"ManyChangeOneCall": func(x *fixture) {
		x.keep(x.call("c"))
		x.crowd(func(i int) error {
			for {
				c, err := x.s.Load(x.ctx, "c")
				if err != nil {
					return err
				}
				c.Roles = append(c.Roles, name(i))
				err = x.s.Commit(x.ctx, put(c, entry(c, name(i))))
				if !errors.Is(err, store.ErrConflict) {
					return err
				}
			}
		})
		c := x.load("c")
		same(x, "version", c.Version, workers+1)
		same(x, "roles", len(c.Roles), workers)
		same(x, "trail", x.trail(store.AuditQuery{Call: "c"}), c.Roles)
	},
	"OneOfManyClaimsACall": func(x *fixture) {
		const n = 20
		for i := range n {
			x.keep(x.call(name(i), in(record.Ready)))
		}
		var claimed atomic.Int64
		x.crowd(func(i int) error {
			for {
				due, err := x.s.Due(x.ctx, x.clock(), 3, nil)
				if err != nil || len(due.Ready) == 0 {
					return err
				}
				c, err := x.s.Load(x.ctx, due.Ready[i%len(due.Ready)])
				if err != nil {
					return err
				}
				lease := record.Lease{Holder: fmt.Sprintf("n/%d", i), Until: x.clock().Add(time.Hour)}
				ch, err := record.Decide(c, record.System, record.NoEpoch, x.clock(), record.Taken{Lease: lease})
				var refused *record.Refusal
				if errors.As(err, &refused) {
					continue // somebody else has it
				}
				switch err := x.s.Commit(x.ctx, ch); {
				case err == nil:
					claimed.Add(1)
				case !errors.Is(err, store.ErrConflict):
					return err
				}
			}
		})
		same(x, "claimed", claimed.Load(), n)
		for i := range n {
			same(x, "epoch", x.load(name(i)).Epoch, 1)
		}
	},
	"ARefusalUndoesNoNeighbour": func(x *fixture) {
		taken := record.MarkID{Kind: record.MarkKey, Tenant: "acme", Name: "taken"}
		x.must(x.set("owner", record.Mark{MarkID: taken, Call: "owner"}))
		x.crowd(func(i int) error {
			for k := range 4 {
				c := x.call(fmt.Sprintf("%s-%d", name(i), k))
				ch := put(c, entry(c, c.ID))
				if i%2 == 1 {
					ch.Marks = []record.MarkWrite{{MarkID: taken, Set: &record.Mark{MarkID: taken, Call: c.ID}}}
				}
				if err := x.s.Commit(x.ctx, ch); errors.Is(err, store.ErrConflict) != (i%2 == 1) || err != nil && i%2 == 0 {
					return fmt.Errorf("worker %d: %w", i, err)
				}
			}
			return nil
		})
		same(x, "calls", len(x.list(store.Filter{Tenant: "acme", Limit: 1000})), workers/2*4)
		same(x, "entries", len(x.trail(store.AuditQuery{Limit: 1000})), workers/2*4)
		x.s = x.reopen()
		same(x, "calls after reopening", len(x.list(store.Filter{Tenant: "acme", Limit: 1000})), workers/2*4)
	},
	"TheQuotaHoldsUnderManyAtOnce": func(x *fixture) {
		var made atomic.Int64
		x.crowd(func(i int) error {
			ch := put(x.call(name(i)))
			ch.MaxLive = 10
			err := x.s.Commit(x.ctx, ch)
			if err == nil {
				made.Add(1)
			}
			if errors.Is(err, store.ErrQuota) {
				return nil
			}
			return err
		})
		same(x, "made", made.Load(), 10)
	},
	"EachReadsWhatItHasWritten": func(x *fixture) {
		x.crowd(func(i int) error {
			c := x.call(name(i), of(name(i)))
			for range 4 {
				if err := x.s.Commit(x.ctx, put(c)); err != nil {
					return err
				}
				got, err := x.s.Load(x.ctx, c.ID)
				if err != nil {
					return err
				}
				if got.Version != c.Version+1 {
					return fmt.Errorf("read version %d after writing %d", got.Version, c.Version+1)
				}
				listed, err := x.s.List(x.ctx, store.Filter{Tenant: name(i)})
				if err != nil || len(listed) != 1 || listed[0].Version != got.Version {
					return fmt.Errorf("listed %d calls, %w", len(listed), err)
				}
				c = got
			}
			return nil
		})
	},
}
