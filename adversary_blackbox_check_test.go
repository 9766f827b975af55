package tallystick_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// settle lets the operator look once more, and waits until every call has
// ended or waits for somebody.
func (c *crowd) settle(s store.Store) {
	c.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		c.resolve(context.Background(), nil) // if somebody serves
		var busy []string
		for _, call := range c.calls(s) {
			if call.State == record.Ready || call.State == record.Running {
				busy = append(busy, fmt.Sprintf("%s %s %s %s lease %v", call.ID, call.Action.Name, call.State, call.Owner.Subject, call.Lease))
			}
		}
		if len(busy) == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("calls that go nowhere: %s", strings.Join(busy, "\n"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *crowd) calls(s store.Store) []*record.Call {
	c.t.Helper()
	var all []*record.Call
	for _, tenant := range []string{"acme", "evil"} {
		for after := ""; ; {
			page, err := s.List(context.Background(), store.Filter{Tenant: tenant, After: after, Limit: 1000})
			if err != nil {
				c.t.Fatal(err)
			}
			all = append(all, page...)
			if len(page) < 1000 {
				break
			}
			after = page[len(page)-1].ID
		}
	}
	return all
}

// check compares what the crowd was told, what is on record and what the far
// side wrote down.
func (c *crowd) check(s store.Store) {
	c.t.Helper()
	calls := map[string]*record.Call{}
	tools := map[string]map[string]int{}
	for _, call := range c.calls(s) {
		calls[call.ID] = call
		if tools[call.Action.Name] == nil {
			tools[call.Action.Name] = map[string]int{}
		}
		tools[call.Action.Name][fmt.Sprint(call.State, " ", call.Outcome)]++
	}
	trail := map[string][]record.Entry{}
	for after := int64(0); ; {
		rows, err := s.Audit(context.Background(), store.AuditQuery{After: after, Limit: 1000})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, row := range rows {
			trail[row.Call] = append(trail[row.Call], row.Entry)
			after = row.Seq
		}
		if len(rows) < 1000 {
			break
		}
	}
	c.far.mu.Lock()
	ledger := slices.Clone(c.far.ledger)
	c.far.mu.Unlock()
	seen := map[string]charge{}
	for _, ch := range ledger {
		what := ch.Tenant + ": " + ch.Effect + " " + ch.Subject
		if before, ok := seen[what]; ok {
			c.blame("%s is charged twice: %+v, %+v", what, before, ch)
		}
		seen[what] = ch
		if call := calls[ch.Call]; call == nil {
			c.blame("%s is charged by no call", what)
		} else {
			c.approved(call, ch, trail[ch.Call])
		}
	}
	for id := range c.known {
		if calls[id] == nil {
			c.blame("task %s is lost", id)
		}
	}
	for _, a := range c.acked {
		c.kept(calls[a.call], a)
	}
	for id, said := range c.ends {
		if call := calls[id]; call != nil && call.State != record.Ended {
			c.blame("task %s is %s, after %s", id, call.State, said)
		}
	}
	var counts []int64
	for i := range c.counts {
		counts = append(counts, c.counts[i].Load())
	}
	c.t.Logf("acts %v, %d calls, %d charges, %d acks, %d ends, %d rounds' ends; %v", counts, len(calls), len(ledger), len(c.acked), len(c.ends), len(c.finals), tools)
	for _, w := range c.wrong {
		c.t.Error(w)
	}
}

// approved tells whether the people who had to have approved the charge, with
// the facts it was made with, before it was made.
func (c *crowd) approved(call *record.Call, ch charge, trail []record.Entry) {
	tool := bazaarTools[call.Action.Name]
	for _, q := range call.Questions {
		if q.Key != "approve" || string(q.Facts) != fmt.Sprint(ch.Facts) || q.State != record.Answered {
			continue
		}
		people := map[string]bool{}
		for _, a := range q.Answers {
			onRecord := slices.ContainsFunc(trail, func(e record.Entry) bool {
				return e.Key == q.WireKey && e.By.Subject == a.By.Subject && e.Digest == q.Digest && e.Event == "answered"
			})
			if a.Action == record.Accept && (c.jumps || !a.At.After(ch.At)) && a.By.Tenant == call.Owner.Tenant && tool.who.Allows(a.By, call.Owner) && onRecord {
				people[a.By.Subject] = true
			}
		}
		if len(people) >= max(1, tool.who.Count) {
			return
		}
	}
	c.blame("nobody approved %+v of %+v: %+v\n%+v", ch, call.Owner, call.Questions, trail)
}

// kept tells whether an acknowledged answer is on record.
func (c *crowd) kept(call *record.Call, a ack) {
	if call == nil {
		c.blame("the call of %+v is lost", a)
		return
	}
	q := call.Question(a.key)
	if q == nil {
		if a.decide {
			c.blame("the question of %+v is lost", a)
		}
		return
	}
	given := slices.ContainsFunc(q.Answers, func(x record.Answer) bool { return x.By.Subject == a.by })
	if !given && (a.decide || q.State == record.Open && q.Who.Requester()) {
		c.blame("the answer %+v is lost: %+v", a, q)
	}
}

// sound looks through an SQLite file that nobody has open.
func sound(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var said string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&said); err != nil || said != "ok" {
		t.Errorf("integrity_check: %s, %v", said, err)
	}
}
