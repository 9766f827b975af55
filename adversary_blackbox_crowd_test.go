package tallystick_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
)

// A crowd calls, retries, steals, drops connections and decides, all at
// random, and remembers what it was told.
type crowd struct {
	t       *testing.T
	far     *farSide
	desk    atomic.Pointer[desk] // of the process that serves now
	page    atomic.Pointer[string]
	crashes bool // connections may fail and 5xx be given
	jumps   bool // the store's clock is not ours
	denials bool // rights come and go
	opts    tallystick.Options
	orders  int // how many there are
	counts  [12]atomic.Int64

	mu      sync.Mutex
	tickets []ticket
	tasks   []ticket
	ends    map[string]string // by task id, how it ended
	finals  map[string]string // by state and answers, how a round ended
	acked   []ack
	known   map[string]string // task ids and who owns them
	wrong   []string
	held    map[string]time.Time // when it was first seen
}

// A ticket is a state, or a task id, and whose it is.
type ticket struct {
	c            caller
	method, name string
	args         map[string]any
	state        string
	keys         []string
	id           string
}

// An ack is an answer that was acknowledged.
type ack struct {
	call, key, by string
	decide        bool
}

var (
	requesters = []string{"ann/acme", "bob/acme", "fay/acme/finance", "zed/evil"}
	deciders   = []string{"fay/acme/finance", "flo/acme/finance", "fin/acme/finance", "eve/acme", "zoe/evil/finance"}
	changes    = regexp.MustCompile(`"(requestState|pollIntervalMs|id)":("[^"]*"|\d+),?`)
)

func newCrowd(t *testing.T, far *farSide) *crowd {
	return &crowd{t: t, far: far, orders: 40, ends: map[string]string{}, finals: map[string]string{}, known: map[string]string{}, held: map[string]time.Time{}}
}

func (c *crowd) blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

func (c *crowd) someone(token, caps string) caller { return caller{c.desk.Load(), token, caps} }

// wander does one thing after another until ctx ends.
func (c *crowd) wander(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		what := r.IntN(12)
		c.counts[what].Add(1)
		each, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if r.IntN(8) == 0 {
			each, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(12000))*time.Microsecond)
		}
		switch what {
		case 0, 1, 2:
			c.begin(each, r)
		case 3, 4, 5:
			c.goOn(each, r)
		case 6:
			c.watch(each, r)
		case 7, 8:
			c.update(each, r)
		case 9:
			c.decide(each, r)
		case 10:
			c.resolve(each, r)
		default:
			if r.IntN(4) == 0 {
				c.cancelOne(each, r)
			} else {
				c.far.change(fmt.Sprint("o", r.IntN(c.orders)))
			}
		}
		cancel()
	}
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func (c *crowd) begin(ctx context.Context, r *rand.Rand) {
	name := pick(r, []string{"refund", "pay", "pay", "gift", "wire", "batch", "ship", "export", "parcel", "parcel", "hasty", "look", "letter", "order"})
	order := fmt.Sprint("o", r.IntN(c.orders))
	t := ticket{c: c.someone(pick(r, requesters), pick(r, []string{capsForm, capsTasks, capsTasks, capsNone})), method: "tools/call", name: name}
	more := map[string]any{}
	switch name {
	case "letter":
		t.method = "prompts/get"
	case "order":
		t.method, t.name = "resources/read", "order://"+order
	default:
		t.args = map[string]any{"orderId": order}
	}
	if t.args != nil {
		more["arguments"] = t.args
	}
	if r.IntN(3) == 0 {
		more["_meta"] = map[string]any{"tallystick/idempotencyKey": fmt.Sprint(order, r.IntN(3))}
	}
	c.take(t, more, "", func() (reply, error) { return t.c.try(ctx, t.method, t.name, more) })
}

// take sends something and remembers what it gives.
func (c *crowd) take(t ticket, more map[string]any, once string, send func() (reply, error)) reply {
	began := time.Now()
	r, err := send()
	if took := time.Since(began); took > 8*time.Second && !c.crashes {
		c.blame("%s %s took %v", t.method, t.name, took)
	}
	if err != nil {
		if !c.crashes && !strings.Contains(err.Error(), "context") {
			c.blame("%s %s: %v", t.method, t.name, err)
		}
		return r
	}
	lost := r.status == 500 && (c.jumps && strings.Contains(r.raw, "correlationId") || // a lease was
		strings.Contains(r.raw, `"outcome":"nobody_to_ask"`) || strings.Contains(r.raw, `"outcome":"unstable_question"`)) // facts change
	if r.status >= 500 && !lost && !c.crashes && !strings.Contains(r.raw, "still being worked on") {
		c.blame("%s %s: %d %s", t.method, t.name, r.status, r.raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.typ() {
	case "input_required":
		if s := r.state(); s != "" {
			t.state, t.keys = s, r.keys()
			c.tickets = append(c.tickets, t)
		}
	case "task":
		t.id, _ = r.result["taskId"].(string)
		c.tasks = append(c.tasks, t)
		c.known[t.id] = t.c.token
	}
	if carried := t.name == "look" || t.method != "tools/call"; !carried && once != "" && r.typ() == "complete" && r.outcome() != "pending" && r.outcome() != "working" && r.outcome() != "held" && r.outcome() != "busy" && r.outcome() != "not_allowed" {
		said := changes.ReplaceAllString(r.raw, "")
		if before, ok := c.finals[once]; ok && before != said {
			c.wrong = append(c.wrong, fmt.Sprintf("one round, two ends:\n%s\n%s", before, said))
		}
		c.finals[once] = said
	}
	return r
}

func (c *crowd) ticket(r *rand.Rand, from func() []ticket) (ticket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := from()
	if len(of) == 0 {
		return ticket{}, false
	}
	if r.IntN(2) == 0 && len(of) > 20 {
		of = of[len(of)-20:] // the young ones are still of use
	}
	t := pick(r, of)
	t.c.d = c.desk.Load()
	return t, true
}

// answers to some of the keys: right, wrong, for others, none.
func (c *crowd) answers(r *rand.Rand, keys []string) map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		switch n := r.IntN(20); {
		case n < 13:
			out[k] = yes
		case n == 13:
			out[k] = accept(map[string]any{"confirm": false})
		case n == 14:
			out[k] = map[string]any{"action": "decline"}
		case n == 15:
			out[k] = map[string]any{"action": "cancel"}
		case n == 16:
			out[k] = accept(map[string]any{"confirm": "yes"})
		case n == 17:
			out[k] = map[string]any{"role": "assistant", "content": map[string]any{"type": "text", "text": "yes"}, "model": "m"}
		case n == 18:
			out[k+"~2"], out["other"] = yes, yes
		}
	}
	return out
}

func (c *crowd) goOn(ctx context.Context, r *rand.Rand) {
	t, ok := c.ticket(r, func() []ticket { return c.tickets })
	if !ok {
		return
	}
	answers := c.answers(r, t.keys)
	more := map[string]any{"requestState": t.state, "inputResponses": answers}
	if t.args != nil {
		more["arguments"] = t.args
	}
	if r.IntN(6) > 0 {
		raw, _ := json.Marshal(answers)
		once := t.state + string(raw) + t.c.caps
		for range 1 + r.IntN(2) {
			c.take(t, more, once, func() (reply, error) { return t.c.try(ctx, t.method, t.name, more) })
		}
		return
	}
	// Somebody else has stolen it, or the owner bends it.
	thief, bent := t, false
	switch r.IntN(3) {
	case 0:
		thief.c.token = pick(r, requesters)
	case 1:
		thief.c.token = pick(r, deciders)
	default:
		if t.args == nil {
			return
		}
		more["arguments"] = map[string]any{"orderId": "other"}
		bent = true
	}
	if thief.c.token == t.c.token && !bent {
		return
	}
	got, err := thief.c.try(ctx, t.method, t.name, more)
	more["requestState"] = "v1.nothing"
	none, err2 := thief.c.try(ctx, t.method, t.name, more)
	if err != nil || err2 != nil || got.status >= 500 || none.status >= 500 {
		return
	}
	if a, b := changes.ReplaceAllString(got.raw, ""), changes.ReplaceAllString(none.raw, ""); a != b || got.status != none.status {
		c.blame("a stolen state tells:\n%s\n%s", got.raw, none.raw)
	}
}

func (c *crowd) task(r *rand.Rand) (ticket, bool) {
	t, ok := c.ticket(r, func() []ticket { return c.tasks })
	return t, ok
}

// foreign compares what another's and nobody's task read like.
func (c *crowd) foreign(ctx context.Context, r *rand.Rand, t ticket, method string, more map[string]any) {
	thief := t.c
	thief.token = pick(r, deciders)
	if thief.token == t.c.token {
		return
	}
	got, err := thief.try(ctx, method, t.id, more)
	none, err2 := thief.try(ctx, method, "0123456789abcdef0123456789abcdef", more)
	if err != nil || err2 != nil || got.status >= 500 || none.status >= 500 {
		return
	}
	if a, b := changes.ReplaceAllString(got.raw, ""), changes.ReplaceAllString(none.raw, ""); a != b || got.err == nil || got.status != none.status {
		c.blame("a foreign task tells:\n%s\n%s", got.raw, none.raw)
	}
}

func (c *crowd) watch(ctx context.Context, r *rand.Rand) {
	t, ok := c.task(r)
	if !ok {
		return
	}
	if r.IntN(4) == 0 {
		c.foreign(ctx, r, t, "tasks/get", nil)
		return
	}
	c.get(ctx, t)
}

func (c *crowd) get(ctx context.Context, t ticket) reply {
	got := c.take(ticket{c: t.c, method: "tasks/get", name: t.id}, nil, "", func() (reply, error) { return t.c.try(ctx, "tasks/get", t.id, nil) })
	if got.raw == "" || got.status >= 500 {
		return got
	}
	s, _ := got.result["status"].(string)
	if s == "" && !c.denials {
		c.blame("a task is lost: %s", got.raw)
	}
	if s == "completed" || s == "failed" || s == "cancelled" {
		said := changes.ReplaceAllString(got.raw, "")
		c.mu.Lock()
		if before, ok := c.ends[t.id]; ok && before != said {
			c.wrong = append(c.wrong, fmt.Sprintf("an end has changed:\n%s\n%s", before, said))
		}
		c.ends[t.id] = said
		c.mu.Unlock()
	}
	return got
}

func (c *crowd) update(ctx context.Context, r *rand.Rand) {
	t, ok := c.task(r)
	if !ok {
		return
	}
	keys, asked := []string{"approve"}, false
	if r.IntN(2) == 0 {
		if got := c.get(ctx, t); got.result["status"] == "input_required" {
			keys, asked = got.keys(), true
		}
	}
	answers := c.answers(r, keys)
	more := map[string]any{"inputResponses": answers}
	if r.IntN(5) == 0 {
		c.foreign(ctx, r, t, "tasks/update", more)
		return
	}
	got := c.take(ticket{c: t.c, method: "tasks/update", name: t.id}, nil, "", func() (reply, error) { return t.c.try(ctx, "tasks/update", t.id, more) })
	if asked && got.result != nil && got.err == nil {
		for _, k := range keys {
			if _, ok := answers[k]; ok {
				c.mu.Lock()
				c.acked = append(c.acked, ack{call: t.id, key: k, by: strings.Split(t.c.token, "/")[0]})
				c.mu.Unlock()
			}
		}
	}
}

func (c *crowd) cancelOne(ctx context.Context, r *rand.Rand) {
	t, ok := c.task(r)
	if !ok {
		return
	}
	if r.IntN(2) == 0 {
		c.foreign(ctx, r, t, "tasks/cancel", nil)
		return
	}
	c.take(ticket{c: t.c, method: "tasks/cancel", name: t.id}, nil, "", func() (reply, error) { return t.c.try(ctx, "tasks/cancel", t.id, nil) })
}

// decide answers something that waits for one of the deciders.
func (c *crowd) decide(ctx context.Context, r *rand.Rand) {
	page := *c.page.Load()
	p := decider{page, personOf(pick(r, deciders))}
	out, err := p.ask(ctx, nil)
	if err != nil || len(out.Waiting) == 0 {
		return
	}
	for range 5 {
		w := pick(r, out.Waiting)
		d := &tallystick.Decision{CallID: w.CallID, Key: w.Key, Digest: w.Digest, Accept: r.IntN(6) > 0}
		by := p
		if r.IntN(6) == 0 {
			by.by = personOf(pick(r, deciders))
		}
		if w.Requester.Tenant != p.by.Tenant {
			c.blame("%v is shown a call of %v", p.by, w.Requester)
		}
		done, err := by.ask(ctx, d)
		if err == nil && done.Err == "" {
			c.mu.Lock()
			c.acked = append(c.acked, ack{w.CallID, w.Key, by.by.Subject, true})
			c.mu.Unlock()
		}
	}
}

// resolve has an operator look at what is held, and at the ledger.
func (c *crowd) resolve(ctx context.Context, _ *rand.Rand) {
	p := decider{*c.page.Load(), personOf("opal/acme/operator")}
	out, err := p.ask(ctx, nil)
	if err != nil {
		return
	}
	for _, w := range out.Waiting {
		if w.Effect == "" || !c.heldLong(w.CallID+w.Effect) {
			continue // it may still arrive
		}
		d := &tallystick.Decision{CallID: w.CallID, Effect: w.Effect, Subject: w.Subject, Happened: c.far.happened(w.Requester.Tenant, w.Effect, w.Subject), Result: json.RawMessage("0")}
		if !d.Happened {
			d.Result = nil
		}
		_, _ = p.ask(ctx, d)
	}
}

func (c *crowd) heldLong(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[what].IsZero() {
		c.held[what] = time.Now()
	}
	return time.Since(c.held[what]) > 300*time.Millisecond
}
