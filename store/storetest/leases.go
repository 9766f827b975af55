package storetest

import (
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var leases = map[string]func(*fixture){
	"AWriteOfARunNeedsItsEpochAndLease": func(x *fixture) {
		c := x.keep(x.call("c", x.running("n/1/a")))
		write := func(epoch int64) error {
			ch := put(x.load("c"))
			ch.Epoch = epoch
			return x.s.Commit(x.ctx, ch)
		}
		x.want(write(2), store.ErrConflict)
		x.must(write(1))
		x.pass(10*time.Second - 1)
		x.must(write(1))
		x.pass(1) // the lease is over now, to the nanosecond
		x.want(write(1), store.ErrConflict)
		same(x, "version", x.load("c").Version, c.Version+2)
		x.must(x.s.Commit(x.ctx, put(x.load("c")))) // whoever is no run
	},
	"ARunOfNoCallWritesNothing": func(x *fixture) {
		ch := put(x.call("c"))
		ch.Epoch = 1
		x.want(x.s.Commit(x.ctx, ch), store.ErrConflict)
		x.absent("c")
	},
	"ARenewedLeaseSurvivesAChangeOfItsRun": func(x *fixture) {
		stale := x.keep(x.call("c", x.running("h")))
		until := x.clock().Add(time.Minute)
		_, err := x.s.Renew(x.ctx, "h", []store.LeaseRef{{Call: "c", Epoch: 1}}, until)
		x.must(err)
		same(x, "version", x.load("c").Version, stale.Version)
		got := x.keep(stale)
		same(x, "lease", got.Lease, record.Lease{Holder: "h", Until: until})
		got.Lease = record.Lease{} // whoever read it without
		same(x, "lease", x.keep(got).Lease, record.Lease{Holder: "h", Until: until})
	},
	"ANewEpochBringsItsLease": func(x *fixture) {
		c := x.keep(x.call("c", x.running("h")))
		c.Epoch, c.Lease = 2, record.Lease{Holder: "g", Until: x.clock().Add(time.Second)}
		same(x, "lease", x.keep(c).Lease, c.Lease)
	},
	"ALeaseEndsWithItsRun": func(x *fixture) {
		c := x.keep(x.call("c", x.running("h")))
		c.State, c.Lease = record.Waiting, record.Lease{}
		c = x.keep(c)
		same(x, "lease", c.Lease, record.Lease{})
		c.State, c.Lease = record.Running, record.Lease{Holder: "h", Until: x.clock().Add(time.Second)}
		same(x, "lease of the next run", x.keep(c).Lease, c.Lease)
	},
	"RenewExtendsWhatTheHolderHas": func(x *fixture) {
		for _, id := range []string{"mine", "later", "stopped", "lapsed"} {
			x.keep(x.call(id, x.running("h")))
		}
		x.keep(x.call("others", x.running("g")))
		later := x.load("later")
		later.Epoch = 2
		x.keep(later)
		stopped := x.load("stopped")
		stopped.State, stopped.Lease = record.Waiting, record.Lease{}
		x.keep(stopped)
		lapsed := x.load("lapsed")
		lapsed.Epoch, lapsed.Lease.Until = 1, x.clock().Add(time.Second)
		lapsed.State = record.Ready
		lapsed = x.keep(lapsed)
		lapsed.State = record.Running
		lapsed.Lease = record.Lease{Holder: "h", Until: x.clock().Add(time.Second)}
		x.keep(lapsed)

		x.pass(time.Second)
		until := x.clock().Add(30 * time.Second)
		var refs []store.LeaseRef
		for _, id := range []string{"nobody", "others", "later", "stopped", "lapsed", "mine"} {
			refs = append(refs, store.LeaseRef{Call: id, Epoch: 1})
		}
		got, err := x.s.Renew(x.ctx, "h", refs, until)
		x.must(err)
		same(x, "renewed", got, []store.LeaseRef{{Call: "mine", Epoch: 1}})
		same(x, "mine", x.load("mine").Lease.Until, until)
		same(x, "others", x.load("others").Lease.Until, start.Add(10*time.Second))
		same(x, "lapsed", x.load("lapsed").Lease.Until, start.Add(time.Second))

		got, err = x.s.Renew(x.ctx, "h", refs[5:], x.clock())
		x.must(err)
		same(x, "renewed", len(got), 1)
		same(x, "a lease is never shortened", x.load("mine").Lease.Until, until)
		got, err = x.s.Renew(x.ctx, "h", nil, until)
		x.must(err)
		same(x, "renewed", len(got), 0)
	},
	"TakeoverEndsTheLeasesOfTheDead": func(x *fixture) {
		holders := []string{"n/old", "n/new", "n/new2", "nn/old", "m/other", "n%/old"}
		for _, h := range holders {
			x.keep(x.call(h, x.running(h)))
		}
		x.must(x.s.Takeover(x.ctx, "n", "new"))
		for _, h := range holders {
			over := h != "n/new"
			if x.s.Shared() {
				over = h == "n/old" || h == "n/new2"
			}
			c := x.load(h)
			same(x, h+" over", !c.Lease.Live(x.clock()), over)
			same(x, h+" version", c.Version, 1)
			renewed, err := x.s.Renew(x.ctx, h, []store.LeaseRef{{Call: h, Epoch: 1}}, x.clock().Add(time.Hour))
			x.must(err)
			same(x, h+" renewed", len(renewed) == 0, over)
			ch := put(c)
			ch.Epoch = 1
			if err := x.s.Commit(x.ctx, ch); over {
				x.want(err, store.ErrConflict)
			} else {
				x.must(err)
			}
		}
		due, err := x.s.Due(x.ctx, x.clock(), 100, nil)
		x.must(err)
		if len(due.Overdue) == 0 {
			x.Fatal("leases that were taken over are not overdue")
		}
	},
}
