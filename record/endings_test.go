package record_test

import (
	"math"
	"testing"
	"time"

	. "github.com/tallystick/tallystick/record"
)

func TestDeadlineExpiresWhatWaits(t *testing.T) {
	s := task(t)
	q := question("k", "1")
	q.Within = 2 * time.Hour
	s.ask(q)
	s.same("due", s.call().Due(), start.Add(time.Hour))
	s.now = start.Add(time.Hour - 1)
	before := s.call().Version
	s.pass()
	s.same("a nanosecond earlier nothing happens", s.call().Version, before)
	s.now = start.Add(time.Hour)
	s.pass()
	s.ended(Expired, "expired")
	s.same("status", s.call().Status(), Expired)
	s.same("question", s.state("k"), Void)
}

func TestDeadlineNeverOvertakesAStartedEffect(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.call().Lease.Until = start.Add(2 * time.Hour)
	s.now = start.Add(time.Hour)
	s.same("its lease ends it", s.call().Due().IsZero(), true)
	s.pass()
	s.is(Running)
	s.run(charged)
	s.pass() // it has settled; the run that did it still gets to say so
	s.is(Running)
	s.run(Finished{Result: []byte("{}")})
	s.ended(Completed, "")
}

func TestAnEffectStillUnknownAtTheDeadlineIsUnknown(t *testing.T) {
	for name, drive := range map[string]func(*scene){
		"held": func(s *scene) { s.begin(refund); s.died() },
		"held by its run, which goes on": func(s *scene) {
			s.begin(refund)
			s.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectHeld})
			s.call().Lease.Until = start.Add(2 * time.Hour)
		},
		"started by a run that died at the deadline": func(s *scene) { s.begin(refund) },
		"to be repeated by a worker":                 func(s *scene) { s.begin(repeat); s.died() },
		"to be repeated by a run that has not yet": func(s *scene) {
			s.begin(repeat)
			s.died()
			s.take()
			s.call().Lease.Until = start.Add(2 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := task(t)
			drive(s)
			s.now = start.Add(time.Hour)
			s.pass()
			s.ended(Failed, "unknown")
			s.same("effect", s.effect("refund", "order 1"), EffectHeld)
			s.same("not to be purged", s.call().Due().IsZero(), true)
			s.now = start.Add(1000 * time.Hour)
			s.pass()
			s.is(Ended)
			// Resolving later changes the effect, not the outcome.
			s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true})
			s.ended(Failed, "unknown")
			s.same("mark", s.markOf(refund).State, EffectDone)
			s.same("purge", s.call().Due(), start.Add(2*time.Hour))
		})
	}
}

var repeat = EffectBegan{Name: "refund", Subject: "order 1", Repeatable: true}

func TestARunAtTheDeadlineWithoutAnEffectExpires(t *testing.T) {
	for _, s := range []*scene{task(t), inline(t)} {
		s.call().Lease.Until = start.Add(2 * time.Hour)
		s.same("due", s.call().Due(), start.Add(time.Hour))
		s.now = start.Add(time.Hour)
		s.pass()
		s.ended(Expired, "expired")
		s.refuse(ReasonEnded, s.runner(), 1, Finished{})
	}
}

func TestWhoComesForACallPastItsDeadlineEndsIt(t *testing.T) {
	ready := func(t *testing.T) *scene {
		s := &scene{newBook(t), "call"}
		s.must(ann, NoEpoch, opening("call", ann))
		s.now = start.Add(time.Hour)
		return s
	}
	s := ready(t)
	s.take() // a store shows it as ready, not as overdue
	s.ended(Expired, "expired")

	s = inline(t)
	s.ask(question("k", "1"))
	s.now = start.Add(time.Hour)
	s.retry(1)
	s.ended(Expired, "expired")

	s = task(t)
	s.begin(repeat)
	s.died()
	s.now = start.Add(time.Hour)
	s.take()
	s.ended(Failed, "unknown")
}

func TestAHandlerToldToStopHasNotFailed(t *testing.T) {
	failed := Finished{Error: &Error{Code: -32603, Message: "context deadline exceeded"}}
	told := Finished{Result: []byte("{}"), ToolError: true}
	for _, end := range []Finished{failed, told} {
		s := task(t)
		s.call().Lease.Until = start.Add(2 * time.Hour)
		s.now = start.Add(time.Hour)
		s.run(end)
		s.ended(Expired, "expired")
		s.same("result", len(s.call().Result), 0)

		s = task(t)
		s.must(ann, NoEpoch, CancelAsked{})
		s.run(end)
		s.ended(Cancelled, "")
	}
	s := task(t)
	s.run(failed)
	s.ended(Failed, "")
	s = task(t)
	s.run(told)
	s.ended(Completed, "")
}

func TestWhatIsDoneIsDoneDespiteACancelOrTheDeadline(t *testing.T) {
	s := task(t)
	s.must(ann, NoEpoch, CancelAsked{})
	s.run(Finished{Result: []byte("{}")})
	s.ended(Completed, "")
	s = task(t)
	s.call().Lease.Until = start.Add(2 * time.Hour)
	s.now = start.Add(time.Hour)
	s.run(Finished{Result: []byte("{}")})
	s.ended(Completed, "")
}

func TestCancelEndsWhatWaits(t *testing.T) {
	waiting := func() *scene { s := task(t); s.ask(question("k", "1")); return s }
	ready := func() *scene { s := task(t); s.run(Stopped{Why: WhyHandback}); return s }
	left := func() *scene { s := keyed(t); s.run(Stopped{Why: WhyLeft}); return s }
	for _, s := range []*scene{waiting(), ready(), left()} {
		s.must(ann, NoEpoch, CancelAsked{})
		s.ended(Cancelled, "")
		s.refuse(ReasonEnded, ann, NoEpoch, CancelAsked{})
		s.refuse(ReasonEnded, ann, NoEpoch, Responded{WireKey: "k", Action: Accept})
	}
}

func TestCancelLetsARunSettle(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.must(ann, NoEpoch, CancelAsked{})
	before := s.call().Version
	s.must(ann, NoEpoch, CancelAsked{})
	s.same("asked twice is asked once", s.call().Version, before)
	s.run(charged)
	s.run(Stopped{Why: WhyHandback})
	s.ended(Cancelled, "")
	s.same("the effect is on record", s.effect("charge", ""), EffectDone)
}

func TestHeldThenCancelledEndsWhenResolved(t *testing.T) {
	s := task(t)
	s.begin(refund)
	s.died()
	s.must(ann, NoEpoch, CancelAsked{})
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true})
	s.ended(Cancelled, "")
}

func TestCancelHoldsWhatWasToBeRepeated(t *testing.T) {
	for name, drive := range map[string]func(*scene){
		"before the cancel": func(s *scene) { s.died(); s.must(ann, NoEpoch, CancelAsked{}) },
		"after it":          func(s *scene) { s.must(ann, NoEpoch, CancelAsked{}); s.died() },
	} {
		s := task(t)
		s.begin(repeat)
		drive(s)
		s.same(name, s.call().State, Held)
	}
}

func TestACancelledRunThatGoesOnToTheDeadlineIsCancelled(t *testing.T) {
	s := task(t)
	s.must(ann, NoEpoch, CancelAsked{})
	s.call().Lease.Until = start.Add(2 * time.Hour)
	s.now = start.Add(time.Hour)
	s.pass()
	s.ended(Cancelled, "")
}

func TestTwoHeldEffectsNeedTwoWords(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.begin(refund)
	s.died()
	s.must(bob, NoEpoch, EffectResolved{Name: "charge"})
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	s.is(Ready)
}

func TestFiveKillsFailTheCall(t *testing.T) {
	s := task(t)
	for range 4 {
		s.died()
		s.is(Ready)
		s.take()
	}
	s.died()
	s.ended(Failed, "crash_loop")

	s = keyed(t) // whoever retries it
	for range 4 {
		s.died()
		s.is(Waiting)
		s.retry(0)
	}
	s.died()
	s.ended(Failed, "crash_loop")
}

func TestACrashLoopSettlesItsEffectFirst(t *testing.T) {
	for _, e := range []EffectBegan{refund, repeat} {
		s := task(t)
		for range 4 {
			s.died()
			s.take()
		}
		s.begin(e)
		s.died()
		s.is(Held)
		s.same("mark", s.markOf(e).State, EffectHeld)
		s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
		s.ended(Failed, "crash_loop")
		s.same("the subject is free", len(s.marks), 0)
	}
}

func TestMaxRunsEndTheCallAndSettleItsEffectFirst(t *testing.T) {
	limited := func(t *testing.T) *scene {
		s := &scene{newBook(t), "call"}
		o := opening("call", ann)
		o.Call.MaxRuns = 1
		s.must(ann, NoEpoch, o)
		s.take()
		return s
	}
	s := limited(t)
	s.died()
	s.take()
	s.ended(Failed, "max_runs")

	s = limited(t)
	s.begin(repeat)
	s.died()
	s.take()
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true})
	s.take()
	s.ended(Failed, "max_runs")
	s.same("mark", s.markOf(refund).State, EffectDone)
}

func TestAnAbandonedCallEndsOrIsHeld(t *testing.T) {
	gone := Abandoned{Error: Error{Code: -32602, Message: "gone", Outcome: "gone"}, Reason: ReasonNotAllowed}
	s := task(t)
	s.refuse(ReasonWrongState, ann, NoEpoch, gone)
	s.died()
	s.must(System, NoEpoch, gone)
	s.ended(Failed, "gone")

	s = task(t)
	s.begin(repeat)
	s.died()
	s.must(System, NoEpoch, gone) // nobody will repeat it
	s.is(Held)
	s.refuse(ReasonWrongState, ann, NoEpoch, gone)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	s.must(System, NoEpoch, gone)
	s.ended(Failed, "gone")
}

func TestAHandlerThatReturnsBeforeItsEffectIsHeld(t *testing.T) {
	s := task(t)
	s.begin(repeat)
	s.run(Finished{Result: []byte("{}")})
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true})
	s.take()
	s.run(Finished{Result: []byte("{}")})
	s.ended(Completed, "")
}

// case S80
func TestTerminalIsFinal(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.run(EffectEnded{Name: "charge", State: EffectHeld})
	s.call().Lease.Until = start.Add(2 * time.Hour)
	s.now = start.Add(time.Hour)
	s.pass()
	s.ended(Failed, "unknown")
	for _, e := range []Event{
		Taken{}, s.retrying(1, ""), Stopped{Why: WhyDied}, Asked{}, Voided{}, Paused{}, Announced{}, Responded{}, charge, charged,
		Reported{}, Finished{}, Abandoned{}, CancelAsked{},
	} {
		s.refuse(ReasonEnded, ann, 1, e)
	}
	s.must(s.runner(), 1, Observed{Name: "charge", Epoch: 1})
	s.ended(Failed, "unknown")
}

func TestPurgeKeepsSubjectsForEver(t *testing.T) {
	s := &scene{newBook(t), "call"}
	key := KeyMark(ann.Principal, "refund", "key 1")
	o := opening("call", ann)
	o.Key, o.Call.Deadline = key, start.Add(24*time.Hour)
	s.must(ann, NoEpoch, o)
	s.same("key", s.mark(key).Call+" "+s.mark(key).Digest, "call args")
	second := opening("other", ann)
	second.Key = key
	if err := s.do("other", ann, NoEpoch, second); err != errConflict {
		t.Fatalf("a key of another call: got %v", err)
	}
	s.take()
	s.begin(refund)
	s.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectDone, Result: []byte("3")}, Finished{})
	s.same("lives an hour longer", s.call().TTL(), time.Hour)
	s.same("due", s.call().Due(), start.Add(time.Hour))
	s.now = start.Add(time.Hour - 1)
	s.pass()
	s.is(Ended)
	s.now = start.Add(time.Hour)
	s.pass()
	gone := MarkID{Kind: MarkGone, Tenant: "acme", Name: "call"}
	if s.calls["call"] != nil || s.audit("purged") != 1 || s.mark(key) != nil {
		t.Fatal("it is still there")
	}
	s.same("remembered until its last state has expired", s.mark(gone).Until, start.Add(24*time.Hour))
	m := s.mark(SubjectMark("acme", "refund", "order 1"))
	if m == nil || m.State != EffectDone || !m.Until.IsZero() || string(m.Result) != "3" {
		t.Fatalf("the subject is forgotten: %+v", m)
	}
	b := s.second("b", bob)
	began := refund
	began.Mark = b.markOf(refund)
	b.runRefused(ReasonDoneByOther, began)
}

func TestPurgePastTheDeadlineLeavesNoTombstone(t *testing.T) {
	s := task(t)
	s.now = start.Add(2 * time.Hour)
	s.died()
	s.take()
	s.ended(Expired, "expired")
	s.now = start.Add(4 * time.Hour)
	s.pass()
	s.same("marks", len(s.marks), 0)
}

func TestLongTimesDoNotOverflow(t *testing.T) {
	s := &scene{newBook(t), "call"}
	o := opening("call", ann)
	o.Call.Deadline, o.Call.Retention = start.Add(math.MaxInt64), math.MaxInt64
	s.must(ann, NoEpoch, o)
	s.same("ttl", s.call().TTL(), time.Duration(math.MaxInt64))
	s.take()
	s.run(Finished{})
	s.now = start.Add(time.Hour)
	s.pass()
	s.is(Ended)
	if !s.call().PurgeAt().After(start) || s.call().TTL() <= 0 {
		t.Fatal("times turn around")
	}
}

func TestAProgressThatNoJSONHoldsDoesNotPoisonTheCall(t *testing.T) {
	s := task(t)
	s.run(Reported{Progress{Done: 3, Total: 4}})
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s.run(Reported{Progress{Done: f, Total: f}}) // the book stores it as JSON
		s.same("progress", *s.call().Progress, Progress{Done: 3, Total: 4})
	}
	s.run(Finished{})
}

func TestEveryEntrySaysWhoAndWhereAndWhetherRolesAreStored(t *testing.T) {
	s := task(t)
	s.ask(question("k", "1"))
	s.yes(ann)
	s.take()
	s.run(Finished{})
	for _, e := range s.trail {
		if e.Call != "call" || e.Tenant != "acme" || e.At.IsZero() || e.By.Channel == "" || e.Stored != (e.By.Channel == ChannelRun) {
			t.Errorf("%s", s.json(e))
		}
	}
}

func TestARefusalThatIsNotTheLawsOwnIsOnRecord(t *testing.T) {
	s := task(t)
	s.refuse("state_of_another_principal", eve, NoEpoch, Refused{Reason: "state_of_another_principal", Note: "why"})
	e := s.trail[len(s.trail)-1]
	s.same("entry", e.Event+" "+string(e.Reason)+" "+e.Key+" "+e.By.Tenant+" "+e.Tenant, "refused state_of_another_principal why evil acme")
	s.run(Finished{})
	s.refuse("late", eve, NoEpoch, Refused{Reason: "late"})
}

func TestRefusalsNameWhatTheyConcern(t *testing.T) {
	for r, want := range map[*Refusal]string{
		{Reason: ReasonEnded}:             "refused: call_ended",
		{Reason: ReasonNotOpen, Key: "k"}: "refused: question_not_open (k)",
	} {
		if r.Error() != want {
			t.Errorf("got %q", r.Error())
		}
	}
}

func TestNothingIsNoChange(t *testing.T) {
	s := task(t)
	change, err := s.decide("call", ann, NoEpoch)
	if err != nil || change.After != nil || change.Audit != nil {
		t.Fatalf("%v: %+v", err, change)
	}
	s.same("status", s.call().Status(), Working)
	s.run(Asked{Question: question("k", "1")})
	s.same("status", s.call().Status(), InputRequired)
}
