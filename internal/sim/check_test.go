package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// check holds what was written down against the promises. It knows what a call
// is, and not how the law decides.
func (w *world) check() {
	for i := range w.journal {
		w.checkCommit(&w.journal[i])
	}
	w.checkLedger()
	for i := range w.told {
		w.checkTold(&w.told[i])
	}
	w.checkReplays()
	w.checkOrder()
}

// checkCommit is about one change, and what was before it.
func (w *world) checkCommit(c *commit) {
	blame := func(promise int, format string, args ...any) {
		w.blame(promise, "%s (%s at %.3f)", fmt.Sprintf(format, args...), name(c.ID)+": "+events(c.Change), c.at.Sub(w.began).Seconds())
	}
	if len(c.Audit) == 0 {
		blame(10, "a change without an entry")
	}
	for _, e := range c.Audit {
		if e.Call != c.ID {
			blame(10, "an entry of another call: %+v", e)
		}
	}
	if c.ID == "" || c.After == nil && !c.Remove {
		return
	}
	old, now := c.before, c.After
	for _, e := range c.Audit {
		w.checkEntry(c, e, blame)
	}
	if c.Remove {
		if old == nil || old.State != record.Ended || old.HeldEffect() != nil || c.clock.Before(old.EndedAt.Add(old.Retention)) {
			blame(4, "purged before its time")
		}
		return
	}
	if now.Lease.Holder != "" && now.State != record.Running {
		blame(9, "a lease on a call that is %s", now.State)
	}
	if old == nil {
		old = &record.Call{}
	} else if old.Owner.Tag() != now.Owner.Tag() || old.Action != now.Action || !old.CreatedAt.Equal(now.CreatedAt) || !old.Deadline.Equal(now.Deadline) {
		blame(1, "it is another call now")
	}
	if old.State == record.Ended {
		if now.State != record.Ended || now.Outcome != old.Outcome || !bytes.Equal(now.Result, old.Result) || !reflect.DeepEqual(now.Error, old.Error) ||
			!now.EndedAt.Equal(old.EndedAt) || !sameJSON(settled(now.Questions), settled(old.Questions)) || !sameJSON(now.Rounds, old.Rounds) || now.Task != old.Task {
			blame(5, "an ended call has changed")
		}
	}
	if now.State == record.Ended && (now.HasOpen() || !now.Outcome.Terminal()) {
		blame(5, "ended %s, with open questions: %v", now.Outcome, now.HasOpen())
	}
	w.checkQuestions(old, now, c, blame)
	w.checkEffects(old, now, c, blame)
	for i, r := range old.Rounds {
		if i >= len(now.Rounds) || now.Rounds[i].N != r.N || now.Rounds[i].Answers != r.Answers || r.Closed && !sameJSON(now.Rounds[i], r) {
			blame(3, "round %d was taken with other answers", r.N)
		}
	}
}

func sameJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// settled are questions without what a word on a held effect changes of them.
func settled(qs []record.Question) []record.Question {
	qs = slices.Clone(qs)
	for i := range qs {
		qs[i].Spent = false
	}
	return qs
}

type blamer = func(promise int, format string, args ...any)

// checkEntry asks whether who did it may have, at that moment.
func (w *world) checkEntry(c *commit, e record.Entry, blame blamer) {
	old := c.before
	verb, who := tallystick.Verb(""), e.By.Subject
	switch {
	case e.By.Channel == record.ChannelRun && e.Event != "evidence" && old != nil:
		if c.Epoch == 0 || old.State != record.Running || old.Epoch != c.Epoch || !old.Lease.Live(c.clock) {
			blame(6, "a run of epoch %d changes a call that is %s in epoch %d until %v", c.Epoch, old.State, old.Epoch, old.Lease.Until)
		}
	case e.Event == "stopped" && old != nil && e.Note == string(record.WhyDied) && old.Lease.Live(c.clock) && old.Lease.Live(e.At):
		// The clock may jump back between the decision and its commit.
		blame(6, "a live run is taken for dead")
	case e.Event == "taken" && old != nil && old.State == record.Running && old.Lease.Live(c.clock):
		blame(6, "two runs have it")
	}
	switch e.Event {
	case "opened":
		return // it has no id before
	case "answered", "effect resolved":
		verb = tallystick.Reply
	case "cancel asked":
		verb = tallystick.Stop
	case "effect started":
		verb, who = tallystick.Act, ownerOf(c)
	case "taken":
		if verb = tallystick.Resume; e.By.Channel == record.ChannelSystem {
			who = ownerOf(c)
		}
	}
	if verb != "" && !w.mayLast(c, verb, who) {
		blame(7, "%s was not asked, or said no, for %s", verb, who)
	}
}

// mayLast is what Authorize said when it was last asked before a commit: for the
// same request, since another may be told otherwise while this one is at work.
func (w *world) mayLast(c *commit, verb tallystick.Verb, who string) bool {
	for _, a := range slices.Backward(w.asked) {
		if !a.at.After(c.at) && a.a.Verb == verb && a.a.By.Subject == who && a.a.CallID == c.ID && (a.who == c.who || verb == tallystick.Act) {
			return a.ok
		}
	}
	return false
}

func (w *world) checkQuestions(old, now *record.Call, c *commit, blame blamer) {
	for i, q := range old.Questions {
		if i >= len(now.Questions) {
			blame(2, "question %s is gone", q.WireKey)
			continue
		}
		n := now.Questions[i]
		if n.WireKey != q.WireKey || n.Digest != q.Digest || !n.Expires.Equal(q.Expires) || n.Sum() != q.Sum() {
			blame(2, "question %s is another now", q.WireKey)
		}
		if len(n.Answers) < len(q.Answers) || !sameJSON(n.Answers[:len(q.Answers)], append([]record.Answer{}, q.Answers...)) && len(q.Answers) > 0 {
			blame(4, "an answer to %s is lost", q.WireKey)
		}
		if q.State != record.Open && n.State != q.State && !(q.State != record.Lapsed && n.State == record.Void) {
			blame(2, "question %s goes from %s to %s", q.WireKey, q.State, n.State)
		}
		for _, a := range n.Answers[min(len(q.Answers), len(n.Answers)):] {
			// By the time at which it was decided: the write itself may take a while.
			if q.State != record.Open || !a.At.Before(q.Expires) || a.At.After(c.clock) && !w.weather.jumps {
				blame(2, "an answer to %s that is %s until %v", q.WireKey, q.State, q.Expires)
			}
			if !stalls[now.Action.Name].mayAnswer(now.Owner, a.By) {
				blame(2, "%+v may not answer %s", a.By, q.WireKey)
			}
		}
	}
	for _, q := range now.Questions[min(len(old.Questions), len(now.Questions)):] {
		if q.State != record.Open && now.State != record.Ended || len(q.Answers) > 0 {
			blame(2, "question %s is new and %s", q.WireKey, q.State)
		}
	}
}

// mayAnswer is who may answer what a stall asks, in the words of this test.
func (s stall) mayAnswer(owner record.Principal, by record.Actor) bool {
	if by.Tenant != owner.Tenant || by.Channel == record.ChannelRun || by.Channel == record.ChannelSystem {
		return false
	}
	if slices.Contains(s.who.Roles, "finance") {
		return by.Subject != owner.Subject && slices.Contains([]string{"fay", "flo", "fin", "zoe", "zac"}, by.Subject)
	}
	return by.Subject == owner.Subject
}

// approved reports whether a call has the yes that a charge with those facts
// needs.
func (s stall) approved(c *record.Call, facts int) bool {
	if c == nil {
		return false
	}
	for _, q := range c.Questions {
		people := map[string]bool{}
		for _, a := range q.Answers {
			if a.Action == record.Accept && s.mayAnswer(c.Owner, a.By) && strings.Contains(string(a.Value), "true") {
				people[a.By.Subject] = true
			}
		}
		if q.Key == "go" && q.State == record.Answered && string(q.Facts) == strconv.Itoa(facts) && len(people) >= max(1, s.who.Count) {
			return true
		}
	}
	return false
}

func (w *world) checkEffects(old, now *record.Call, c *commit, blame blamer) {
	for i, f := range now.Effects {
		was := record.Effect{}
		if i < len(old.Effects) {
			was = old.Effects[i]
		}
		if was.State == f.State && f.Attempts == was.Attempts {
			continue
		}
		step := string(was.State) + ">" + string(f.State)
		if !slices.Contains([]string{">started", ">done", "undone>done", "undone>started", "started>started", "started>done", "started>undone", "started>held", "held>done", "held>undone"}, step) {
			blame(3, "effect %s goes %s", f.Name, step)
		}
		if step == "started>started" && !f.Repeatable {
			blame(3, "effect %s is begun again", f.Name)
		}
		if strings.HasPrefix(step, "held>") && !slices.ContainsFunc(c.Audit, func(e record.Entry) bool {
			return e.Event == "effect resolved" && slices.Contains(e.By.Roles, "operator") && e.By.Tenant == now.Owner.Tenant
		}) {
			blame(3, "a hold is guessed: %s", step)
		}
		if strings.HasSuffix(step, ">done") && !strings.HasPrefix(step, "started") && !strings.HasPrefix(step, "held") && !f.Shared {
			blame(3, "effect %s is done and was never begun", f.Name)
		}
		if f.State != record.EffectStarted {
			continue
		}
		switch {
		case !now.CancelledAt.IsZero():
			blame(5, "effect %s begins after a cancel", f.Name)
		case !f.StartedAt.Before(now.Deadline) || f.StartedAt.After(c.clock) && !w.weather.jumps:
			blame(9, "effect %s begins past the deadline", f.Name)
		case now.HasOpen():
			blame(3, "effect %s begins while a question is open", f.Name)
		case c.Epoch == 0:
			blame(6, "effect %s begins outside of a run", f.Name)
		}
		if q := now.Question(f.Relied[len(f.Relied)-1]); !stalls[now.Action.Name].approved(now, atoi(string(q.Facts))) {
			blame(2, "effect %s begins unapproved", f.Name)
		}
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// at returns a call as it was stored at that moment, or nil.
func (w *world) at(id string, at time.Time) (c *record.Call) {
	for _, j := range w.journal {
		if j.at.After(at) {
			break
		}
		if j.ID == id && (j.After != nil || j.Remove) {
			c = j.After
		}
	}
	return c
}

// within returns the states that a call could be served in between two moments,
// oldest first; nil among them: it did not exist. What was written when its
// writer did not know of it yet may be served as it was before.
func (w *world) within(id string, from, to time.Time) []*record.Call {
	states := []*record.Call{nil}
	for _, j := range w.journal {
		switch {
		case j.ID != id || j.After == nil && !j.Remove:
		case j.at.After(to):
			return states
		case !j.heard.After(from):
			states = []*record.Call{j.After}
		default:
			states = append(states, j.After)
		}
	}
	return states
}

func (w *world) checkLedger() {
	seen := map[string]charge{}
	for _, ch := range w.ledger {
		if before, ok := seen[ch.what()]; ok {
			w.blame(3, "%s was charged twice: by %s and %s", ch.what(), name(before.call), name(ch.call))
		}
		seen[ch.what()] = ch
		call := w.at(ch.call, ch.at)
		if call == nil {
			w.blame(3, "%s was charged by no call", ch.what())
			continue
		}
		if f := call.Effect(ch.effect, ch.subject); f == nil || f.State == record.EffectUndone || f.Key != ch.key {
			w.blame(3, "%s was charged by %s without a start on record", ch.what(), name(ch.call))
		}
		if !stalls[call.Action.Name].approved(call, ch.facts) {
			w.blame(2, "nobody approved %s for %d", ch.what(), ch.facts)
		}
		// The first effect is of the very run that was told yes.
		if f := call.Effect(ch.effect, ch.subject); len(call.Effects) == 1 && f != nil && f.Attempts == 1 && ch.saw != ch.facts {
			w.blame(2, "%s was approved for %d and begun for %d", ch.what(), ch.facts, ch.saw)
		}
	}
}

// checkTold is about what somebody was told.
func (w *world) checkTold(o *told) {
	blame := func(promise int, format string, args ...any) {
		w.blame(promise, "%s (%s by %s of %s, at %.3f to %.3f: %s)", fmt.Sprintf(format, args...), o.method, o.token, name(o.ticket.call), o.began.Sub(w.began).Seconds(), o.ended.Sub(w.began).Seconds(), o.raw[:min(len(o.raw), 400)])
	}
	if o.listens > 0 {
		w.checkListen(o, blame)
		return
	}
	if o.lost || o.thief {
		return
	}
	if o.decision == nil && o.status != 503 && o.reply.Result == nil && o.reply.Error == nil {
		blame(11, "no answer")
	}
	if w.weather.calm() && (o.broken() && !w.mayFail(o) || o.status == 0 && o.decision == nil) {
		blame(11, "status %d on a fine day", o.status)
	}
	states := w.within(o.ticket.call, o.began, o.ended)
	last := states[len(states)-1]
	switch {
	case o.ticket.tool == "look":
	case o.decision != nil:
		w.checkDecision(o, last, blame)
	case o.method == "tasks/get" || o.method == "tasks/update" || o.method == "tasks/cancel":
		w.checkTask(o, states, blame)
	case o.ok():
		w.checkCall(o, last, blame)
	}
}

// checkListen is about what a listen told: only of what is the listener's, only
// while it may be watched, as it was then, and after the end nothing.
func (w *world) checkListen(o *told, blame blamer) {
	end, last := "", o.began
	for _, n := range o.notes {
		for _, id := range n.tasks {
			if id != o.ticket.call || o.thief {
				blame(8, "%s is acknowledged", id)
			}
		}
		if n.method != "notifications/tasks" {
			continue
		}
		states := w.within(o.ticket.call, o.began, n.at)
		switch {
		case o.thief || n.params.TaskID != o.ticket.call:
			blame(8, "a listen tells of %s", n.params.TaskID)
		case end != "":
			blame(5, "a listen tells of %s after %s", n.params.Status, end)
		case !slices.ContainsFunc(states, func(c *record.Call) bool { return c != nil && shows(c, &n.params) }):
			blame(5, "a listen tells of %s", n.params.Status)
		case !w.askedWithin(&told{began: last, ended: n.at, ticket: o.ticket, token: o.token}, tallystick.Watch, true):
			blame(7, "a listen tells without asking")
		}
		if slices.Contains([]string{"completed", "failed", "cancelled"}, n.params.Status) {
			end = n.params.Status
		}
		last = n.at
	}
	// Who listens in good weather hears of the end.
	if c := w.at(o.ticket.call, o.ended.Add(-10*time.Second)); w.weather.calm() && !o.thief && c != nil && c.State == record.Ended && end == "" && o.began.Add(10*time.Second).Before(o.ended) {
		blame(4, "a listen does not tell of the end")
	}
}

// mayFail names the calls that come to an error because of their handler.
func (w *world) mayFail(o *told) bool {
	return w.weather.restless && strings.Contains(o.raw, "unstable_question") || strings.Contains(o.raw, `"outcome":"nobody_to_ask"`)
}

func (w *world) checkDecision(o *told, now *record.Call, blame blamer) {
	if o.err != "" {
		return
	}
	if now == nil {
		blame(4, "it was decided, and is not there")
		return
	}
	d := o.decision
	for _, c := range w.journal {
		for _, e := range c.Audit {
			mine := e.Call == d.CallID && !c.at.Before(o.began) && !c.at.After(o.ended) && e.By.Subject == identity(o.token).Subject
			if mine && (d.Effect != "" && e.Event == "effect resolved" || d.Key != "" && e.Event == "answered" && e.Key == d.Key && e.Digest == d.Digest) {
				return
			}
		}
	}
	blame(4, "a decision was acknowledged and is not on record")
}

func (w *world) checkTask(o *told, states []*record.Call, blame blamer) {
	last := states[len(states)-1]
	if o.reply.Error != nil {
		misfit := o.method == "tasks/update" && o.reply.Error.Message != "unknown task"
		if !o.broken() && !slices.Contains(states, nil) && !misfit && !w.refusedWithin(o) {
			blame(4, "a task is lost")
		}
		return
	}
	if !o.ok() {
		return
	}
	switch o.method {
	case "tasks/cancel":
		if last != nil && last.State != record.Ended && last.CancelledAt.IsZero() {
			blame(4, "a cancel was acknowledged and is not on record")
		}
		return
	case "tasks/update":
		for key := range o.answers {
			if last == nil || !last.CancelledAt.IsZero() {
				continue
			}
			q := last.Question(key)
			if q != nil && q.State == record.Open && q.Who.Requester() && w.openThrough(states, key) && w.clockAt(o.began).Before(q.Expires) && w.clockAt(o.ended).Before(q.Expires) {
				blame(4, "an answer to %s was acknowledged and is lost", key)
			}
		}
		return
	}
	if !w.askedWithin(o, tallystick.Watch, true) {
		blame(7, "it was shown without asking")
	}
	res := o.reply.Result
	fits := slices.ContainsFunc(states, func(c *record.Call) bool { return c != nil && shows(c, res) })
	if !fits {
		var was []string
		for _, c := range states {
			was = append(was, "nothing")
			if c != nil {
				was[len(was)-1] = string(c.State) + " " + string(c.Status())
			}
		}
		blame(5, "it was %v then", was)
	}
	for key := range res.InputRequests {
		if !slices.ContainsFunc(states, func(c *record.Call) bool {
			return c != nil && c.Question(key) != nil && c.Question(key).State == record.Open && c.Question(key).Who.Requester()
		}) {
			blame(2, "%s is shown and not open", key)
		}
	}
}

// openThrough reports whether a question was open all the time.
func (w *world) openThrough(states []*record.Call, key string) bool {
	return !slices.ContainsFunc(states, func(c *record.Call) bool {
		return c == nil || c.State == record.Ended || c.Question(key) == nil || c.Question(key).State != record.Open
	})
}

// clockAt is the store's clock at a moment, as far as the last commit before it
// tells.
func (w *world) clockAt(at time.Time) time.Time {
	skew := time.Duration(0)
	for _, c := range w.journal {
		if c.at.After(at) {
			break
		}
		skew = c.clock.Sub(c.at)
	}
	return at.Add(skew)
}

// shows reports whether a task says what the call is.
func shows(c *record.Call, res *result) bool {
	switch c.Status() {
	case record.Completed:
		return res.Status == "completed" && sameMembers(res.Result, c.Result)
	case record.Cancelled:
		return res.Status == "cancelled"
	case record.Failed, record.Expired:
		return res.Status == "failed"
	case record.InputRequired:
		mine := slices.ContainsFunc(c.Open(), func(q record.Question) bool { return q.Who.Requester() })
		return mine && res.Status == "input_required" || !mine && res.Status == "working"
	}
	return res.Status == "working"
}

func sameMembers(a, b []byte) bool {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x["structuredContent"], y["structuredContent"]) && reflect.DeepEqual(x["content"], y["content"]) && reflect.DeepEqual(x["isError"], y["isError"])
}

// askedWithin reports whether Authorize was asked that while a request was served.
func (w *world) askedWithin(o *told, verb tallystick.Verb, ok bool) bool {
	return slices.ContainsFunc(w.asked, func(a asked) bool {
		return !a.at.Before(o.began) && !a.at.After(o.ended) && a.a.CallID == o.ticket.call && a.a.By.Subject == identity(o.token).Subject && a.ok == ok && (verb == "" || a.a.Verb == verb)
	})
}

func (w *world) refusedWithin(o *told) bool { return w.askedWithin(o, "", false) }

// checkCall is about the response to a call or a retry.
func (w *world) checkCall(o *told, last *record.Call, blame blamer) {
	res := o.reply.Result
	switch {
	case res.ResultType == "task":
		if now := w.at(res.TaskID, o.ended); now == nil || !now.Task {
			blame(4, "a task was told that is none")
		} else if now.Owner.Subject != identity(o.token).Subject {
			blame(1, "a task of %+v was told", now.Owner)
		}
	case res.ResultType == "input_required":
		id := callIDs.FindString(o.raw)
		now := w.at(id, o.ended)
		for key := range res.InputRequests {
			if now == nil || now.Question(key) == nil {
				blame(4, "%s is asked and not on record", key)
			}
		}
	case res.Structured != nil && !res.IsError:
		id := callIDs.FindString(string(res.Structured))
		now := w.at(id, o.ended)
		if now == nil || now.State != record.Ended || now.Outcome != record.Completed || !strings.Contains(string(now.Result), id) {
			blame(4, "a result was told that is not on record")
		}
	case slices.Contains([]string{"declined", "dismissed", "expired"}, o.outcome()) && last != nil:
		want := map[string]record.QuestionState{"declined": record.Declined, "dismissed": record.Dismissed, "expired": record.Lapsed}[o.outcome()]
		if last.Outcome != record.Expired && !slices.ContainsFunc(last.Questions, func(q record.Question) bool { return q.State == want }) {
			blame(9, "told %s", o.outcome())
		}
		if last.State != record.Ended {
			blame(4, "told %s of a call that goes on", o.outcome())
		}
	}
}

// checkReplays is about the same round with the same answers: it has one end.
func (w *world) checkReplays() {
	ends := map[string]string{}
	for _, o := range w.told {
		if o.lost || o.thief || o.ticket.state == "" || o.method != "tools/call" || !o.final() || o.ticket.tool == "look" {
			continue
		}
		answers, _ := json.Marshal(o.answers)
		round := o.ticket.state + string(answers)
		said := fmt.Sprint(string(o.reply.Result.Structured), o.reply.Result.Content, o.reply.Result.IsError)
		if before, ok := ends[round]; ok && before != said {
			w.blame(3, "one round of %s, two ends:\n%s\n%s", name(o.ticket.call), before, said)
		}
		ends[round] = said
	}
	for _, of := range slices.Sorted(maps.Keys(w.owners)) {
		if c := w.at(of, time.Now()); c != nil && c.Owner.Subject != identity(w.owners[of]).Subject {
			w.blame(1, "%s is another's now", of)
		}
	}
}

func ownerOf(c *commit) string {
	if c.before != nil {
		return c.before.Owner.Subject
	}
	return c.After.Owner.Subject
}
