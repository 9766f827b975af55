package bazaar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// Settle lets the operators look, and waits until every call has ended or waits
// for somebody, and nothing is held.
func (c *Crowd) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		// What runs may come to be held, so that it is counted first.
		out, err := askPage(ctx, c.place.Load().page, pageRequest{Count: true})
		if err == nil {
			err = c.resolve(ctx)
		}
		if err == nil && out.Err == "" && out.Held+out.Counts.Ready+out.Counts.Running == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("calls that go nowhere: %+v, %d held, %v", out.Counts, out.Held, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Again asks once more for n of the tasks, and sends once more n of the requests
// that had come to an end, and n of those that a key made a task, or all of them.
func (c *Crowd) Again(ctx context.Context, n int) {
	c.mu.Lock()
	tasks, url := slices.Clone(c.tasks), c.place.Load().url
	finals, keyed := some(c.finals, n), some(c.keyed, n)
	c.mu.Unlock()
	for i := range min(n, len(tasks)) {
		t := tasks[len(tasks)-1-i*len(tasks)/min(n, len(tasks))]
		t.c.URL = url
		c.get(ctx, t)
	}
	for once, f := range finals {
		f.t.c.URL = url
		if kind := c.take(ctx, f.t, f.more, once).text("resultType"); kind != "" && kind != "complete" {
			c.Blame("a request of %s is answered with %s, and had ended: %s", f.t.name, kind, f.said)
		}
	}
	for _, f := range keyed {
		f.t.c.URL = url
		c.take(ctx, f.t, f.more, "")
	}
}

// some are n of the finals, whichever.
func some(of map[string]final, n int) map[string]final {
	picked := map[string]final{}
	for once, f := range of {
		if len(picked) == n {
			break
		}
		picked[once] = f
	}
	return picked
}

// A Tally is how much there was.
type Tally struct {
	Calls, Tasks, Charges, Late, Attempts, Answers, Ends, Finals, Entries int
	Acks                                                                  map[string]int
	Tools                                                                 map[string]map[string]int // by outcome
	Events                                                                map[string]int            // of the trail; of stops, by why
}

var tenants = []string{"acme", "evil"}

// books are what a store has.
type books struct {
	calls map[string]*record.Call
	trail map[string][]store.AuditRow
	rows  int
}

// Check compares what the crowd was told, what is on record and what the far
// side wrote down. settled: nothing is under way any more.
func (c *Crowd) Check(ctx context.Context, s store.Store, settled bool) (Tally, error) {
	c.mu.Lock() // what is told from now on may not be on record here
	known, ends, acks, finals := maps.Clone(c.known), maps.Clone(c.ends), slices.Clone(c.acks), len(c.finals)
	c.mu.Unlock()
	ledger, came := c.Far.books()
	b, err := c.read(ctx, s)
	if err != nil {
		return Tally{}, err
	}
	happened := c.charged(b, ledger, came)
	for id, call := range b.calls {
		if wrong := unaccounted(call, b.trail[id]); len(wrong) > 0 {
			c.Blame("call %s: %s: %s", id, strings.Join(wrong, "; "), story(call, b.trail[id]))
		}
		if settled {
			c.atRest(call, happened)
		}
	}
	for id, rows := range b.trail {
		if b.calls[id] == nil && id != "" && slices.Contains(tenants, rows[0].Tenant) {
			c.Blame("call %s has a trail and is lost", id)
		}
	}
	for id, k := range known {
		c.found(b.calls[id], id, k)
	}
	for _, a := range acks {
		c.kept(b.calls[a.call], b.trail[a.call], a)
	}
	for id, e := range ends {
		if err := c.stands(ctx, s, b.calls[id], id, e); err != nil {
			return Tally{}, err
		}
	}
	c.Far.mu.Lock()
	late := c.Far.late
	c.Far.mu.Unlock()
	return tally(b, Tally{
		Calls: len(b.calls), Charges: len(ledger), Attempts: len(came), Late: late, Ends: len(ends), Finals: finals, Entries: b.rows,
	}, acks), nil
}

func tally(b *books, t Tally, acks []ack) Tally {
	t.Acks, t.Tools, t.Events = map[string]int{}, map[string]map[string]int{}, map[string]int{}
	for _, rows := range b.trail {
		for _, e := range rows {
			if e.Event == "stopped" {
				e.Event += " " + e.Note
			}
			t.Events[e.Event]++
		}
	}
	for _, a := range acks {
		t.Acks[a.how]++
	}
	for _, call := range b.calls {
		if call.Task {
			t.Tasks++
		}
		for _, q := range call.Questions {
			t.Answers += len(q.Answers)
		}
		tool := t.Tools[call.Action.Name]
		if tool == nil {
			tool = map[string]int{}
			t.Tools[call.Action.Name] = tool
		}
		tool[strings.TrimSpace(fmt.Sprint(call.State, " ", call.Outcome))]++
	}
	return t
}

// read reads all that a store has, at one moment: again, if something was
// written meanwhile.
func (c *Crowd) read(ctx context.Context, s store.Store) (*books, error) {
	for try := 0; ; try++ {
		b := &books{calls: map[string]*record.Call{}, trail: map[string][]store.AuditRow{}}
		if err := c.readTrail(ctx, s, b); err != nil {
			return nil, err
		}
		if err := b.readCalls(ctx, s); err != nil {
			return nil, err
		}
		more, err := s.Audit(ctx, store.AuditQuery{After: int64(b.rows), Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(more) == 0 || try == 10 {
			return b, nil
		}
	}
}

func (b *books) readCalls(ctx context.Context, s store.Store) error {
	for _, tenant := range tenants {
		for after := ""; ; {
			page, err := s.List(ctx, store.Filter{Tenant: tenant, After: after, Limit: 1000})
			if err != nil {
				return err
			}
			for _, call := range page {
				b.calls[call.ID] = call
				after = call.ID
			}
			if len(page) < 1000 {
				break
			}
		}
	}
	return nil
}

// readTrail reads the audit trail, which has no gap.
func (c *Crowd) readTrail(ctx context.Context, s store.Store, b *books) error {
	for {
		rows, err := s.Audit(ctx, store.AuditQuery{After: int64(b.rows), Limit: 1000})
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if b.rows++; row.Seq != int64(b.rows) {
				c.Blame("entry %d of the audit trail has the number %d", b.rows, row.Seq)
			}
			b.trail[row.Call] = append(b.trail[row.Call], row)
		}
	}
}

// charged goes through the ledger: nothing twice, nothing without approval, and
// nothing that arrived without a start on record.
func (c *Crowd) charged(b *books, ledger, came []Charge) (happened map[string]bool) {
	seen := map[string]Charge{}
	happened = map[string]bool{}
	for _, ch := range ledger {
		if before, ok := seen[ch.what()]; ok {
			c.Blame("%s is charged twice: %+v, %+v", ch.what(), before, ch)
		}
		seen[ch.what()], happened[ch.what()] = ch, true
		if call := b.calls[ch.Call]; call == nil {
			c.Blame("%s is charged by no call", ch.what())
		} else {
			c.approved(call, ch, b.trail[ch.Call])
		}
	}
	slices.SortFunc(came, func(a, b Charge) int { return a.Began.Compare(b.Began) })
	arrived := map[string]int{}
	for _, ch := range came {
		name := effect(ch.Effect, ch.Subject)
		arrived[ch.Call+name]++
		starts := 0
		for _, e := range b.trail[ch.Call] {
			if e.Event == "effect started" && e.Effect == name && (c.Jumps || !e.At.After(ch.Began)) {
				starts++
			}
		}
		if starts < arrived[ch.Call+name] {
			c.Blame("%s arrived %d times, at last by %+v, after %d starts on record", ch.what(), arrived[ch.Call+name], ch, starts)
		}
	}
	return happened
}

func effect(name, subject string) string { return name + " [" + subject + "]" }

// atRest holds what is true of a call's effects when nothing is under way.
func (c *Crowd) atRest(call *record.Call, happened map[string]bool) {
	for _, f := range call.Effects {
		what := Charge{Tenant: call.Owner.Tenant, Effect: f.Name, Subject: f.Subject}.what()
		if f.State == record.EffectStarted || f.State == record.EffectHeld || f.State == record.EffectDone && !happened[what] {
			c.Blame("call %s: %s is %s, and whether it happened is %t", call.ID, what, f.State, happened[what])
		}
	}
}

// found tells whether a call that somebody was told of is there.
func (c *Crowd) found(call *record.Call, id string, k known) {
	switch {
	case call == nil:
		c.Blame("call %s is lost, task %t, told at %v", id, k.task, k.at)
	case k.task && !call.Task, !c.Jumps && call.CreatedAt.After(k.at):
		c.Blame("call %s was told as another: %+v, %+v", id, k, call)
	}
}

// stands tells whether a task that was told to have ended has ended so.
func (c *Crowd) stands(ctx context.Context, s store.Store, call *record.Call, id string, e end) error {
	if call == nil {
		return nil // lost, which found says
	}
	status := string(call.Outcome)
	if call.Outcome == record.Expired {
		status = "failed"
	}
	if call.State != record.Ended || status != e.status || !c.Jumps && call.EndedAt.After(e.at) {
		c.Blame("task %s is %s %s since %v, after at %v %s", id, call.State, call.Outcome, call.EndedAt, e.at, e.said)
		return nil
	}
	full, err := s.Load(ctx, id)
	if err != nil {
		return err
	}
	if call.Outcome == record.Completed && !strings.HasSuffix(e.said, " "+string(full.Result)) {
		c.Blame("the result of task %s is %s, after %s", id, full.Result, e.said)
	}
	return nil
}

// approved tells whether the people who had to have approved the charge, with
// the facts it was made with, before it was made.
func (c *Crowd) approved(call *record.Call, ch Charge, trail []store.AuditRow) {
	tool := Tools[call.Action.Name]
	for _, q := range call.Questions {
		if q.Key != "approve" || string(q.Facts) != fmt.Sprint(ch.Facts) || q.State != record.Answered {
			continue
		}
		people := map[string]bool{}
		for _, a := range q.Answers {
			onRecord := slices.ContainsFunc(trail, func(e store.AuditRow) bool {
				return e.Key == q.WireKey && e.By.Subject == a.By.Subject && e.Digest == q.Digest && e.Event == "answered"
			})
			if a.Action == record.Accept && (c.Jumps || !a.At.After(ch.Began)) && a.By.Tenant == call.Owner.Tenant && tool.who.Allows(a.By, call.Owner) && onRecord {
				people[a.By.Subject] = true
			}
		}
		if len(people) >= max(1, tool.who.Count) {
			return
		}
	}
	c.Blame("nobody approved %+v of %s", ch, story(call, trail))
}

// kept tells whether what was acknowledged is on record: that it was done, or
// that it was refused, or that it had been settled before.
func (c *Crowd) kept(call *record.Call, trail []store.AuditRow, a ack) {
	if call == nil {
		c.Blame("the call of %+v is lost", a)
		return
	}
	if c.Jumps && a.how != "decide" && a.how != "resolve" {
		return // what had expired then is open now
	}
	done := map[string]string{"cancel": "cancel asked", "resolve": "effect resolved"}[a.how]
	if done == "" {
		done = "answered"
	}
	over := a.how != "decide" && a.how != "resolve" && (call.State == record.Ended && !call.EndedAt.After(a.at) || !call.CancelledAt.IsZero() && !call.CancelledAt.After(a.at))
	if q := call.Question(a.key); q != nil && a.how != "decide" {
		over = over || !q.Expires.After(a.at)
	}
	if over || slices.ContainsFunc(trail, func(e store.AuditRow) bool {
		switch {
		case c.Jumps && e.Event == done:
			return true
		case e.At.After(a.at):
			return false
		case a.how != "decide" && a.how != "resolve" && e.Event == "refused":
			return e.By.Subject == a.by && !e.At.Before(a.sent)
		case a.how != "decide" && (e.Event == "voided" || e.Event == "answered" && e.Note != string(record.Accept)):
			return e.Key == a.key
		}
		return e.Event == done && e.By.Subject == a.by && (e.Key == a.key || e.Effect == a.key)
	}) {
		return
	}
	c.Blame("%s of %s to %q of call %s, sent at %v and acknowledged at %v, is lost: %s", a.how, a.by, a.key, a.call, a.sent.UTC(), a.at.UTC(), story(call, trail))
}
