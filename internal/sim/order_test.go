package sim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tallystick/tallystick/record"
)

// checkOrder looks for an order in which all that was done to a call, by
// whomever, could have been done one after the other: tasks/get, tasks/update,
// tasks/cancel, rounds, decisions, and the starts of effects. What nobody heard
// the answer of may have been done at any time, or never.
func (w *world) checkOrder() {
	byCall := map[string][]porcupine.Operation{}
	at := func(t time.Time) int64 { return int64(t.Sub(w.began)) }
	const end = int64(1 << 62)
	for i := range w.told {
		o := &w.told[i]
		id := o.ticket.call
		if w.owners[id] == "" || o.thief || o.listens > 0 || o.ticket.tool == "look" || o.decision != nil && o.decision.Effect != "" {
			continue
		}
		if o.method == "tools/call" && o.ticket.state == "" {
			continue
		}
		op := porcupine.Operation{Input: o, Call: at(o.began), Return: at(o.ended)}
		if o.lost || o.broken() { // it may still be under way
			op.Return = end
		}
		byCall[id] = append(byCall[id], op)
	}
	for i := range w.journal {
		c := &w.journal[i]
		if w.owners[c.ID] == "" || c.After == nil {
			continue
		}
		for _, e := range c.Audit {
			if e.Event == "effect started" {
				heard := end
				if c.heard != never {
					heard = at(c.heard)
				}
				byCall[c.ID] = append(byCall[c.ID], porcupine.Operation{Input: start{e.Effect, c.After}, Call: at(c.sent), Return: heard})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byCall)) {
		ops := byCall[id]
		for i := range ops {
			ops[i].ClientId = i
		}
		switch porcupine.CheckOperationsTimeout(w.model(id), ops, time.Minute) {
		case porcupine.Illegal:
			w.blame(3, "no order explains what was done to %s", name(id))
		case porcupine.Unknown:
			w.blame(3, "whether an order explains what was done to %s could not be found out in a minute", name(id))
		}
	}
}

// start is the start of an effect.
type start struct {
	effect string
	call   *record.Call
}

// A story is what a call looks like to those who use it.
type story struct {
	keys      map[string]string // open, or settled
	yes       map[string]bool   // "key by" of those who said yes
	rounds    map[string]string // answers by which a state was used up
	started   map[string]int    // effects, and the epoch
	cancelled bool
	end       string // how it ended, once somebody has seen it
}

func (s story) clone() story {
	s.keys, s.yes, s.rounds, s.started = maps.Clone(s.keys), maps.Clone(s.yes), maps.Clone(s.rounds), maps.Clone(s.started)
	return s
}

func (s story) String() string {
	return fmt.Sprint(s.keys, s.yes, s.rounds, s.started, s.cancelled, s.end)
}

func (w *world) model(id string) porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any {
			return []any{story{keys: map[string]string{}, yes: map[string]bool{}, rounds: map[string]string{}, started: map[string]int{}}}
		},
		Step: func(s, input, _ any) []any {
			var next []any
			seen := map[string]bool{}
			for _, n := range step(s.(story), input) {
				if key := n.String(); !seen[key] {
					seen[key] = true
					next = append(next, n)
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(story).String() == b.(story).String() },
		Hash: func(s any) uint64 {
			h := fnv.New64a()
			h.Write([]byte(s.(story).String()))
			return h.Sum64()
		},
	}
	return nm.ToModel()
}

// step returns what a call can be after something was done to it; nothing if
// that cannot have been.
func step(s story, input any) []story {
	s = s.clone()
	if f, ok := input.(start); ok {
		return s.begin(f)
	}
	o := input.(*told)
	switch {
	case o.decision != nil:
		return s.decided(o)
	case o.method == "tasks/cancel":
		return s.cancel(o)
	case o.method == "tasks/get":
		return s.get(o)
	}
	return s.answered(o)
}

// begin: an effect starts only with the yes it needs, and not after the end or
// a cancel.
func (s story) begin(f start) []story {
	epoch := int(f.call.Epoch)
	if before, ok := s.started[f.effect]; s.end != "" || s.cancelled || ok && before >= epoch && f.call.Effect(effectOf(f.effect)).Attempts < 2 {
		return nil
	}
	needed, yes := max(1, stalls[f.call.Action.Name].who.Count), map[string]int{}
	for by := range s.yes {
		yes[strings.SplitN(by, " ", 2)[0]]++
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(yes)), func(n int) bool { return n >= needed }) {
		return nil
	}
	s.started[f.effect] = epoch
	return []story{s}
}

// effectOf takes an effect's name as the trail has it apart.
func effectOf(s string) (name, subject string) {
	name, subject, _ = strings.Cut(s, " [")
	return name, strings.TrimSuffix(subject, "]")
}

// decided: a decision counts once, and not after the end.
func (s story) decided(o *told) []story {
	d, by := o.decision, identity(o.token).Subject
	if o.err != "" && !o.lost && !strings.Contains(o.err, "sim:") {
		return []story{s}
	}
	who := d.Key + " " + by
	did := s.clone()
	did.keys[d.Key] = "settled"
	if d.Accept {
		did.yes[who] = true
		if len(o.ticket.keys) > 0 {
			did.keys[d.Key] = s.keys[d.Key] // it may need more people
		}
	}
	possible := s.end == "" && !s.cancelled && s.keys[d.Key] != "settled" && !s.yes[who]
	switch {
	case o.lost || o.err != "":
		if possible {
			return []story{s, did, did.settle(d.Key)}
		}
		return []story{s}
	case !possible:
		return nil
	}
	return []story{did, did.settle(d.Key)}
}

func (s story) settle(key string) story {
	s = s.clone()
	s.keys[key] = "settled"
	return s
}

// cancel: once acknowledged it holds, unless the call had ended.
func (s story) cancel(o *told) []story {
	did := s.clone()
	did.cancelled = did.cancelled || s.end == ""
	if o.lost || o.reply.Error != nil {
		return []story{s, did}
	}
	return []story{did}
}

// get: what is settled is never open again, and an end is one for ever.
func (s story) get(o *told) []story {
	if !o.ok() {
		return []story{s}
	}
	res := o.reply.Result
	for key := range res.InputRequests {
		if s.keys[key] == "settled" || s.end != "" || s.cancelled {
			return nil
		}
		s.keys[key] = "open"
	}
	for key, is := range s.keys {
		if _, shown := res.InputRequests[key]; is == "open" && !shown && strings.HasPrefix(res.Status, "input") {
			s.keys[key] = "settled" // by time, or it is asked in other words
		}
	}
	if res.Status == "completed" || res.Status == "failed" || res.Status == "cancelled" {
		said := res.Status + string(res.Result) + string(res.Error)
		if s.end != "" && s.end != said {
			return nil
		}
		s.end = said
	} else if s.end != "" {
		return nil
	}
	return []story{s}
}

// answered: an update that is acknowledged leaves no question open that was
// shown; a round is used up by the first answers that get anywhere with it.
func (s story) answered(o *told) []story {
	by := identity(o.token).Subject
	raw, _ := json.Marshal(o.answers)
	accepted := o.method == "tools/call" && o.ok() && (o.final() || o.reply.Result.ResultType == "task" ||
		o.reply.Result.ResultType == "input_required" && !slices.Equal(o.ticket.keys, slices.Sorted(maps.Keys(o.reply.Result.InputRequests))))
	if accepted {
		if before, ok := s.rounds[o.ticket.state]; ok && before != string(raw) {
			return nil
		}
		s.rounds[o.ticket.state] = string(raw)
	}
	acked := o.method == "tasks/update" && o.ok()
	all := []story{s}
	for key := range o.answers {
		var next []story
		for _, s := range all {
			if s.end != "" || s.cancelled || s.keys[key] == "settled" {
				next = append(next, s)
				continue
			}
			if !acked || s.keys[key] != "open" {
				next = append(next, s) // it did not count
			}
			did := s.settle(key)
			if a, ok := o.answers[key].(map[string]any); ok && a["action"] == "accept" {
				did.yes[key+" "+by] = true
			}
			next = append(next, did)
		}
		all = next
	}
	return all
}
