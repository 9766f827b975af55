package bazaar

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick"
)

// A Crowd calls, retries, steals, drops connections, listens and decides, all
// at random, and remembers what it was told.
type Crowd struct {
	Far     *FarSide
	Crashes bool // connections may fail and 5xx be given
	Jumps   bool // the store's clock is not ours
	Denials bool // rights come and go
	// Told, if not nil, is called as soon as something was told: "task", "ack",
	// "round" or "end".
	Told func(what string)

	orders int // how many there are
	place  atomic.Pointer[place]
	acts   [14]atomic.Int64

	mu      sync.Mutex
	tickets []ticket         // states
	tasks   []ticket         // task ids
	pending []ticket         // call ids of pending results
	known   map[string]known // calls by id
	keyed   map[string]final // by idempotency key, the task that was made
	ends    map[string]end   // by task id
	finals  map[string]final // by what was sent, how it ended for good
	acks    []ack
	held    map[string]time.Time // when it was first seen
	wrong   []string
}

// A place is where the process serves that serves now.
type place struct{ url, page string }

// A ticket is a state, or the id of a task or call, and whose it is.
type ticket struct {
	c            Caller
	method, name string
	args         map[string]any
	state        string
	keys         []string
	id           string
	key          string // of idempotency
}

// A known call is one that a client was told of.
type known struct {
	at   time.Time
	task bool
}

// An end is how a task was told to have ended.
type end struct {
	at     time.Time
	status string
	said   string
}

// A final is what a request was answered with for good, and the request: for
// that of a key, the id of its task.
type final struct {
	said string
	t    ticket
	more map[string]any
}

// An ack is something that was acknowledged.
type ack struct {
	call, key, by string
	how           string // update, decide, round, cancel, resolve
	sent, at      time.Time
}

var (
	requesters = []string{"ann/acme", "bob/acme", "fay/acme/finance", "zed/evil"}
	deciders   = []string{"fay/acme/finance", "flo/acme/finance", "fin/acme/finance", "eve/acme", "zoe/evil/finance", "ann/acme", "zed/evil"}
	operators  = []string{"opal/acme/operator", "oz/evil/operator"}
	changes    = regexp.MustCompile(`"(requestState|pollIntervalMs|id)":("[^"]*"|\d+),?`)
	wares      = append(slices.Sorted(maps.Keys(Tools)), "pay", "parcel", "look", "letter", "order")
)

// NewCrowd returns a crowd that buys from f's orders.
func NewCrowd(f *FarSide) *Crowd {
	return &Crowd{
		Far: f, orders: 40, known: map[string]known{}, keyed: map[string]final{}, ends: map[string]end{},
		finals: map[string]final{}, held: map[string]time.Time{},
	}
}

// Serve says where the server and its approval page are.
func (c *Crowd) Serve(url, page string) { c.place.Store(&place{url, page}) }

// Fresh has the crowd go on to the last forty of so many orders: what was
// charged is not charged again.
func (c *Crowd) Fresh(orders int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = orders
}

// Blame says that something is wrong.
func (c *Crowd) Blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blame(format, args...)
}

func (c *Crowd) blame(format string, args ...any) {
	if said := fmt.Sprintf(format, args...); len(c.wrong) < 20 && !slices.Contains(c.wrong, said) {
		c.wrong = append(c.wrong, said)
	}
}

// Wrong is what was found to be wrong so far, the first twenty.
func (c *Crowd) Wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

func (c *Crowd) tell(what string) {
	if c.Told != nil {
		c.Told(what)
	}
}

// Wander does one thing after another until ctx ends.
func (c *Crowd) Wander(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		act := r.IntN(len(c.acts))
		c.acts[act].Add(1)
		each, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if r.IntN(8) == 0 {
			cancel()
			each, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(12000))*time.Microsecond)
		}
		switch act {
		case 0, 1, 2:
			c.call(each, r, pick(r, wares))
		case 3, 4, 5:
			c.goOn(each, r)
		case 6:
			c.watch(each, r)
		case 7, 8:
			c.update(each, r)
		case 9:
			c.decide(each, r)
		case 10:
			c.resolve(each)
		case 11:
			c.ask(each, r)
		case 12:
			if r.IntN(4) == 0 {
				c.listen(each, r)
			}
		default:
			if r.IntN(4) == 0 {
				c.cancelOne(each, r)
			} else {
				c.Far.Change(c.order(r))
			}
		}
		cancel()
	}
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func (c *Crowd) order(r *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint("o", max(0, c.orders-40)+r.IntN(min(c.orders, 40)))
}

// someone is a caller of the process that serves now.
func (c *Crowd) someone(token, caps string) Caller { return Caller{c.place.Load().url, token, caps} }

// call makes a call of one of the wares.
func (c *Crowd) call(ctx context.Context, r *rand.Rand, name string) {
	order := c.order(r)
	t := ticket{c: c.someone(pick(r, requesters), pick(r, []string{CapsForm, CapsTasks, CapsTasks, CapsNone})), method: "tools/call", name: name}
	more := map[string]any{}
	switch name {
	case "letter":
		t.method = "prompts/get"
	case "order":
		t.method, t.name = "resources/read", "order://"+order
	default:
		t.args = map[string]any{"orderId": order}
		more["arguments"] = t.args
	}
	once := ""
	if r.IntN(3) == 0 {
		key := fmt.Sprint(order, r.IntN(3))
		more["_meta"] = map[string]any{"tallystick/idempotencyKey": key}
		if t.args != nil {
			t.key = t.c.Token + " " + name + " " + key
			once = "key " + t.key + t.c.Caps
		}
	}
	c.take(ctx, t, more, once)
	if t.key != "" && r.IntN(3) == 0 { // the same again
		c.take(ctx, t, more, once)
	}
}

// take sends something and remembers what it gives.
func (c *Crowd) take(ctx context.Context, t ticket, more map[string]any, once string) Reply {
	began := time.Now()
	r, err := t.c.Send(ctx, t.method, t.name, more)
	if took := time.Since(began); took > 8*time.Second && !c.Crashes {
		c.Blame("%s %s took %v", t.method, t.name, took)
	}
	if err != nil {
		if !c.Crashes && !strings.Contains(err.Error(), "context") {
			c.Blame("%s %s: %v", t.method, t.name, err)
		}
		if ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond) // nobody serves
		}
		return Reply{}
	}
	lost := r.Status == 500 && (c.Jumps && strings.Contains(r.Raw, "correlationId") || // a lease was
		strings.Contains(r.Raw, `"outcome":"nobody_to_ask"`) || strings.Contains(r.Raw, `"outcome":"unstable_question"`)) // facts change
	if r.Status >= 500 && !lost && !c.Crashes && !strings.Contains(r.Raw, "still being worked on") {
		c.Blame("%s %s: %d %s", t.method, t.name, r.Status, r.Raw)
	}
	c.remember(t, r, more, once)
	return r
}

func (c *Crowd) remember(t ticket, r Reply, more map[string]any, once string) {
	now, word := time.Now(), r.meta("outcome")
	if r.text("resultType") == "task" {
		c.tell("task")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.text("resultType") {
	case "input_required":
		if s := r.text("requestState"); s != "" {
			t.state, t.keys, t.id = s, r.keys(), r.call()
			c.know(t.id, false, now)
			c.tickets = append(c.tickets, t)
		}
	case "task":
		t.id = r.text("taskId")
		if before, ok := c.keyed[t.key]; ok && before.said != t.id {
			c.blame("one key, two tasks: %s: %s, %s", t.key, before.said, t.id)
		}
		if t.key != "" {
			c.keyed[t.key] = final{t.id, t, more}
		}
		c.tasks = append(c.tasks, t)
		c.know(t.id, true, now)
	}
	if id := r.meta("call"); id != "" && word == "pending" && t.name != "call_status" {
		t.id = id
		c.pending = append(c.pending, t)
		c.know(id, false, now)
	}
	carried := t.name == "look" || t.method != "tools/call"
	if carried || once == "" || r.text("resultType") != "complete" || slices.Contains([]string{"pending", "working", "held", "busy", "not_allowed"}, word) {
		return
	}
	if t.name == "call_status" && word == "" {
		return // of the tool and not of the call
	}
	said := changes.ReplaceAllString(r.Raw, "")
	before, ok := c.finals[once]
	if ok && before.said != said {
		c.blame("one request of %s, two ends:\n%s\n%s", t.name, before.said, said)
	}
	if !ok {
		c.finals[once] = final{said, t, more}
	}
}

// know remembers that a client was told of a call that is kept.
func (c *Crowd) know(id string, task bool, at time.Time) {
	if was, ok := c.known[id]; id != "" && (!ok || task && !was.task) {
		c.known[id] = known{at, task}
	}
}

// ticket takes one, more likely a young one, and has it shown to whoever
// serves now.
func (c *Crowd) ticket(r *rand.Rand, from *[]ticket) (ticket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := *from
	if len(of) == 0 {
		return ticket{}, false
	}
	if r.IntN(4) > 0 && len(of) > 20 {
		of = of[len(of)-20:]
	}
	t := pick(r, of)
	t.c.URL = c.place.Load().url
	return t, true
}

// yes is a yes to a question.
var yes = map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}

// answers to some of the keys: right, wrong, for others, none.
func (c *Crowd) answers(r *rand.Rand, keys []string) map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		switch n := r.IntN(20); {
		case n < 13:
			out[k] = yes
		case n == 13:
			out[k] = map[string]any{"action": "accept", "content": map[string]any{"confirm": false}}
		case n == 14:
			out[k] = map[string]any{"action": "decline"}
		case n == 15:
			out[k] = map[string]any{"action": "cancel"}
		case n == 16:
			out[k] = map[string]any{"action": "accept", "content": map[string]any{"confirm": "yes"}}
		case n == 17:
			out[k] = map[string]any{"role": "assistant", "content": map[string]any{"type": "text", "text": "yes"}, "model": "m"}
		case n == 18:
			out[k+"~2"], out["other"] = yes, yes
		}
	}
	return out
}

// answered remembers that answers to keys were acknowledged.
func (c *Crowd) answered(call, how, token string, sent time.Time, keys []string, answers map[string]any) {
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	by, _, _ := strings.Cut(token, "/")
	for _, k := range keys {
		if _, ok := answers[k]; ok {
			c.acks = append(c.acks, ack{call, k, by, how, sent, at})
		}
	}
}

// decider decides out of band.
type decider struct {
	page string
	by   tallystick.Identity
}

func (p decider) waiting(ctx context.Context) ([]tallystick.Waiting, error) {
	out, err := askPage(ctx, p.page, pageRequest{By: p.by})
	return out.Waiting, err
}

// decide reports whether it was acknowledged.
func (p decider) decide(ctx context.Context, d tallystick.Decision) bool {
	out, err := askPage(ctx, p.page, pageRequest{By: p.by, Decision: &d})
	return err == nil && out.Err == ""
}

// terminal is how a task that has ended is shown, by tasks/get and by a
// notification alike; empty if it has not.
func terminal(shown json.RawMessage) (id, status, said string) {
	var t struct {
		TaskID, Status, StatusMessage, CreatedAt string
		TTLMs                                    int64
		Result, Error                            json.RawMessage
	}
	if json.Unmarshal(shown, &t) != nil || !slices.Contains([]string{"completed", "failed", "cancelled"}, t.Status) {
		return t.TaskID, "", ""
	}
	return t.TaskID, t.Status, fmt.Sprint(t.Status, " ", t.StatusMessage, " ", t.CreatedAt, " ", t.TTLMs, " ", string(t.Result), string(t.Error))
}

// ended remembers how a task ended, if it has.
func (c *Crowd) ended(shown json.RawMessage) {
	id, status, said := terminal(shown)
	if status == "" {
		return
	}
	c.tell("end")
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.ends[id]
	if ok && before.said != said {
		c.blame("the end of %s has changed:\n%s\n%s", id, before.said, said)
	}
	if !ok {
		c.ends[id] = end{time.Now(), status, said}
	}
}
