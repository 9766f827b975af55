package record_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	. "github.com/tallystick/tallystick/record"
)

// TestAnyHistoryKeepsTheLaw lets anybody do anything to a few calls that share
// people and subjects, in any order, and lets the book check each step. At the
// end, each call must come to its end by the deadline by itself.
func TestAnyHistoryKeepsTheLaw(t *testing.T) {
	for i := range 4 { // each with its own seed, and each seed is printed if it fails
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				h := &history{book: newBook(t), t: t}
				for range rapid.IntRange(1, 120).Draw(t, "steps") {
					h.step()
				}
				h.live()
			})
		})
	}
}

var (
	actors  = []Actor{ann, bob, cid, eve, nobody, annElse, annOther, System}
	owners  = []Actor{ann, ann, bob, annElse, nobody, eve}
	keys    = []string{"k", "l"}
	effects = []EffectBegan{charge, refund, send, repeat, {Name: "charge", Subject: "order 1", Repeatable: true}, {Name: "refund", Subject: "order 2"}}
	whos    = []Who{{}, {NotRequester: true}, {Roles: []string{"finance"}, NotRequester: true, Count: 2}, {Subjects: []string{"ann", "bob"}, Count: 2}, {OutOfBand: true}, {Count: 2}}
)

// A history is a book and what happens in it.
type history struct {
	*book
	t *rapid.T
	n int // calls so far
}

func draw[T any](h *history, label string, from []T) T {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *history) chance(label string, percent int) bool {
	return rapid.IntRange(1, 100).Draw(h.t, label) <= percent
}

// step is one thing that happens. Runs are the most eventful.
func (h *history) step() {
	ids := slices.Sorted(maps.Keys(h.calls))
	if len(ids) == 0 || h.n < 8 && h.chance("open", 8) {
		h.open()
		return
	}
	id := draw(h, "call", ids)
	switch draw(h, "what", []string{"run", "run", "run", "run", "retry", "work", "answer", "answer", "resolve", "time", "die", "person", "person", "nonsense"}) {
	case "run":
		for range 4 { // more of the same, so that it gets somewhere
			h.run(id)
		}
	case "retry":
		n := h.calls[id].Round + draw(h, "round", []int{0, 0, 0, 0, -1, 1})
		answers := draw(h, "answers", []string{"", "", "", "A"})
		err := h.do(id, h.owner(id), NoEpoch, TimePassed{}, Taken{Lease: h.lease(), Retry: &Retry{N: n, Answers: answers}})
		if c := h.calls[id]; err == nil && c.Rounds[n].Answers != answers {
			h.Fatalf("round %d goes on with other answers: %s", n, h.json(c))
		}
	case "work":
		_ = h.do(id, System, NoEpoch, Taken{Lease: h.lease()})
	case "answer":
		h.answer(id)
	case "resolve":
		e := draw(h, "effect", effects)
		_ = h.do(id, bob, NoEpoch, EffectResolved{Name: e.Name, Subject: e.Subject, Done: h.chance("done", 50)})
	case "time":
		h.now = h.now.Add(draw(h, "clock", []time.Duration{time.Second, lease, lease, 15 * time.Minute, time.Hour, 2 * time.Hour, -time.Second, -10 * time.Minute}))
		_ = h.do(id, System, NoEpoch, TimePassed{})
	case "die":
		if c := h.calls[id]; c.State == Running && c.Lease.Live(h.now) && h.chance("lapse", 70) {
			h.now = c.Lease.Until
		}
		_ = h.do(id, System, NoEpoch, Stopped{Why: WhyDied})
	case "person":
		_ = h.do(id, draw(h, "by", actors), NoEpoch, draw(h, "event", []Event{CancelAsked{}, Refused{Reason: "x"}, TimePassed{}}))
	case "nonsense":
		_ = h.do(id, draw(h, "by", actors), h.epoch(id, 50), h.event(id), h.event(id))
	}
}

func (h *history) open() {
	h.n++
	o := opening(fmt.Sprintf("call %d", h.n), draw(h, "owner", owners))
	o.Call.Deadline = h.now.Add(draw(h, "deadline", []time.Duration{time.Hour, time.Hour, time.Minute, 0}))
	o.Call.Task, o.Call.MaxRuns = h.chance("task", 50), draw(h, "runs", []int{0, 0, 0, 1, 3})
	if !o.Call.Task || h.chance("lease", 20) {
		o.Lease = h.lease()
	}
	if h.chance("key", 30) {
		o.Key = KeyMark(o.Call.Owner, "refund", "key")
	}
	_ = h.do(o.Call.ID, Actor{Principal: o.Call.Owner, Channel: ChannelRound}, NoEpoch, o)
}

func (h *history) owner(id string) Actor {
	return Actor{Principal: h.calls[id].Owner, Channel: ChannelRound}
}

func (h *history) lease() Lease { return Lease{Holder: "node/1", Until: h.now.Add(lease)} }

// epoch is that of the current run, or with so many percent another one.
func (h *history) epoch(id string, wrong int) int64 {
	if h.chance("wrong epoch", wrong) {
		return draw(h, "epoch", []int64{NoEpoch, h.calls[id].Epoch - 1, h.calls[id].Epoch + 1})
	}
	return h.calls[id].Epoch
}

// run lets the run of a call do one thing. If it has lost its lease, what it
// says is evidence at most.
func (h *history) run(id string) {
	if h.calls[id] == nil {
		return // purged
	}
	if h.calls[id].State != Running && h.chance("idle", 80) {
		_ = h.do(id, System, NoEpoch, Taken{Lease: h.lease()})
		return
	}
	who := Actor{Principal: h.calls[id].Owner, Channel: ChannelRun}
	epoch := h.epoch(id, 5)
	var events []Event
	switch draw(h, "says", []string{"ask", "ask", "begin", "begin", "begin", "end", "end", "other"}) {
	case "ask":
		events = h.asking(id)
	case "begin":
		h.begin(id, who, epoch)
		return
	case "end":
		events = []Event{h.effectEnd(id)}
	default:
		e := draw(h, "effect", effects)
		events = []Event{draw(h, "event", []Event{
			EffectUnfit{Name: e.Name, Subject: e.Subject}, EffectUnfit{Name: e.Name, Subject: e.Subject}, Reported{Progress{Done: 1, Total: 2}}, Announced{}, Finished{Result: []byte("{}")}, Finished{Held: true}, Finished{ToolError: h.chance("failed", 50)}, Stopped{Why: WhyLeft}, Stopped{Why: WhyHandback}, Paused{}, Paused{Background: true}, Paused{Task: true},
		})}
	}
	if err := h.do(id, who, epoch, events...); err != nil && h.chance("observed", 50) {
		e := draw(h, "effect", effects)
		_ = h.do(id, who, epoch, Observed{Name: e.Name, Subject: e.Subject, Epoch: epoch})
	}
}

// asking is what a handler that asks some questions makes of the call.
func (h *history) asking(id string) []Event {
	c := h.calls[id]
	var events []Event
	asked := rapid.SliceOfDistinct(rapid.SampledFrom(keys), rapid.ID).Draw(h.t, "keys")
	for _, q := range c.Open() {
		if !slices.Contains(asked, q.Key) {
			events = append(events, Voided{WireKey: q.WireKey})
		}
	}
	for _, key := range asked {
		q := h.question(key)
		look := c.Look(key, q.Sum())
		if look.Found != nil {
			continue
		}
		if look.Stale != nil {
			events = append(events, Voided{WireKey: look.Stale.WireKey})
		}
		events = append(events, Asked{Question: q})
	}
	if h.chance("pause", 70) {
		events = append(events, Paused{Background: h.chance("background", 20)})
	}
	return events
}

func (h *history) question(key string) Question {
	q := question(key, draw(h, "facts", []string{"1", "1", "1", "2"}))
	q.Who = draw(h, "who", whos)
	return q
}

// begin starts an effect on what Look says is answered.
func (h *history) begin(id string, who Actor, epoch int64) {
	c := h.calls[id]
	e := draw(h, "effect", effects)
	e.Mark = h.mark(SubjectMark(c.Owner.Tenant, e.Name, e.Subject))
	if h.chance("a mark read too early", 10) {
		e.Mark = nil
	}
	for _, key := range keys {
		q := h.question(key)
		f := c.Look(key, q.Sum()).Found
		if f != nil && toldBySomebody(f.State) && f.Digest != q.Sum() && !f.Spent {
			h.Fatalf("an answer to other facts counts: %s", h.json(f))
		}
		if f != nil && toldBySomebody(f.State) || h.chance("reliance on what was not answered", 5) {
			e.Relied = append(e.Relied, Reliance{Key: key, Digest: q.Sum(), No: f != nil && f.State != Answered})
		}
	}
	if h.do(id, who, epoch, e) != nil {
		return
	}
	for _, r := range e.Relied {
		was := c.Look(r.Key, r.Digest).Found
		if was == nil || !toldBySomebody(was.State) || was.Digest != r.Digest && !was.Spent || !h.calls[id].Question(was.WireKey).Spent {
			h.Fatalf("an effect started on %s", h.json(was))
		}
	}
}

func (h *history) effectEnd(id string) Event {
	e := draw(h, "effect", effects)
	for _, f := range h.calls[id].Effects {
		if f.State == EffectStarted && h.chance("this", 70) {
			e.Name, e.Subject = f.Name, f.Subject
		}
	}
	return EffectEnded{Name: e.Name, Subject: e.Subject, State: draw(h, "end", []EffectState{EffectDone, EffectUndone, EffectUndone, EffectHeld, "odd"}), Result: []byte("1")}
}

func (h *history) answer(id string) {
	wire := draw(h, "wire key", []string{"k", "l", "k~2", "l~2", "none"})
	if open := h.calls[id].Open(); len(open) > 0 && h.chance("open one", 80) {
		wire = open[0].WireKey
	}
	who := by(draw(h, "by", actors), draw(h, "channel", []Channel{ChannelDecide, ChannelDecide, ChannelRound, ChannelTask, ChannelLive}))
	action := draw(h, "action", []AnswerAction{Accept, Accept, Accept, Accept, Decline, Dismiss, ""})
	events := []Event{Responded{WireKey: wire, Action: action, Value: []byte("{}")}}
	if c := h.calls[id]; c.State == Waiting && !c.Background && h.chance("in a retry", 60) {
		events = append(events, Taken{Lease: h.lease(), Retry: &Retry{N: c.Round, Answers: "A"}})
	}
	_ = h.do(id, who, NoEpoch, events...)
}

// event is any event at all.
func (h *history) event(id string) Event {
	e := draw(h, "effect", effects)
	return draw(h, "event", []Event{
		Taken{Lease: h.lease()}, Taken{}, Stopped{Why: WhyDied}, Stopped{}, Asked{Question: h.question("k")}, Asked{}, Voided{WireKey: "k"},
		Paused{}, Announced{}, Responded{WireKey: "k", Action: Accept}, e, h.effectEnd(id), EffectResolved{Name: e.Name, Subject: e.Subject}, EffectUnfit{Name: e.Name, Subject: e.Subject},
		Observed{Name: e.Name, Subject: e.Subject}, Reported{}, Finished{}, Abandoned{}, CancelAsked{}, TimePassed{}, Refused{Reason: "x"}, opening("x", ann),
	})
}

// live lets each call go on as an engine would, with runs that come to nothing:
// no call may be stuck, and none may be looked at for nothing.
func (h *history) live() {
	for _, id := range slices.Sorted(maps.Keys(h.calls)) {
		mode := draw(h, "handlers", []string{"die", "pause", "finish", "hand back", "may not run"})
		deadline := h.calls[id].Deadline
		if h.now.After(deadline) {
			deadline = h.now
		}
		for i := 0; h.calls[id].State != Ended; i++ {
			c := h.calls[id]
			if i > 100 || c.State != Running && h.now.After(deadline.Add(6*lease)) {
				h.Fatalf("it does not come to an end (%s): %s", mode, h.json(c))
			}
			if err := h.attend(c, mode); err != nil {
				h.Fatalf("the engine is refused (%s): %v: %s", mode, err, h.json(c))
			}
			if h.calls[id].Version == c.Version {
				h.Fatalf("looked at for nothing (%s): %s", mode, h.json(c))
			}
		}
	}
}

// attend does what is due next for a call that has not ended.
func (h *history) attend(c *Call, mode string) error {
	who := Actor{Principal: c.Owner, Channel: ChannelRun}
	switch {
	case c.State == Ready && mode == "may not run":
		return h.do(c.ID, System, NoEpoch, Abandoned{Error: Error{Message: "gone"}})
	case c.State == Ready:
		if c.Runs > 20 {
			h.now = c.Deadline // a store does not show it as overdue
		}
		return h.do(c.ID, System, NoEpoch, Taken{Lease: h.lease()})
	case c.State == Waiting && !c.Background && mode == "finish":
		last := c.Rounds[len(c.Rounds)-1]
		retry := Retry{N: c.Round, Answers: "B"}
		if !last.Closed {
			retry.Answers = last.Answers
		}
		return h.do(c.ID, Actor{Principal: c.Owner, Channel: ChannelRound}, NoEpoch, Taken{Lease: h.lease(), Retry: &retry})
	case c.State != Running:
		if due := c.Due(); h.now.Before(due) {
			h.now = due
		}
		return h.do(c.ID, System, NoEpoch, TimePassed{})
	case !c.Lease.Live(h.now) || mode == "die":
		if h.now.Before(c.Lease.Until) {
			h.now = c.Lease.Until
		}
		return h.do(c.ID, System, NoEpoch, Stopped{Why: WhyDied})
	case mode == "pause":
		q := question("once", "1")
		if look := c.Look("once", q.Sum()); look.Found == nil {
			return h.do(c.ID, who, c.Epoch, Asked{Question: q}, Paused{})
		}
		return h.do(c.ID, who, c.Epoch, Finished{Result: []byte("{}")})
	case mode == "hand back":
		return h.do(c.ID, who, c.Epoch, Stopped{Why: WhyHandback})
	}
	return h.do(c.ID, who, c.Epoch, Finished{Result: []byte("{}")})
}

func TestDecideReturnsRefusalsAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{book: newBook(t), t: t}
		h.open()
		for id := range h.calls {
			_, err := h.decide(id, draw(h, "by", actors), h.epoch(id, 50), h.event(id))
			var r *Refusal
			if err != nil && (!errors.As(err, &r) || r.Reason == "") {
				t.Fatalf("%v", err)
			}
		}
	})
}
