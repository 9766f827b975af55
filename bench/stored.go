package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/sqlite"
)

// storedID names a stored call.
func storedID(n int) string { return fmt.Sprintf("STOREDCALL%016d", n) }

// storedCall is one of many: three of four have ended, one waits for an answer.
func storedCall(n int, now time.Time) record.Change {
	id := storedID(n)
	owner := record.Principal{Issuer: bencher.Issuer, Tenant: bencher.Tenant, Subject: bencher.Subject, Client: bencher.Client}
	created := now.Add(-time.Duration(n) * time.Millisecond)
	c := &record.Call{
		ID: id, Owner: owner, Task: true, Background: true, State: record.Ended, Outcome: record.Completed,
		Action: record.Action{Method: "tools/call", Name: "job", ArgsDigest: "d", Version: "1"}, Args: []byte(`{"order":"1"}`),
		CreatedAt: created, UpdatedAt: created, Deadline: now.Add(24 * time.Hour), Retention: 24 * time.Hour, EndedAt: now, Runs: 1, MaxRuns: 100,
		Result: []byte(`{"resultType":"complete","content":[{"type":"text","text":"{\"receipt\":\"R-1\"}"}],"structuredContent":{"receipt":"R-1"}}`),
	}
	if n%4 == 0 {
		c.State, c.Outcome, c.EndedAt, c.Result = record.Waiting, "", time.Time{}, nil
		c.Questions = []record.Question{{
			Key: "approve", WireKey: "approve", Kind: record.KindForm, Message: "Refund?", Request: []byte(`{"mode":"form","message":"Refund?"}`),
			Digest: "d", AskedAt: now, Expires: now.Add(12 * time.Hour), State: record.Open,
		}}
	}
	by := record.Actor{Principal: owner, Channel: record.ChannelRun}
	return record.Change{ID: id, After: c, Audit: []record.Entry{
		{At: now, Call: id, Tenant: owner.Tenant, Event: "opened", By: by}, {At: now, Call: id, Tenant: owner.Tenant, Event: "ended", By: by},
	}}
}

// fill stores n calls in a folder that no server has open.
func (b *bench) fill(folder string, n int) (err error) {
	folder = filepath.Join(b.folder, folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(folder, embedded.StoreFile)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var work sync.WaitGroup
	var begun atomic.Int64
	const at = 512
	errs := make([]error, at)
	now := time.Now()
	for i := range at {
		work.Go(func() {
			for errs[i] == nil {
				next := int(begun.Add(1)) - 1
				if next >= n {
					return
				}
				errs[i] = db.Commit(context.Background(), storedCall(next, now))
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// An archive is a server with calls in its store, and what is measured of it.
type archive struct {
	*desk
	asked chan [2]string // orders that wait for an answer, and their states
}

func (b *bench) archive(calls int) (*archive, error) {
	folder := fmt.Sprintf("stored-%d", calls)
	fmt.Fprintf(b.log, "  storing %d calls\n", calls)
	if err := b.fill(folder, calls); err != nil {
		return nil, err
	}
	d, err := b.open("tallystick", folder)
	if err != nil {
		return nil, err
	}
	return &archive{d, make(chan [2]string, 1<<20)}, nil
}

// contenders get calls at random, some of them spread over all and then any,
// make calls, and claim what they have made.
func (a *archive) contenders(calls, some int) []contender {
	get, approve := getting(a.address), newApprover(a.address)
	getOne := func(name string, pick func() int) contender {
		return contender{name, func(length time.Duration) (int, error) {
			return a.during(length, func(_ int, c *conn) error {
				c.out = get.fill(c.out, storedID(pick()))
				_, err := c.want(c.out, `"taskId":"STOREDCALL`)
				return err
			})
		}, a.cpu}
	}
	return []contender{
		getOne("get some", func() int { return rand.IntN(some) * (calls / some) }),
		getOne("get any", func() int { return rand.IntN(calls) }),
		{"create", func(length time.Duration) (int, error) {
			return a.during(length, func(_ int, c *conn) error {
				order := nextOrder()
				state, err := approve.ask(c, order)
				a.asked <- [2]string{order, state}
				return err
			})
		}, a.cpu},
		{"claim", func(length time.Duration) (int, error) {
			end := time.Now().Add(length)
			return a.while(func(int) bool { return time.Now().Before(end) && len(a.asked) >= len(a.crowd) }, func(_ int, c *conn) error {
				it := <-a.asked
				return approve.answer(c, it[0], it[1])
			})
		}, a.cpu},
	}
}

func stored(b *bench) (rows []row, err error) {
	few, err := b.archive(b.size.few)
	if err != nil {
		return nil, err
	}
	defer few.close(&err)
	many, err := b.archive(b.size.many)
	if err != nil {
		return nil, err
	}
	defer many.close(&err)
	lots, little := many.contenders(b.size.many, b.size.few), few.contenders(b.size.few, b.size.few)
	var all []contender
	for i := range lots {
		all = append(all, lots[i], little[i])
	}
	s, err := b.turns(all...)
	if err != nil {
		return nil, err
	}
	some := fmt.Sprintf("`tasks/get` of %d calls", b.size.few)
	for i, what := range []string{some, "`tasks/get` of any call", "create a call that asks", "claim its round, do its effect and end it"} {
		r := versus(fmt.Sprintf("%s, with %d calls stored, against %d; ratio of times", what, b.size.many, b.size.few), "≤ 1.3", s[2*i], s[2*i+1])
		r.ratio = fmt.Sprintf("%.2f", s[2*i+1].against(s[2*i]))
		rows = append(rows, r)
	}
	return rows, nil
}
