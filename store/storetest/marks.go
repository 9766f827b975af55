package storetest

import (
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var marks = map[string]func(*fixture){
	"EveryFieldOfAMarkIsKept": func(x *fixture) {
		m := FullMark("c")
		x.must(x.set("c", m))
		got, err := x.s.Mark(x.ctx, m.MarkID)
		x.must(err)
		same(x, "mark", got, &m)
		m.Result[0] = 'x'
		again, err := x.s.Mark(x.ctx, m.MarkID)
		x.must(err)
		same(x, "a copy", again, got)
		bare := record.Mark{MarkID: record.MarkID{Kind: record.MarkGone, Name: "bare"}, Call: "c"}
		x.must(x.set("c", bare))
		got, err = x.s.Mark(x.ctx, bare.MarkID)
		x.must(err)
		same(x, "zero values", got, &bare)
	},
	"AMarkIsItsCallsAlone": func(x *fixture) {
		id := record.MarkID{Kind: record.MarkSubject, Tenant: "acme", Name: "s"}
		x.must(x.set("c", record.Mark{MarkID: id, Call: "c", State: record.EffectStarted}))
		x.want(x.set("d", record.Mark{MarkID: id, Call: "d"}), store.ErrConflict)
		x.want(x.clear("d", id), store.ErrConflict)
		x.must(x.set("c", record.Mark{MarkID: id, Call: "c", State: record.EffectDone}))
		m, err := x.s.Mark(x.ctx, id)
		x.must(err)
		same(x, "state", m.State, record.EffectDone)
		x.must(x.clear("c", id))
		x.must(x.clear("c", id)) // absent: fine
		_, err = x.s.Mark(x.ctx, id)
		x.want(err, store.ErrNotFound)
		x.must(x.set("d", record.Mark{MarkID: id, Call: "d"}))
	},
	"KindTenantAndNameTellMarksApart": func(x *fixture) {
		for _, id := range []record.MarkID{{Kind: "a", Tenant: "b", Name: "c"}, {Kind: "a", Tenant: "b", Name: "d"}, {Kind: "a", Tenant: "c", Name: "c"}, {Kind: "b", Tenant: "b", Name: "c"}} {
			x.must(x.set("call "+id.Name+id.Tenant+string(id.Kind), record.Mark{MarkID: id, Call: "call " + id.Name + id.Tenant + string(id.Kind)}))
		}
	},
	"AMarkPastItsTimeIsAbsent": func(x *fixture) {
		id := record.MarkID{Kind: record.MarkGone, Tenant: "acme", Name: "c"}
		x.must(x.set("c", record.Mark{MarkID: id, Call: "c", Until: start.Add(time.Minute)}))
		x.pass(time.Minute - 1)
		_, err := x.s.Mark(x.ctx, id)
		x.must(err)
		x.want(x.set("d", record.Mark{MarkID: id, Call: "d"}), store.ErrConflict)
		x.pass(1)
		_, err = x.s.Mark(x.ctx, id)
		x.want(err, store.ErrNotFound)
		x.must(x.set("d", record.Mark{MarkID: id, Call: "d"}))
	},
	"PurgeTakesMarksPastTheirTime": func(x *fixture) {
		for i := range 5 {
			id := record.MarkID{Kind: record.MarkGone, Name: name(i)}
			x.must(x.set("c", record.Mark{MarkID: id, Call: "c", Until: start.Add(time.Duration(i) * time.Minute)}))
		}
		forever := record.MarkID{Kind: record.MarkSubject, Name: "for ever"}
		x.must(x.set("c", record.Mark{MarkID: forever, Call: "c"}))
		for _, want := range []int{2, 1, 0} {
			n, err := x.s.Purge(x.ctx, start.Add(2*time.Minute), 2)
			x.must(err)
			same(x, "purged", n, want)
		}
		n, err := x.s.Purge(x.ctx, start.Add(time.Hour), 0)
		x.must(err)
		same(x, "purged, none asked for", n, 0)
		n, err = x.s.Purge(x.ctx, start.Add(1000*time.Hour), 100)
		x.must(err)
		same(x, "purged", n, 2)
		_, err = x.s.Mark(x.ctx, forever)
		x.must(err)
	},
}

func (x *fixture) set(call string, m record.Mark) error {
	return x.s.Commit(x.ctx, record.Change{ID: call, Marks: []record.MarkWrite{{MarkID: m.MarkID, Set: &m}}})
}

func (x *fixture) clear(call string, id record.MarkID) error {
	return x.s.Commit(x.ctx, record.Change{ID: call, Marks: []record.MarkWrite{{MarkID: id}}})
}
