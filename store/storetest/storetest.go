// Package storetest is the one suite that every store must pass.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// An Opener opens an empty store that goes by clock. reopen closes it and opens
// the same one again, as a new process would; a store that forgets returns the
// very same. The Opener closes what is open when t ends.
type Opener func(t *testing.T, clock func() time.Time) (s store.Store, reopen func() store.Store)

// Run checks every sentence of the store's contract, in a subtest each.
func Run(t *testing.T, open Opener) {
	groups := []map[string]func(*fixture){calls, leases, dues, marks, lists, audits, crowds}
	for _, group := range groups {
		for name, f := range group {
			t.Run(name, func(t *testing.T) {
				x := &fixture{T: t, ctx: t.Context(), now: start}
				x.s, x.reopen = open(t, x.clock)
				f(x)
			})
		}
	}
}

// start has nanoseconds, which a store must keep.
var start = time.Date(2026, 7, 28, 12, 0, 0, 123456789, time.UTC)

// fixture is one store under test, its clock, and the ways to change it.
type fixture struct {
	*testing.T
	ctx    context.Context
	s      store.Store
	reopen func() store.Store

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (x *fixture) clock() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *fixture) pass(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = x.now.Add(d)
}

// must ends the test on an error.
func (x *fixture) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// want ends the test unless err is that one.
func (x *fixture) want(err, target error) {
	x.Helper()
	if !errors.Is(err, target) {
		x.Fatalf("error is %v, want %v", err, target)
	}
}

func same[T any](x *fixture, what string, got, want T) {
	x.Helper()
	if !reflect.DeepEqual(got, want) {
		x.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// call is a waiting call, the simplest that lives.
func (x *fixture) call(id string, with ...func(*record.Call)) *record.Call {
	now := x.clock()
	c := &record.Call{
		ID: id, Owner: record.Principal{Tenant: "acme", Subject: "ann"},
		State: record.Waiting, CreatedAt: now, UpdatedAt: now, Deadline: now.Add(time.Hour), Retention: time.Hour,
		Args: []byte(`{}`),
	}
	for _, f := range with {
		f(c)
	}
	return c
}

func of(tenant string) func(*record.Call) {
	return func(c *record.Call) { c.Owner.Tenant = tenant }
}

func in(s record.State) func(*record.Call) {
	return func(c *record.Call) { c.State = s }
}

// running makes it a run of that holder, at epoch 1, for ten seconds.
func (x *fixture) running(holder string) func(*record.Call) {
	return func(c *record.Call) {
		c.State, c.Epoch = record.Running, 1
		c.Lease = record.Lease{Holder: holder, Until: x.clock().Add(10 * time.Second)}
	}
}

// put is the change that makes c the stored call, be it new or not.
func put(c *record.Call, entries ...record.Entry) record.Change {
	after := *c
	after.Version++
	return record.Change{ID: c.ID, Version: c.Version, After: &after, Audit: entries}
}

// keep commits c and returns it as it is stored.
func (x *fixture) keep(c *record.Call) *record.Call {
	x.Helper()
	x.must(x.s.Commit(x.ctx, put(c)))
	return x.load(c.ID)
}

func (x *fixture) load(id string) *record.Call {
	x.Helper()
	c, err := x.s.Load(x.ctx, id)
	x.must(err)
	return c
}

func (x *fixture) absent(id string) {
	x.Helper()
	_, err := x.s.Load(x.ctx, id)
	x.want(err, store.ErrNotFound)
}

func (x *fixture) trail(q store.AuditQuery) []string {
	x.Helper()
	rows, err := x.s.Audit(x.ctx, q)
	x.must(err)
	var events []string
	for _, r := range rows {
		events = append(events, r.Event)
	}
	return events
}

func entry(c *record.Call, event string) record.Entry {
	return record.Entry{At: start, Call: c.ID, Tenant: c.Owner.Tenant, Event: event, By: record.System}
}

func name(i int) string { return fmt.Sprintf("call-%04d", i) }
