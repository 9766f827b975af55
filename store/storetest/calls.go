package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var calls = map[string]func(*fixture){
	"EveryFieldOfACallIsKept": func(x *fixture) {
		want := Full("full")
		x.must(x.s.Commit(x.ctx, put(want)))
		want.Version = 1
		same(x, "loaded", x.load("full"), want)
		x.s = x.reopen()
		same(x, "reopened", x.load("full"), want)
	},
	"ZeroValuesAreKept": func(x *fixture) {
		x.must(x.s.Commit(x.ctx, put(&record.Call{ID: "zero"})))
		same(x, "loaded", x.load("zero"), &record.Call{ID: "zero", Version: 1})
	},
	"TimesLoseTheirZoneAndNothingElse": func(x *fixture) {
		at := time.Now() // with a monotonic reading
		c := x.call("t", x.running("h"))
		c.Deadline = at.In(time.FixedZone("far", 5*3600))
		c.Lease.Until = at
		got := x.keep(c)
		same(x, "deadline", got.Deadline, at.Round(0).UTC())
		same(x, "lease", got.Lease.Until, at.Round(0).UTC())
	},
	"ADeadlineInAFarYearIsKept": func(x *fixture) {
		c := x.call("far")
		c.Deadline = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		same(x, "deadline", x.keep(c).Deadline, c.Deadline)
	},
	"AnUnknownCallIsNotFound": func(x *fixture) {
		x.absent("")
		x.absent("nobody")
	},
	"WhatIsLoadedIsACopy": func(x *fixture) {
		c := Full("c")
		x.must(x.s.Commit(x.ctx, put(c)))
		want := x.load("c")
		c.Roles[0], c.Args[0], c.Result[0], c.Effects[0].Result[0] = "changed", 'x', 'x', 'x'
		c.Progress.Done = 0
		c.Questions[0].Answers[0].Value[0] = 'x'
		same(x, "after a change to what was committed", x.load("c"), want)
		got := x.load("c")
		got.Rounds[0].Asked[0], got.Args[0], got.Result[0] = "changed", 'x', 'x'
		same(x, "after a change to what was loaded", x.load("c"), want)
	},
	"ACallIsMadeOnce": func(x *fixture) {
		x.keep(x.call("c"))
		x.want(x.s.Commit(x.ctx, put(x.call("c"))), store.ErrConflict)
		same(x, "version", x.load("c").Version, 1)
	},
	"AChangeNeedsTheVersion": func(x *fixture) {
		x.want(x.s.Commit(x.ctx, record.Change{ID: "c", Version: 1, After: x.call("c")}), store.ErrConflict)
		x.absent("c")
		old := x.keep(x.call("c"))
		next := x.keep(old)
		same(x, "version", next.Version, 2)
		x.want(x.s.Commit(x.ctx, put(old, entry(old, "lost"))), store.ErrConflict)
		same(x, "still", x.load("c"), next)
		same(x, "trail", x.trail(store.AuditQuery{}), nil)
	},
	"ArgumentsStayAndTheResultComes": func(x *fixture) {
		c := x.call("c")
		c.Args = []byte(strings.Repeat("a", 1<<20))
		c = x.keep(c)
		c.Result, c.State = []byte(strings.Repeat("r", 1<<20)), record.Ended
		got := x.keep(c)
		same(x, "args", len(got.Args), 1<<20)
		same(x, "result", string(got.Result) == string(c.Result), true)
		again := x.keep(got)
		same(x, "result of the next version", string(again.Result) == string(c.Result), true)
	},
	"RemoveNeedsTheVersionAndLeavesTheTrail": func(x *fixture) {
		c := x.keep(x.call("c"))
		x.want(x.s.Commit(x.ctx, record.Change{ID: "c", Version: 7, Remove: true}), store.ErrConflict)
		x.want(x.s.Commit(x.ctx, record.Change{ID: "other", Remove: true}), store.ErrConflict)
		x.must(x.s.Commit(x.ctx, record.Change{ID: "c", Version: c.Version, Remove: true, Audit: []record.Entry{entry(c, "purged")}}))
		x.absent("c")
		same(x, "trail", x.trail(store.AuditQuery{Call: "c"}), []string{"purged"})
		x.want(x.s.Commit(x.ctx, record.Change{ID: "c", Version: c.Version, Remove: true}), store.ErrConflict)
		same(x, "a new call of that name", x.keep(x.call("c")).Version, 1)
	},
	"WithoutACallTheVersionIsNotLookedAt": func(x *fixture) {
		c := x.keep(x.call("c"))
		x.must(x.s.Commit(x.ctx, record.Change{ID: "c", Version: 99, Audit: []record.Entry{entry(c, "refused")}}))
		x.must(x.s.Commit(x.ctx, record.Change{Audit: []record.Entry{{At: start, Event: "batch"}}}))
		same(x, "call", x.load("c"), c)
		same(x, "trail", x.trail(store.AuditQuery{}), []string{"refused", "batch"})
	},
	"NonsenseIsRefused": func(x *fixture) {
		for what, c := range map[string]record.Change{
			"kept and removed":    {ID: "c", After: x.call("c"), Remove: true},
			"another id":          {ID: "c", After: x.call("d")},
			"no id":               {After: x.call("")},
			"a mark of no call":   {Marks: []record.MarkWrite{{MarkID: record.MarkID{Name: "n"}}}},
			"a mark for another":  {ID: "c", Marks: []record.MarkWrite{{Set: &record.Mark{Call: "d"}}}},
			"a number that isn't": {ID: "c", After: x.call("c", func(c *record.Call) { c.Progress = &record.Progress{Done: nan} })},
		} {
			if x.s.Commit(x.ctx, c) == nil {
				x.Errorf("%s: committed", what)
			}
		}
		x.absent("c")
	},
	"StrangeNamesStayApart": strangeNames,
	"TheQuotaCountsCallsThatLive": func(x *fixture) {
		open := func(id, tenant string) error {
			c := put(x.call(id, of(tenant)))
			c.MaxLive = 2
			return x.s.Commit(x.ctx, c)
		}
		x.must(open("a", "acme"))
		x.must(open("b", "acme"))
		x.want(open("c", "acme"), store.ErrQuota)
		x.absent("c")
		x.must(open("c", "other"))
		x.must(x.s.Commit(x.ctx, put(x.call("unlimited", of("other")))))

		b := x.load("b")
		b.State = record.Ended
		b = x.keep(b)
		x.must(open("d", "acme"))
		x.want(open("e", "acme"), store.ErrQuota)
		x.must(x.s.Commit(x.ctx, record.Change{ID: "b", Version: b.Version, Remove: true})) // ended: no room for another
		x.want(open("e", "acme"), store.ErrQuota)
		x.s = x.reopen()
		x.want(open("e", "acme"), store.ErrQuota)
		x.must(x.s.Commit(x.ctx, record.Change{ID: "a", Version: 1, Remove: true}))
		x.must(open("e", "acme"))
	},
	"ARefusedChangeLeavesNothing": func(x *fixture) {
		other := x.keep(x.call("other"))
		id := record.MarkID{Kind: record.MarkKey, Tenant: "acme", Name: "k"}
		x.must(x.s.Commit(x.ctx, record.Change{ID: "other", Marks: []record.MarkWrite{{MarkID: id, Set: &record.Mark{MarkID: id, Call: "other"}}}}))
		mine := record.MarkID{Kind: record.MarkKey, Tenant: "acme", Name: "mine"}
		c := put(x.call("c"), entry(other, "opened"))
		c.Marks = []record.MarkWrite{{MarkID: mine, Set: &record.Mark{MarkID: mine, Call: "c"}}, {MarkID: id, Set: &record.Mark{MarkID: id, Call: "c"}}}
		c.MaxLive = 1 // a conflict counts before the quota does
		x.want(x.s.Commit(x.ctx, c), store.ErrConflict)
		x.absent("c")
		_, err := x.s.Mark(x.ctx, mine)
		x.want(err, store.ErrNotFound)
		same(x, "trail", x.trail(store.AuditQuery{}), nil)
	},
	"AnEndedContextChangesNothing": func(x *fixture) {
		ctx, cancel := context.WithCancel(x.ctx)
		cancel()
		x.want(x.s.Commit(ctx, put(x.call("c"))), context.Canceled)
		x.absent("c")
		_, err := x.s.Load(ctx, "c")
		x.want(err, context.Canceled)
	},
	"WhatIsAcknowledgedIsThereAfterReopening": func(x *fixture) {
		id := record.MarkID{Kind: record.MarkSubject, Tenant: "acme", Name: "s"}
		ch := put(x.call("c"), entry(x.call("c"), "opened"))
		ch.Marks = []record.MarkWrite{{MarkID: id, Set: &record.Mark{MarkID: id, Call: "c", State: record.EffectDone}}}
		x.must(x.s.Commit(x.ctx, ch))
		x.s = x.reopen()
		same(x, "version", x.load("c").Version, 1)
		_, err := x.s.Mark(x.ctx, id)
		x.must(err)
		same(x, "trail", x.trail(store.AuditQuery{}), []string{"opened"})
	},
	"NowIsTheClock": func(x *fixture) {
		now, err := x.s.Now(x.ctx)
		x.must(err)
		same(x, "now", now, start)
	},
	"AClosedStoreSaysSo": func(x *fixture) {
		x.must(x.s.Close())
		x.must(x.s.Close())
		x.want(x.s.Commit(x.ctx, put(x.call("c"))), store.ErrClosed)
		_, err := x.s.Load(x.ctx, "c")
		x.want(err, store.ErrClosed)
		_, err = x.s.Due(x.ctx, start, 1, nil)
		x.want(err, store.ErrClosed)
	},
}

// strangeNames: what cannot be told apart as UTF-8 or up to a NUL must be told
// apart by a store, or one tenant sees what is another's.
func strangeNames(x *fixture) {
	names := []string{"", "a", "a\x00", "a\x00b", "a\xff", "a\xfe", "a\uFFFD", "a\uFFFDfe", "a\uFFFD\uFFFD", "%", "_", "'", "\"", "A", "ä", "a\u0308",
		strings.Repeat("x", 10_000), strings.Repeat("\xf0", 10_000)}
	id := func(n string) record.MarkID { return record.MarkID{Kind: record.MarkKey, Tenant: n, Name: n} }
	for _, n := range names {
		c := x.call("id "+n, of(n), x.running("holder "+n))
		c.Owner.Subject, c.Action.Name, c.Roles = n, n, []string{n}
		ch := put(c, entry(c, "opened "+n))
		ch.MaxLive = 1
		ch.Marks = []record.MarkWrite{{MarkID: id(n), Set: &record.Mark{MarkID: id(n), Call: c.ID, Owner: c.Owner, Digest: n}}}
		x.must(x.s.Commit(x.ctx, ch))
		c.Version = 1
		same(x, "call", x.load(c.ID), c)
		m, err := x.s.Mark(x.ctx, id(n))
		x.must(err)
		same(x, "mark", m, ch.Marks[0].Set)
		renewed, err := x.s.Renew(x.ctx, "holder "+n, []store.LeaseRef{{Call: c.ID, Epoch: 1}}, c.Lease.Until)
		x.must(err)
		same(x, "renewed", len(renewed), 1)
	}
	for _, n := range names {
		listed, err := x.s.List(x.ctx, store.Filter{Tenant: n})
		x.must(err)
		if len(listed) != 1 || listed[0].Owner.Tenant != n {
			x.Fatalf("%q has %d calls, want its own alone", n, len(listed))
		}
		same(x, "trail", x.trail(store.AuditQuery{Call: "id " + n}), []string{"opened " + n})
	}
	x.pass(time.Minute)
	due, err := x.s.Due(x.ctx, x.clock(), 100, nil)
	x.must(err)
	same(x, "overdue", len(due.Overdue), len(names))
}
