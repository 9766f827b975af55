package bazaar

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// unaccounted holds a call against its audit trail: each change of it has its
// entries, in order, and each entry its change. What it returns is wrong.
func unaccounted(call *record.Call, trail []store.AuditRow) (wrong []string) {
	t := &account{
		call: call, count: map[string]int{}, effects: map[string]*record.Effect{},
		last: map[string]record.EffectState{}, stands: map[string]bool{},
	}
	for i := range call.Effects {
		f := &call.Effects[i]
		t.effects[effect(f.Name, f.Subject)] = f
	}
	for _, row := range trail {
		t.take(row)
	}
	t.compare()
	return t.wrong
}

// An account is a trail as far as it is read.
type account struct {
	call    *record.Call
	before  store.AuditRow // the last entry of a change
	changes int
	epoch   int64
	died    int
	running bool
	count   map[string]int                // entries by event, and by event and what it concerns
	effects map[string]*record.Effect     // by their names in the trail
	last    map[string]record.EffectState // what the trail last says of each
	stands  map[string]bool               // a person said that it happened: it is not done again
	wrong   []string
}

func (t *account) blame(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

func (t *account) take(e store.AuditRow) {
	if e.Tenant != t.call.Owner.Tenant {
		t.blame("entry %d is of tenant %s", e.Seq, e.Tenant)
	}
	if e.Event == "refused" {
		return // no change
	}
	if e.Seq != t.before.Seq+1 || !e.At.Equal(t.before.At) || !reflect.DeepEqual(e.By, t.before.By) {
		t.changes++
	}
	if t.before.Seq == 0 && e.Event != "opened" {
		t.blame("its trail begins with %s", e.Event)
	}
	t.before = e
	t.count[e.Event]++
	switch e.Event {
	case "opened":
		t.epoch, t.running = e.Epoch, e.Epoch > 0
	case "taken":
		if t.running {
			t.blame("it was taken from a run of which no end is on record, by entry %d", e.Seq)
		}
		t.running = true
		if t.epoch++; e.Epoch != t.epoch {
			t.blame("it was taken at epoch %d, and not %d", e.Epoch, t.epoch)
		}
	case "round closed":
		t.running = false
	case "stopped":
		t.running = false
		if e.Note == string(record.WhyDied) {
			t.died++
		}
	case "asked", "voided", "question expired":
		t.count[e.Event+" "+e.Key]++
		if q := t.call.Question(e.Key); q == nil || q.Digest != e.Digest {
			t.blame("%s of %s has no question", e.Event, e.Key)
		}
	case "answered":
		t.answered(e)
	case "effect started", "effect done before", "effect ended", "effect held", "effect resolved":
		t.effect(e)
	case "ended":
		t.running = false
		if e.Outcome != t.call.Outcome || !e.At.Equal(t.call.EndedAt) {
			t.blame("it is %s since %v, and ended as %s at %v", t.call.Outcome, t.call.EndedAt, e.Outcome, e.At)
		}
	case "cancel asked":
		if !e.At.Equal(t.call.CancelledAt) {
			t.blame("a cancel was asked at %v, and not %v", e.At, t.call.CancelledAt)
		}
	}
}

func (t *account) answered(e store.AuditRow) {
	q := t.call.Question(e.Key)
	if q == nil {
		t.blame("an answer to %s has no question", e.Key)
		return
	}
	for _, a := range q.Answers {
		if a.At.Equal(e.At) && a.By.Principal == e.By.Principal && string(a.Action) == e.Note && q.Digest == e.Digest {
			return
		}
	}
	t.blame("the answer to %s of %s at %v is not there", e.Key, e.By.Subject, e.At)
}

func (t *account) effect(e store.AuditRow) {
	if t.effects[e.Effect] == nil {
		t.blame("%s of %s has no effect", e.Event, e.Effect)
		return
	}
	was := t.last[e.Effect]
	t.count[e.Event+" "+e.Effect]++
	now := record.EffectState(e.Note)
	right := was == record.EffectStarted
	switch e.Event {
	case "effect started":
		now, right = record.EffectStarted, was == "" || was == record.EffectUndone || was == record.EffectStarted && t.effects[e.Effect].Repeatable
	case "effect done before":
		now, right = record.EffectDone, was == "" || was == record.EffectUndone
	case "effect held": // again, if a run cannot use the result that a person gave
		now, right = record.EffectHeld, right || was == record.EffectDone && t.stands[e.Effect] && t.running
	case "effect resolved": // again, with another result, once no run has it any more
		right = was == record.EffectHeld || was == record.EffectDone && t.stands[e.Effect] && t.count["ended"] > 0
		right = right && (now == record.EffectDone || !t.stands[e.Effect])
		t.stands[e.Effect] = now == record.EffectDone
	}
	if !right {
		t.blame("%s of %s, which was %q", e.Event, e.Effect, was)
	}
	t.last[e.Effect] = now
}

// same says that two counts of a kind differ.
func (t *account) same(what string, call, trail int) {
	if call != trail {
		t.blame("%s: %d in the call, %d in its trail", what, call, trail)
	}
}

func (t *account) compare() {
	c := t.call
	t.same("changes", int(c.Version), t.changes)
	t.same("openings", 1, t.count["opened"])
	t.same("epoch", int(c.Epoch), int(t.epoch))
	t.same("runs", c.Runs, int(t.epoch))
	t.same("runs under way", truth(c.State == record.Running), truth(t.running))
	t.same("kills", c.Kills, t.died)
	t.same("ends", truth(c.State == record.Ended), t.count["ended"])
	t.same("cancels", truth(!c.CancelledAt.IsZero()), t.count["cancel asked"])
	t.same("questions", len(c.Questions), t.count["asked"])
	if !c.UpdatedAt.Equal(t.before.At) {
		t.blame("changed at %v, and its last entry is %s at %v", c.UpdatedAt, t.before.Event, t.before.At)
	}
	if c.Progress != nil && t.count["reported"] == 0 {
		t.blame("no report of its progress")
	}
	answers := 0
	for _, q := range c.Questions {
		answers += len(q.Answers)
		t.same("question "+q.WireKey, 1, t.count["asked "+q.WireKey])
		t.same("expiry of "+q.WireKey, truth(q.State == record.Lapsed), t.count["question expired "+q.WireKey])
		if n := t.count["voided "+q.WireKey]; n > 0 && q.State != record.Void {
			t.blame("%s was voided, and is %s", q.WireKey, q.State)
		}
	}
	t.same("answers", answers, t.count["answered"])
	for name, f := range t.effects {
		t.same("starts of "+name, f.Attempts, t.count["effect started "+name])
		if t.last[name] != f.State {
			t.blame("%s is %s, and %s in its trail", name, f.State, t.last[name])
		}
		t.same("people's word that "+name+" happened", truth(f.Resolved), truth(t.stands[name]))
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// story is a call and its trail, for people.
func story(call *record.Call, trail []store.AuditRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s, version %d, epoch %d, %s %s\n", call.Action.Name, call.Owner.Subject, call.Version, call.Epoch, call.State, call.Outcome)
	for _, q := range call.Questions {
		fmt.Fprintf(&b, "   question %s for %s is %s, %d answers, expires %v\n", q.WireKey, q.Facts, q.State, len(q.Answers), q.Expires)
	}
	for _, f := range call.Effects {
		fmt.Fprintf(&b, "   effect %s is %s, %d attempts\n", f.Name, f.State, f.Attempts)
	}
	for _, e := range trail {
		fmt.Fprintln(&b, "  ", e.Seq, e.At.Format("15:04:05.000000"), e.Event, e.Key, e.Effect, e.By.Subject, e.By.Channel, e.Epoch, e.Reason, e.Note)
	}
	return b.String()
}
