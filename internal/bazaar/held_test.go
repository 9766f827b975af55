package bazaar

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// A silent shop says nothing of the first charge.
type silent struct{ charges atomic.Int64 }

func (s *silent) order(string) (int, error) { return 0, nil }

func (s *silent) charge(context.Context, Charge) (int, error) {
	if s.charges.Add(1) == 1 {
		return 0, errors.New("no reply")
	}
	return 0, nil
}

// hold has a call of the shop pay held, and returns its id.
func hold(t *testing.T, c *Crowd, kept store.Store) string {
	t.Helper()
	ann := c.someone("ann/acme", CapsForm)
	more := map[string]any{"arguments": map[string]any{"orderId": "o1"}}
	asked, err := ann.Send(t.Context(), "tools/call", "pay", more)
	if err != nil || len(asked.keys()) != 1 {
		t.Fatalf("%v, %s", err, asked.Raw)
	}
	more["requestState"], more["inputResponses"] = asked.text("requestState"), map[string]any{asked.keys()[0]: yes}
	if _, err := ann.Send(t.Context(), "tools/call", "pay", more); err != nil {
		t.Fatal(err)
	}
	if n, err := held(t.Context(), kept); n != 1 || err != nil {
		t.Fatalf("%d are held, %v", n, err)
	}
	return asked.call()
}

// That operators are shown nothing does not mean that nothing is held.
func TestSettlingWaitsForWhatOperatorsAreNotShown(t *testing.T) {
	c, kept := NewCrowd(NewFarSide(1)), memory.New(memory.Options{})
	opts := Options(kept)
	var hidden atomic.Int64
	opts.Authorize = func(_ context.Context, a tallystick.Access) error {
		if a.Verb == tallystick.Reply && a.Effect != "" && hidden.Add(1) <= 3 {
			return errors.New("not today")
		}
		return nil
	}
	defer serve(t, c, opts, &silent{})()
	hold(t, c, kept)
	if err := c.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := held(t.Context(), kept); n != 0 || err != nil || hidden.Load() <= 3 {
		t.Errorf("%d are held, %v, after it was asked %d times", n, err, hidden.Load())
	}
}

// Two operators who both saw an effect held may both say that it happened: the
// second gives its result anew if the call has ended.
func TestAResultGivenAnewIsNoFault(t *testing.T) {
	c, kept := NewCrowd(NewFarSide(1)), memory.New(memory.Options{})
	defer serve(t, c, Options(kept), &silent{})()
	id := hold(t, c, kept)
	c.Far.ledger = []Charge{{Call: id, Tenant: "acme", Effect: "charge", Subject: "pay o1", Began: time.Now(), At: time.Now()}}
	if err := c.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	opal := decider{c.place.Load().page, Person(operators[0])}
	if !opal.decide(t.Context(), tallystick.Decision{CallID: id, Effect: "charge", Subject: "pay o1", Happened: true, Result: []byte("1")}) {
		t.Fatal("it is not given anew")
	}
	tally, err := c.Check(t.Context(), kept, true)
	if err != nil || len(c.Wrong()) > 0 || tally.Events["effect resolved"] != 2 {
		t.Errorf("%v, %q, %+v", err, c.Wrong(), tally)
	}
}

// What follows on a person's word: a result can be given anew when the call has
// ended, and has to be when a run cannot use it; what happened has happened.
func TestOnlyWhatPeopleSaidIsSaidAnew(t *testing.T) {
	for _, is := range []struct {
		trail string
		wrong bool
	}{
		{"taken, start, held, stopped, done, taken, ended", false},
		{"taken, start, held, stopped, done, taken, ended, done, done", false},
		{"taken, start, held, stopped, done, taken, held, stopped, done, taken, ended", false},
		{"taken, start, held, stopped, undone, taken, start, held, stopped, done", false},
		{"taken, start, held, stopped, done, done", true},
		{"taken, start, held, stopped, done, taken, done", true},
		{"taken, start, held, stopped, done, held", true},
		{"taken, start, held, stopped, done, taken, ended, undone", true},
		{"taken, start, held, stopped, done, taken, held, stopped, undone", true},
		{"taken, start, held, stopped, undone, taken, ended, done", true},
		{"taken, start, end, ended, done", true},
		{"taken, start, end, held", true},
		{"taken, before, held", true},
		{"taken, before, ended, done", true},
	} {
		wrong := unaccounted(&record.Call{Effects: []record.Effect{{Name: "charge", Subject: "s"}}}, rows(is.trail))
		if got := slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, ", which was ") }); got != is.wrong {
			t.Errorf("%s: %q", is.trail, wrong)
		}
	}
}

// rows are a trail in short.
func rows(short string) []store.AuditRow {
	trail := []store.AuditRow{{Seq: 1, Entry: record.Entry{Event: "opened"}}}
	for word := range strings.SplitSeq(short, ", ") {
		e := record.Entry{Event: word}
		switch word {
		case "start":
			e.Event = "effect started"
		case "held":
			e.Event = "effect held"
		case "before":
			e.Event = "effect done before"
		case "end":
			e.Event, e.Note = "effect ended", string(record.EffectDone)
		case "done", "undone":
			e.Event, e.Note = "effect resolved", word
		}
		if e.Event != word {
			e.Effect = effect("charge", "s")
		}
		trail = append(trail, store.AuditRow{Seq: int64(len(trail)) + 1, Entry: e})
	}
	return trail
}
