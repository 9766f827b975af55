package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// sabotage changes what was written down of a history, as a server that breaks
// a promise would have; it reports whether there was anything to change.
var sabotage = map[string]func(w *world) bool{
	"a change without its entry": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.After != nil && c.before != nil }, func(c *commit) { c.Audit = nil })
	},
	"an end that changes": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.ends() }, func(c *commit) {
			later := *c
			after := *c.After
			after.Outcome, after.Version, later.before = record.Failed, after.Version+1, c.After
			later.After, later.at = &after, c.at.Add(time.Second)
			w.journal = append(w.journal, later)
		})
	},
	"a run without its epoch": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.has("effect started") && c.before != nil }, func(c *commit) { c.Epoch = 0 })
	},
	"a run past its lease": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.has("effect ended") }, func(c *commit) {
			before := *c.before
			before.Lease.Until = c.clock
			c.before = &before
		})
	},
	"an answer that is lost": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.ends() && slices.ContainsFunc(c.After.Questions, answeredQuestion) }, func(c *commit) {
			after := *c.After
			after.Questions = slices.Clone(after.Questions)
			for i := range after.Questions {
				after.Questions[i].Answers = nil
			}
			c.After = &after
		})
	},
	"an answer by another": func(w *world) bool {
		return w.first(func(c *commit) bool {
			return c.has("answered") && c.After.Question("go") != nil && len(c.After.Questions[0].Answers) > 0
		}, func(c *commit) {
			c.After.Questions[0].Answers[0].By.Subject = "eve"
		})
	},
	"another question under the same key": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.ends() && len(c.After.Questions) > 0 }, func(c *commit) {
			after := *c.After
			after.Questions = slices.Clone(after.Questions)
			after.Questions[0].Message += "!"
			c.After = &after
		})
	},
	"a right that was withdrawn": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.has("effect started") }, func(c *commit) {
			for i := range w.asked {
				if w.asked[i].a.CallID == c.ID && w.asked[i].a.Verb == tallystick.Act {
					w.asked[i].ok = false
				}
			}
		})
	},
	"a charge made twice": func(w *world) bool {
		if len(w.ledger) > 0 {
			w.ledger = append(w.ledger, w.ledger[0])
		}
		return len(w.ledger) > 0
	},
	"a charge for other facts": func(w *world) bool {
		if len(w.ledger) > 0 {
			w.ledger[0].facts += 7
		}
		return len(w.ledger) > 0
	},
	"a charge before its start": func(w *world) bool {
		if len(w.ledger) > 0 {
			w.ledger[0].at = w.began
		}
		return len(w.ledger) > 0
	},
	"an acknowledged task that is lost": func(w *world) bool {
		for _, o := range w.told {
			if o.ok() && o.reply.Result.ResultType == "task" {
				w.journal = slices.DeleteFunc(w.journal, func(c commit) bool { return c.ID == o.reply.Result.TaskID })
				return true
			}
		}
		return false
	},
	"an acknowledged decision that is lost": func(w *world) bool {
		for _, o := range w.told {
			if o.decision != nil && o.err == "" && !o.lost {
				for i := range w.journal {
					w.journal[i].Audit = slices.DeleteFunc(slices.Clone(w.journal[i].Audit), func(e record.Entry) bool { return e.Event == "answered" || e.Event == "effect resolved" })
				}
				return true
			}
		}
		return false
	},
	"a result that is another the second time": func(w *world) bool {
		for _, o := range w.told {
			if o.ok() && o.ticket.state != "" && o.final() && !o.thief && o.ticket.tool != "look" {
				o.reply.Result = &result{ResultType: "complete", IsError: !o.reply.Result.IsError}
				w.told = append(w.told, o)
				return true
			}
		}
		return false
	},
	"a task shown as it never was": func(w *world) bool {
		for _, o := range w.told {
			if o.ok() && o.method == "tasks/get" && !o.thief && o.reply.Result.Status == "completed" {
				o.reply.Result.Status = "cancelled"
				return true
			}
		}
		return false
	},
	"a note after the end": func(w *world) bool {
		for i, o := range w.told {
			if n := len(o.notes); n > 0 && o.notes[n-1].params.Status == "completed" {
				w.told[i].notes = append(o.notes, o.notes[n-1])
				return true
			}
		}
		return false
	},
	"a lease while it waits": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.After != nil && c.After.State == record.Waiting }, func(c *commit) { c.After.Lease.Holder = "a" })
	},
	"a purge before its time": func(w *world) bool {
		return w.first(func(c *commit) bool { return c.Remove }, func(c *commit) { c.clock = c.clock.Add(-retention) })
	},
}

func (c *commit) has(event string) bool {
	return slices.ContainsFunc(c.Audit, func(e record.Entry) bool { return e.Event == event })
}

func (c *commit) ends() bool {
	return c.After != nil && c.After.State == record.Ended && c.before != nil && c.before.State != record.Ended
}

func answeredQuestion(q record.Question) bool { return len(q.Answers) > 0 }

func (w *world) first(fits func(*commit) bool, change func(*commit)) bool {
	for i := range w.journal {
		if c := &w.journal[i]; fits(c) {
			change(c)
			return true
		}
	}
	return false
}

// TestTheCheckSeesWhatIsWrong breaks each promise in a history that kept it.
func TestTheCheckSeesWhatIsWrong(t *testing.T) {
	for what, change := range sabotage {
		t.Run(what, func(t *testing.T) {
			for seed := uint64(1); seed < 60; seed++ {
				var w *world
				t.Run(fmt.Sprint(seed), func(t *testing.T) { w = play(t, seed) })
				if len(w.wrong) > 0 {
					t.Fatalf("seed %d: %v", seed, w.wrong)
				}
				if !change(w) {
					continue
				}
				if w.check(); len(w.wrong) == 0 {
					t.Errorf("seed %d: nothing is seen", seed)
				}
				return
			}
			t.Error("no history has anything of the kind")
		})
	}
}

// TestNoOrderExplainsTheImpossible is about the search for an order alone.
func TestNoOrderExplainsTheImpossible(t *testing.T) {
	const ann = "ann/acme"
	yes, no := map[string]any{"go": map[string]any{"action": "accept"}}, map[string]any{"go": map[string]any{"action": "decline"}}
	get := func(status string, keys ...string) told {
		res := &result{ResultType: "complete", Status: status}
		for _, k := range keys {
			if res.InputRequests == nil {
				res.InputRequests = map[string]json.RawMessage{}
			}
			res.InputRequests[k] = nil
		}
		return told{method: "tasks/get", token: ann, reply: reply{Result: res}}
	}
	ack := reply{Result: &result{ResultType: "complete"}}
	update := func(answers map[string]any) told {
		return told{method: "tasks/update", token: ann, answers: answers, reply: ack}
	}
	unheard := func(o told) told { o.lost, o.reply = true, reply{}; return o }
	round := func(answers map[string]any) told {
		return told{method: "tools/call", token: ann, ticket: ticket{state: "s", tool: "pay"}, answers: answers, reply: ack}
	}
	decide := func(by string) told {
		return told{method: "decide", token: by, ticket: ticket{keys: []string{"go"}}, decision: &tallystick.Decision{Key: "go", Accept: true}}
	}
	cancel := told{method: "tasks/cancel", token: ann, reply: ack}
	begun := func(tool string) told { return told{method: "start " + tool} }
	for what, c := range map[string]struct {
		did      []told
		possible bool
	}{
		"an update that is acknowledged and lost": {[]told{get("input_required", "go"), update(yes), get("input_required", "go")}, false},
		"an update that counts":                   {[]told{get("input_required", "go"), update(yes), begun("batch"), get("working"), get("completed")}, true},
		"an update before the question":           {[]told{get("working"), update(yes), get("input_required", "go"), update(yes), get("working")}, true},
		"one that nobody heard of":                {[]told{get("input_required", "go"), unheard(update(yes)), get("working"), begun("batch")}, true},
		"one that nobody heard of, and never was": {[]told{get("input_required", "go"), unheard(update(yes)), get("input_required", "go")}, true},
		"a start without a yes":                   {[]told{get("input_required", "go"), update(no), begun("batch")}, false},
		"a start after a cancel":                  {[]told{get("input_required", "go"), update(yes), cancel, begun("batch")}, false},
		"a cancel after the start":                {[]told{get("input_required", "go"), update(yes), begun("batch"), cancel, get("completed")}, true},
		"two ends":                                {[]told{get("completed"), get("cancelled")}, false},
		"life after the end":                      {[]told{get("completed"), get("working")}, false},
		"a decision after the end":                {[]told{get("failed"), decide("fay/acme/finance")}, false},
		"one yes where two are needed":            {[]told{decide("fay/acme/finance"), begun("wire")}, false},
		"two yeses":                               {[]told{decide("fay/acme/finance"), decide("flo/acme/finance"), begun("wire")}, true},
		"one person twice":                        {[]told{decide("fay/acme/finance"), decide("fay/acme/finance")}, false},
		"a round with two answers":                {[]told{round(yes), round(no)}, false},
		"a round twice":                           {[]told{round(yes), round(yes)}, true},
	} {
		w := &world{t: t, began: time.Unix(0, 0), owners: map[string]string{"call": ann}}
		at := w.began
		for _, o := range c.did {
			at = at.Add(time.Second)
			o.began, o.ended, o.ticket.call = at, at.Add(time.Millisecond), "call"
			if tool, ok := strings.CutPrefix(o.method, "start "); ok {
				call := &record.Call{ID: "call", Epoch: 1, Action: record.Action{Name: tool}, Effects: []record.Effect{{Name: "charge", Attempts: 1}}}
				w.journal = append(w.journal, commit{at: at, sent: at, heard: o.ended, Change: record.Change{ID: "call", After: call, Audit: []record.Entry{{Event: "effect started", Effect: "charge"}}}})
				continue
			}
			w.told = append(w.told, o)
		}
		if w.checkOrder(); (len(w.wrong) == 0) != c.possible {
			t.Errorf("%s: %v", what, w.wrong)
		}
	}
}
