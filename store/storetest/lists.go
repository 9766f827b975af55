package storetest

import (
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var lists = map[string]func(*fixture){
	"ListIsOfOneTenantOldestFirst": func(x *fixture) {
		for i := range 5 {
			x.keep(x.call(name(9-i), of([]string{"acme", "other"}[i%2])))
			x.pass(time.Second)
		}
		x.keep(x.call("nobody's", of("")))
		same(x, "acme", x.list(store.Filter{Tenant: "acme"}), []string{name(9), name(7), name(5)})
		same(x, "other", x.list(store.Filter{Tenant: "other"}), []string{name(8), name(6)})
		same(x, "no tenant", x.list(store.Filter{}), []string{"nobody's"})
		same(x, "stranger", x.list(store.Filter{Tenant: "stranger"}), nil)
	},
	"OpenAndLiveNarrowTheList": func(x *fixture) {
		asks := func(c *record.Call) { c.Questions = []record.Question{{State: record.Open}} }
		held := func(c *record.Call) { c.Effects = []record.Effect{{State: record.EffectHeld}} }
		x.keep(x.call("1 waiting"))
		x.keep(x.call("2 asks", asks))
		x.keep(x.call("3 held", held, in(record.Held)))
		x.keep(x.call("4 ended", in(record.Ended)))
		x.keep(x.call("5 ended, held", held, in(record.Ended)))
		same(x, "live", x.list(store.Filter{Tenant: "acme", Live: true}), []string{"1 waiting", "2 asks", "3 held"})
		same(x, "open", x.list(store.Filter{Tenant: "acme", Open: true}), []string{"2 asks", "3 held", "5 ended, held"})
		same(x, "both", x.list(store.Filter{Tenant: "acme", Open: true, Live: true}), []string{"2 asks", "3 held"})
		c := x.load("2 asks")
		c.Questions[0].State = record.Answered
		x.keep(c)
		same(x, "answered", x.list(store.Filter{Tenant: "acme", Open: true, After: "2 asks"}), []string{"3 held", "5 ended, held"})
	},
	"CountsAreWhatThereIsToDo": func(x *fixture) {
		counts := func(want store.Counts) {
			n, err := x.s.Counts(x.ctx)
			x.must(err)
			same(x, "counts", n, want)
		}
		counts(store.Counts{})
		asks := func(c *record.Call) {
			c.Questions = []record.Question{{State: record.Open}, {State: record.Answered}, {State: record.Open}}
		}
		held := func(c *record.Call) {
			c.Effects = []record.Effect{{State: record.EffectHeld}, {State: record.EffectDone}}
		}
		x.keep(x.call("ready", in(record.Ready)))
		x.keep(x.call("another", of("other"), in(record.Ready)))
		x.keep(x.call("running", x.running("node/1")))
		x.keep(x.call("asks", asks, in(record.Waiting)))
		x.keep(x.call("held", held, in(record.Held)))
		x.keep(x.call("ended", in(record.Ended)))
		counts(store.Counts{Ready: 2, Running: 1, Open: 3})
		c := x.load("asks")
		c.Questions[0].State, c.State = record.Answered, record.Ready
		x.keep(c)
		counts(store.Counts{Ready: 3, Running: 1, Open: 2})
		x.must(x.s.Commit(x.ctx, record.Change{ID: "asks", Version: 2, Remove: true}))
		counts(store.Counts{Ready: 2, Running: 1, Open: 1})
	},
	// Case S93: ids and order under a clock that stands still.
	"AThousandCallsInOneMoment": func(x *fixture) {
		for i := range 1000 {
			x.must(x.s.Commit(x.ctx, put(x.call(name(i)))))
		}
		seen := map[string]bool{}
		f := store.Filter{Tenant: "acme", Live: true, Limit: 300}
		for _, want := range []int{300, 300, 300, 100, 0} {
			ids := x.list(f)
			same(x, "page", len(ids), want)
			for _, id := range ids {
				seen[id] = true
				f.After = id
			}
		}
		same(x, "seen", len(seen), 1000)
	},
	"LimitsHaveDefaults": func(x *fixture) {
		var ch []record.Entry
		for i := range 1100 {
			ch = append(ch, record.Entry{At: start, Event: name(i)})
		}
		x.must(x.s.Commit(x.ctx, record.Change{Audit: ch}))
		for _, c := range [][2]int{{0, 100}, {-1, 100}, {7, 7}, {1000, 1000}, {5000, 1000}} {
			same(x, "entries", len(x.trail(store.AuditQuery{Limit: c[0]})), c[1])
		}
		for i := range 120 {
			x.must(x.s.Commit(x.ctx, put(x.call(name(i)))))
		}
		same(x, "calls", len(x.list(store.Filter{Tenant: "acme"})), 100)
		same(x, "calls", len(x.list(store.Filter{Tenant: "acme", Limit: 5000})), 120)
	},
	"AListAfterACallThatIsGoneSaysSo": func(x *fixture) {
		x.keep(x.call("c"))
		x.keep(x.call("foreign", of("other")))
		for _, after := range []string{"gone", "foreign"} {
			_, err := x.s.List(x.ctx, store.Filter{Tenant: "acme", After: after})
			x.want(err, store.ErrNotFound)
		}
	},
	"AListedCallIsWholeButForItsPayloads": func(x *fixture) {
		x.must(x.s.Commit(x.ctx, put(Full("full"))))
		want := x.load("full")
		calls, err := x.s.List(x.ctx, store.Filter{Tenant: want.Owner.Tenant})
		x.must(err)
		want.Args, want.Result = nil, nil
		same(x, "listed", calls, []*record.Call{want})
	},
}

func (x *fixture) list(f store.Filter) []string {
	x.Helper()
	calls, err := x.s.List(x.ctx, f)
	x.must(err)
	var ids []string
	for _, c := range calls {
		ids = append(ids, c.ID)
	}
	return ids
}

var audits = map[string]func(*fixture){
	"EveryFieldOfAnEntryIsKept": func(x *fixture) {
		e := FullEntry()
		x.must(x.s.Commit(x.ctx, record.Change{Audit: []record.Entry{e, {}}}))
		rows, err := x.s.Audit(x.ctx, store.AuditQuery{})
		x.must(err)
		same(x, "trail", rows, []store.AuditRow{{Seq: 1, Entry: e}, {Seq: 2}})
	},
	"TheTrailIsReadInPages": func(x *fixture) {
		a, b := x.call("a"), x.call("b", of("other"))
		for i := range 3 {
			x.must(x.s.Commit(x.ctx, record.Change{ID: "a", Audit: []record.Entry{entry(a, name(2*i)), entry(b, name(2*i+1))}}))
		}
		same(x, "first", x.trail(store.AuditQuery{Limit: 2}), []string{name(0), name(1)})
		same(x, "next", x.trail(store.AuditQuery{Limit: 2, After: 2}), []string{name(2), name(3)})
		same(x, "last", x.trail(store.AuditQuery{After: 5}), []string{name(5)})
		same(x, "none", x.trail(store.AuditQuery{After: 6}), nil)
		same(x, "of a call", x.trail(store.AuditQuery{Call: "a", After: 1}), []string{name(2), name(4)})
		same(x, "of a tenant", x.trail(store.AuditQuery{Tenant: "other", Limit: 2}), []string{name(1), name(3)})
		same(x, "of both", x.trail(store.AuditQuery{Call: "b", Tenant: "other"}), []string{name(1), name(3), name(5)})
		same(x, "of none", x.trail(store.AuditQuery{Call: "a", Tenant: "other"}), nil)
		x.s = x.reopen()
		x.must(x.s.Commit(x.ctx, record.Change{ID: "a", Audit: []record.Entry{entry(a, "later")}}))
		same(x, "after reopening", x.trail(store.AuditQuery{After: 6}), []string{"later"})
	},
}
