package bazaar

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tallystick/tallystick"
)

func (c *Crowd) goOn(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.tickets)
	if !ok {
		return
	}
	answers := c.answers(r, t.keys)
	more := map[string]any{"requestState": t.state, "inputResponses": answers}
	if t.args != nil {
		more["arguments"] = t.args
	}
	if r.IntN(6) == 0 {
		c.steal(ctx, r, t, more)
		return
	}
	raw, _ := json.Marshal(answers)
	for range 1 + r.IntN(2) {
		sent := time.Now()
		got := c.take(ctx, t, more, t.state+string(raw)+t.c.Caps)
		if got.Result != nil && got.Err == nil && t.id != "" && got.meta("outcome") != "not_allowed" {
			c.tell("round")
			c.answered(t.id, "round", t.c.Token, sent, t.keys, answers)
		}
	}
}

// steal has somebody else send a state, or its owner with other arguments.
func (c *Crowd) steal(ctx context.Context, r *rand.Rand, t ticket, more map[string]any) {
	thief, bent := t.c, false
	switch r.IntN(3) {
	case 0:
		thief.Token = pick(r, requesters)
	case 1:
		thief.Token = pick(r, deciders)
	default:
		if t.args == nil {
			return
		}
		more["arguments"] = map[string]any{"orderId": "other"}
		bent = true
	}
	if thief.Token == t.c.Token && !bent {
		return
	}
	got, err := thief.Send(ctx, t.method, t.name, more)
	more["requestState"] = "v1.nothing"
	none, err2 := thief.Send(ctx, t.method, t.name, more)
	if err != nil || err2 != nil || got.Status >= 500 || none.Status >= 500 {
		return
	}
	if a, b := changes.ReplaceAllString(got.Raw, ""), changes.ReplaceAllString(none.Raw, ""); a != b || got.Status != none.Status {
		c.Blame("a stolen state tells:\n%s\n%s", got.Raw, none.Raw)
	}
}

// foreign compares what another's and nobody's task read like.
func (c *Crowd) foreign(ctx context.Context, r *rand.Rand, t ticket, method string, more map[string]any) {
	thief := t.c
	thief.Token = pick(r, deciders)
	if thief.Token == t.c.Token {
		return
	}
	got, err := thief.Send(ctx, method, t.id, more)
	none, err2 := thief.Send(ctx, method, "0123456789abcdef0123456789abcdef", more)
	if err != nil || err2 != nil || got.Status >= 500 || none.Status >= 500 {
		return
	}
	if a, b := changes.ReplaceAllString(got.Raw, ""), changes.ReplaceAllString(none.Raw, ""); a != b || got.Err == nil || got.Status != none.Status {
		c.Blame("a foreign task tells:\n%s\n%s", got.Raw, none.Raw)
	}
}

func (c *Crowd) watch(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.tasks)
	if !ok {
		return
	}
	if r.IntN(4) == 0 {
		c.foreign(ctx, r, t, "tasks/get", nil)
		return
	}
	c.get(ctx, t)
}

func (c *Crowd) get(ctx context.Context, t ticket) Reply {
	got := c.take(ctx, ticket{c: t.c, method: "tasks/get", name: t.id}, nil, "")
	if got.Raw == "" || got.Status >= 500 {
		return got
	}
	if got.text("status") == "" && !c.Denials {
		c.Blame("a task is lost: %s: %s", t.id, got.Raw)
	}
	var shown struct{ Result json.RawMessage }
	if json.Unmarshal([]byte(got.Raw), &shown) == nil {
		c.ended(shown.Result)
	}
	return got
}

// ask asks what has become of a call that was pending.
func (c *Crowd) ask(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.pending)
	if !ok {
		return
	}
	c.take(ctx, ticket{c: t.c, method: "tools/call", name: "call_status"}, map[string]any{"arguments": map[string]any{"callId": t.id}}, "status "+t.id)
}

// listen watches some tasks for a moment. What has ended stays as it is.
func (c *Crowd) listen(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.tasks)
	if !ok {
		return
	}
	ids := []string{t.id}
	for range r.IntN(4) {
		if o, ok := c.ticket(r, &c.tasks); ok {
			ids = append(ids, o.id)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(400))*time.Millisecond)
	defer cancel()
	_ = t.c.listen(ctx, ids, func(line []byte) { // it ends in some way or other
		var m struct {
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil || m.Method != "notifications/tasks" {
			return
		}
		if id, _, _ := terminal(m.Params); !slices.Contains(ids, id) {
			c.Blame("a listen to %v tells of %s", ids, m.Params)
		}
		c.ended(m.Params)
	})
}

func (c *Crowd) update(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.tasks)
	if !ok {
		return
	}
	keys, asked := []string{"approve"}, false
	for range r.IntN(4) {
		if got := c.get(ctx, t); got.text("status") == "input_required" {
			keys, asked = got.keys(), true
			break
		}
		t, _ = c.ticket(r, &c.tasks)
	}
	answers := c.answers(r, keys)
	more := map[string]any{"inputResponses": answers}
	if r.IntN(5) == 0 {
		c.foreign(ctx, r, t, "tasks/update", more)
		return
	}
	sent := time.Now()
	got := c.take(ctx, ticket{c: t.c, method: "tasks/update", name: t.id}, more, "")
	if got.Result != nil && got.Err == nil {
		c.tell("ack")
		if asked {
			c.answered(t.id, "update", t.c.Token, sent, keys, answers)
		}
	}
}

func (c *Crowd) cancelOne(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, &c.tasks)
	if !ok {
		return
	}
	if r.IntN(2) == 0 {
		c.foreign(ctx, r, t, "tasks/cancel", nil)
		return
	}
	sent := time.Now()
	got := c.take(ctx, ticket{c: t.c, method: "tasks/cancel", name: t.id}, nil, "")
	if got.Result != nil && got.Err == nil {
		c.tell("ack")
		c.answered(t.id, "cancel", t.c.Token, sent, []string{""}, map[string]any{"": nil})
	}
}

// decide answers something that waits for one of the deciders.
func (c *Crowd) decide(ctx context.Context, r *rand.Rand) {
	p := decider{c.place.Load().page, Person(pick(r, deciders))}
	waiting, err := p.waiting(ctx)
	if err != nil || len(waiting) == 0 {
		return
	}
	for range 5 {
		w := pick(r, waiting)
		by := p
		if r.IntN(6) == 0 {
			by.by = Person(pick(r, deciders))
		}
		if w.Requester.Tenant != p.by.Tenant {
			c.Blame("%v is shown a call of %v", p.by, w.Requester)
		}
		sent := time.Now()
		if by.decide(ctx, tallystick.Decision{CallID: w.CallID, Key: w.Key, Digest: w.Digest, Accept: r.IntN(6) > 0}) {
			c.tell("ack")
			c.answered(w.CallID, "decide", by.by.Subject, sent, []string{w.Key}, map[string]any{w.Key: nil})
		}
	}
}

// resolve has the operators look at what is held, as far as they are shown it,
// and at the ledger.
func (c *Crowd) resolve(ctx context.Context) error {
	for _, operator := range operators {
		p := decider{c.place.Load().page, Person(operator)}
		waiting, err := p.waiting(ctx)
		if err != nil {
			return err
		}
		for _, w := range waiting {
			if w.Effect == "" || !c.heldLong(w.CallID+w.Effect+w.Subject) {
				continue // it may still arrive
			}
			d := tallystick.Decision{CallID: w.CallID, Effect: w.Effect, Subject: w.Subject, Happened: c.Far.happened(w.Requester.Tenant, w.Effect, w.Subject)}
			if d.Happened {
				d.Result = json.RawMessage("0")
			}
			sent := time.Now()
			if p.decide(ctx, d) {
				c.tell("ack")
				c.answered(w.CallID, "resolve", p.by.Subject, sent, []string{w.Effect + " [" + w.Subject + "]"}, map[string]any{w.Effect + " [" + w.Subject + "]": nil})
			}
		}
	}
	return nil
}

func (c *Crowd) heldLong(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[what].IsZero() {
		c.held[what] = time.Now()
	}
	return time.Since(c.held[what]) > 300*time.Millisecond
}
