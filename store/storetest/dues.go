package storetest

import (
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

var dues = map[string]func(*fixture){
	"NothingIsDueInAnEmptyStore": func(x *fixture) {
		same(x, "due", x.due(10), store.Due{})
	},
	"EachStateIsDueInItsWay": func(x *fixture) {
		now := x.clock()
		x.keep(x.call("ready", in(record.Ready)))
		x.keep(x.call("waiting"))
		asks := x.call("asks")
		asks.Questions = []record.Question{{Key: "k", State: record.Open, Expires: now.Add(time.Minute)}}
		x.keep(asks)
		x.keep(x.call("running", x.running("h")))
		settling := x.call("settling", x.running("h"))
		settling.Lease.Until = now.Add(2 * time.Hour)
		settling.Effects = []record.Effect{{Name: "e", Epoch: 1, State: record.EffectStarted}}
		x.keep(settling)
		ended := x.call("ended", in(record.Ended))
		ended.EndedAt, ended.Retention = now, 3*time.Hour
		x.keep(ended)
		unknown := x.call("unknown", in(record.Ended))
		unknown.Effects = []record.Effect{{Name: "e", State: record.EffectHeld}}
		x.keep(unknown)

		for _, step := range []struct {
			at      time.Duration
			overdue []string
			next    time.Duration
		}{
			{0, nil, 10 * time.Second},
			{10*time.Second - 1, nil, 10 * time.Second},
			{10 * time.Second, []string{"running"}, time.Minute},
			{time.Minute, []string{"running", "asks"}, time.Hour},
			{time.Hour, []string{"running", "asks", "waiting"}, 2 * time.Hour},
			{2 * time.Hour, []string{"running", "asks", "waiting", "settling"}, 3 * time.Hour},
			{3 * time.Hour, []string{"running", "asks", "waiting", "settling", "ended"}, 0},
		} {
			due, err := x.s.Due(x.ctx, now.Add(step.at), 10, nil)
			x.must(err)
			want := store.Due{Ready: []string{"ready"}, Overdue: step.overdue}
			if step.next != 0 {
				want.Next = now.Add(step.next)
			}
			same(x, "after "+step.at.String(), due, want)
		}
	},
	"EarliestFirstAndAtMostSoMany": func(x *fixture) {
		for i := range 6 {
			x.keep(x.call(name(9-i), in(record.Ready)))
			late := x.call("late" + name(9-i))
			late.Deadline = x.clock()
			x.keep(late)
			x.pass(time.Second)
		}
		x.keep(x.call("soon", func(c *record.Call) { c.Deadline = x.clock().Add(time.Minute) }))
		due := x.due(4)
		same(x, "ready", due.Ready, []string{name(9), name(8), name(7), name(6)})
		same(x, "overdue", due.Overdue, []string{"late" + name(9), "late" + name(8), "late" + name(7), "late" + name(6)})
		same(x, "next is of the others, not of what the limit left off", due.Next, x.clock().Add(time.Minute))
		same(x, "none asked for", x.due(0).Ready, nil)
	},
	"SomeTenantsAreLeftOut": func(x *fixture) {
		for i, tenant := range []string{"acme", "b\x00b", "", "acme", "d"} {
			x.keep(x.call(name(i), in(record.Ready), of(tenant)))
			late := x.call("late"+name(i), of(tenant))
			late.Deadline = x.clock()
			x.keep(late)
			x.pass(time.Second)
		}
		due := x.due(2, "acme", "b\x00b", "nobody")
		same(x, "ready", due.Ready, []string{name(2), name(4)})
		same(x, "overdue", len(due.Overdue), 2)
		same(x, "ready, all left out", x.due(2, "acme", "b\x00b", "", "d").Ready, nil)
		same(x, "ready, an empty list", len(x.due(9, []string{}...).Ready), 5)
	},
	"AReadyCallIsDueThoughTheClockWasSetBack": func(x *fixture) {
		c := x.call("c", in(record.Ready))
		c.UpdatedAt = x.clock().Add(time.Minute)
		x.keep(c)
		same(x, "due", x.due(5), store.Due{Ready: []string{"c"}})
		same(x, "left out", x.due(5, c.Owner.Tenant), store.Due{})
	},
	"WhatIsRemovedIsNotDue": func(x *fixture) {
		x.keep(x.call("c", in(record.Ready)))
		x.must(x.s.Commit(x.ctx, record.Change{ID: "c", Version: 1, Remove: true}))
		same(x, "due", x.due(5), store.Due{})
	},
}

func (x *fixture) due(limit int, except ...string) store.Due {
	x.Helper()
	due, err := x.s.Due(x.ctx, x.clock(), limit, except)
	x.must(err)
	return due
}
