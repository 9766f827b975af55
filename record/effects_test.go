package record_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/tallystick/tallystick/record"
)

func TestAnEffectIsDoneOnce(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.same("effect", s.effect("charge", ""), EffectStarted)
	s.same("key", s.call().Effects[0].Key, EffectKey(s.call(), "staging", "charge", ""))
	s.run(charged)
	s.runRefused(ReasonDone, charge)
	s.died()
	s.take()
	s.runRefused(ReasonDone, charge)
	s.same("result", string(s.call().Effect("charge", "").Result), "1")
	s.run(Finished{Result: []byte(`{"r":1}`)})
	s.ended(Completed, "")
	s.same("result", string(s.call().Result), `{"r":1}`)
}

func TestAnEffectThatDidNotHappenMayStartAgain(t *testing.T) {
	s := task(t)
	s.begin(refund)
	s.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectUndone, Result: []byte("dropped")})
	s.same("the subject is free", len(s.marks), 0)
	s.begin(refund)
	s.same("attempts", s.call().Effects[0].Attempts, 2)
	s.same("result", string(s.call().Effects[0].Result), "")
}

func TestAnEffectStartsOnlyOnAnswersThatCount(t *testing.T) {
	s := task(t)
	q := question("k", "1")
	relied := []Reliance{{Key: "k", Digest: sum(q)}}
	begin := EffectBegan{Name: "charge", Relied: relied}
	s.runRefused(ReasonUnanswered, begin)
	s.ask(q)
	s.yes(ann)
	s.take()
	s.runRefused(ReasonUnanswered, EffectBegan{Name: "charge", Relied: []Reliance{{Key: "k", Digest: sum(question("k", "2"))}}})
	s.same("a refused start spends nothing", s.call().Question("k").Spent, false)
	s.run(begin)
	s.same("spent", s.call().Question("k").Spent, true)
	s.same("on it", s.call().Effects[0].Relied[0], "k")

	s = task(t)
	s.ask(q)
	s.must(ann, NoEpoch, Responded{WireKey: "k", Action: Decline})
	s.take()
	s.runRefused(ReasonUnanswered, begin)
	s.run(EffectBegan{Name: "charge", Relied: []Reliance{{Key: "k", Digest: sum(q), No: true}}}) // it is meant after a no
	s.same("a no is spent", s.call().Question("k").Spent, true)
}

func TestNoEffectStartsAfterACancelOrTheDeadline(t *testing.T) {
	s := task(t)
	s.must(ann, NoEpoch, CancelAsked{})
	s.is(Running)
	s.runRefused(ReasonCancelled, charge)

	s = task(t)
	s.call().Lease.Until = start.Add(2 * time.Hour) // renewed
	s.now = start.Add(time.Hour)
	s.runRefused(ReasonDeadline, charge)
}

func TestAnEffectOfUnknownEndIsHeld(t *testing.T) {
	s := task(t)
	s.begin(refund)
	s.died()
	s.is(Held)
	s.same("status", s.call().Status(), OutcomeHeld)
	s.same("mark", s.markOf(refund).State, EffectHeld)
	s.refuse(ReasonWrongState, System, NoEpoch, Taken{Lease: s.lease()})
	s.refuse(ReasonNotHeld, bob, NoEpoch, EffectResolved{Name: "other"})
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true, Result: []byte("2")})
	s.is(Ready)
	s.refuse(ReasonNotHeld, bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	s.take()
	s.runRefused(ReasonDone, refund)
	s.same("result", string(s.call().Effects[0].Result), "2")
	s.same("evidence", len(s.call().Effects[0].Evidence), 2)
}

// What a person said came of an effect, and no run can use, is theirs to say anew:
// as often as it takes, but never that it did not happen.
func TestAResultThatDoesNotFitIsHeldAgain(t *testing.T) {
	resolve := EffectResolved{Name: "refund", Subject: "order 1", Done: true, Result: []byte("2")}
	unfit := EffectUnfit{Name: "refund", Subject: "order 1", Text: "a number"}
	s := task(t)
	s.begin(refund)
	s.runRefused(ReasonWrongState, unfit) // it has no result
	s.died()
	s.must(bob, NoEpoch, resolve)
	s.refuse(ReasonStaleEpoch, s.runner(), NoEpoch, unfit)
	s.take()
	s.run(unfit)
	s.same("effect", s.effect("refund", "order 1"), EffectHeld)
	s.same("mark", s.markOf(refund).State, EffectHeld)
	s.runRefused(ReasonHeld, refund)
	last := s.call().Effects[0].Evidence
	s.same("evidence", string(last[len(last)-1].Result)+" "+last[len(last)-1].Text, "2 it happened, but the result that was given for it does not fit: a number")
	s.run(Finished{Result: []byte("{}")})
	s.is(Held)
	s.refuse(ReasonDone, bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	resolve.Result = []byte(`"3"`)
	s.must(bob, NoEpoch, resolve)
	s.is(Ready)
	s.refuse(ReasonNotHeld, bob, NoEpoch, resolve) // a run will have it
	s.take()
	s.runRefused(ReasonDone, refund)
	s.run(Finished{Result: []byte("{}")})
	resolve.Result = []byte(`"4"`)
	s.must(bob, NoEpoch, resolve) // for whoever shares it
	s.same("mark", string(s.markOf(refund).Result), `"4"`)
	s.refuse(ReasonDone, bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	s.ended(Completed, "")

	s = task(t) // what a run has recorded itself is no person's to give
	s.begin(refund)
	s.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectDone, Result: []byte("1")})
	s.runRefused(ReasonWrongState, unfit)
	s.run(Finished{Result: []byte("{}")})
	s.refuse(ReasonNotHeld, bob, NoEpoch, resolve)
}

func TestARepeatableEffectIsTriedAgain(t *testing.T) {
	s := task(t)
	s.run(send)
	key := s.call().Effects[0].Key
	s.run(send) // in the same run, after an error
	s.died()
	s.is(Ready)
	s.take()
	s.run(send)
	s.same("attempts", s.call().Effects[0].Attempts, 3)
	s.same("by the same key", s.call().Effects[0].Key, key)
	s.run(EffectEnded{Name: "send", State: EffectDone})
}

func TestARunThatSaysItDoesNotKnowHolds(t *testing.T) {
	s := task(t)
	s.run(send)
	s.run(EffectEnded{Name: "send", State: EffectHeld, Text: "timeout"})
	s.is(Running)
	s.runRefused(ReasonHeld, charge) // nothing else starts meanwhile
	s.run(Finished{Result: []byte("{}")})
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "send"})
	s.is(Ready)
}

// A run that was told that its effect is held does not end the call with that when
// a person was quicker than its handler's return.
func TestARunThatWasToldHeldIsFollowedByAnother(t *testing.T) {
	for _, happened := range []bool{true, false} {
		s := inline(t)
		s.run(charge)
		s.run(EffectEnded{Name: "charge", State: EffectHeld})
		s.must(bob, NoEpoch, EffectResolved{Name: "charge", Done: happened})
		s.is(Running)
		s.run(Finished{Result: []byte("{}"), ToolError: true, Held: true})
		s.is(Ready)
		s.same("who waited was told", s.call().Background, true)
		s.take()
		s.run(Finished{Result: []byte("{}")})
		s.ended(Completed, "")
	}
	s := task(t) // and not after a cancel
	s.run(charge)
	s.run(EffectEnded{Name: "charge", State: EffectHeld})
	s.must(bob, NoEpoch, EffectResolved{Name: "charge", Done: true})
	s.must(ann, NoEpoch, CancelAsked{})
	s.run(Finished{ToolError: true, Held: true})
	s.ended(Cancelled, "")
}

func TestAHeldEffectResolvedWhileTheRunGoesOn(t *testing.T) {
	s := task(t)
	s.run(charge)
	s.run(EffectEnded{Name: "charge", State: EffectHeld})
	s.must(bob, NoEpoch, EffectResolved{Name: "charge", Done: true})
	s.is(Running)
	s.run(Finished{})
	s.ended(Completed, "")
}

func TestEndsThatAreNoEndsAreRefused(t *testing.T) {
	s := task(t)
	s.runRefused(ReasonWrongState, charged)
	s.run(charge)
	s.runRefused(ReasonInFlight, charge)
	s.runRefused(ReasonWrongState, EffectEnded{Name: "charge", State: "perhaps"})
	s.run(charged)
	s.runRefused(ReasonWrongState, charged)

	s = task(t) // an earlier run's start is not this run's to end
	s.run(send)
	s.died()
	s.take()
	s.runRefused(ReasonWrongState, EffectEnded{Name: "send", State: EffectDone})
}

func TestAPauseOverARunningEffectHoldsIt(t *testing.T) {
	for name, s := range map[string]*scene{"task": task(t), "inline": inline(t)} {
		s.begin(refund) // in a goroutine of the handler's, which returns meanwhile
		s.run(Asked{Question: question("k", "1")}, Paused{})
		s.same(name, s.call().State, Held)
		s.yes(ann)
		s.is(Held) // no answer makes it start again
		s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1", Done: true})
		s.take()
		s.runRefused(ReasonDone, refund)
	}
}

func TestAPauseAfterACancelEndsOnlyWhatIsSettled(t *testing.T) {
	s := task(t)
	s.begin(refund)
	s.must(ann, NoEpoch, CancelAsked{})
	s.run(Asked{Question: question("k", "1")}, Paused{})
	s.is(Held)
	s.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	s.ended(Cancelled, "")
	s.same("marks", len(s.marks), 0)

	s = task(t)
	s.must(ann, NoEpoch, CancelAsked{})
	s.run(Asked{Question: question("k", "1")}, Paused{})
	s.ended(Cancelled, "")
}

func TestARepeatableEffectOutlivesAPause(t *testing.T) {
	s := task(t)
	s.run(send)
	s.died()
	s.take()
	s.run(Asked{Question: question("k", "1")}, Paused{})
	s.is(Waiting)
	s.yes(ann)
	s.take()
	s.run(send)
}

// second opens another call in the scene, running.
func (s *scene) second(id string, owner Actor) *scene {
	s.Helper()
	o := &scene{s.book, id}
	opened := opening(id, owner)
	opened.Call.Deadline = s.now.Add(time.Hour)
	o.must(owner, NoEpoch, opened)
	o.take()
	return o
}

func TestASubjectIsOneCallsAtATime(t *testing.T) {
	a := task(t)
	b := a.second("b", ann)
	a.begin(refund)
	began := refund
	began.Mark = b.markOf(refund)
	b.runRefused(ReasonBusy, began)
	// Whoever read no mark before it was set loses the race.
	if err := b.do("b", b.runner(), b.call().Epoch, refund); err != errConflict {
		t.Fatalf("got %v", err)
	}
	a.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectHeld})
	began.Mark = b.markOf(refund)
	b.runRefused(ReasonHeld, began)
	a.run(Finished{})
	a.must(bob, NoEpoch, EffectResolved{Name: "refund", Subject: "order 1"})
	b.begin(refund) // it is free again
	// Another tenant's order 1 is another order.
	c := a.second("c", eve)
	c.begin(refund)
	// Names tell effects apart too.
	c.begin(EffectBegan{Name: "cancel", Subject: "order 1"})
}

func TestADoneSubjectIsForItsOwnersEyesOnly(t *testing.T) {
	a := task(t)
	a.begin(refund)
	a.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectDone, Result: []byte("3")}, Finished{})
	for id, owner := range map[string]Actor{"bob": bob, "phone": annElse, "issuer": annOther, "anonymous": nobody} {
		b := a.second(id, owner)
		began := refund
		began.Mark = b.markOf(refund)
		b.runRefused(ReasonDoneByOther, began)
	}
	b := a.second("b", ann)
	b.begin(refund)
	f := b.call().Effect("refund", "order 1")
	b.same("shared", f.Shared && f.State == EffectDone && string(f.Result) == "3", true)
	b.same("whose mark", b.markOf(refund).Call, "call")
	b.runRefused(ReasonDone, refund)

	// An anonymous is nobody's same owner, even in the same words.
	n := a.second("n", nobody)
	n.begin(EffectBegan{Name: "send", Subject: "x"})
	n.run(EffectEnded{Name: "send", Subject: "x", State: EffectDone})
	m := a.second("m", nobody)
	began := EffectBegan{Name: "send", Subject: "x", Mark: m.markOf(EffectBegan{Name: "send", Subject: "x"})}
	m.runRefused(ReasonDoneByOther, began)
}

func TestWhatAnotherCallDidMeanwhileIsNotDoneAgain(t *testing.T) {
	a := task(t)
	a.begin(refund)
	a.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectUndone})
	b := a.second("b", ann)
	b.begin(refund)
	b.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectDone, Result: []byte("3")})
	a.begin(refund)
	f := a.call().Effect("refund", "order 1")
	a.same("done", f.State == EffectDone && f.Shared && string(f.Result) == "3", true)
	a.same("attempts of its own", f.Attempts, 1)
}

func TestASharedEffectSpendsItsAnswers(t *testing.T) {
	a := task(t)
	a.begin(refund)
	a.run(EffectEnded{Name: "refund", Subject: "order 1", State: EffectDone}, Finished{})
	b := a.second("b", ann)
	b.ask(question("k", "1"))
	b.yes(ann)
	b.take()
	began := refund
	began.Relied = []Reliance{{Key: "k", Digest: sum(question("k", "1"))}}
	b.begin(began)
	b.same("spent", b.call().Question("k").Spent, true)
}

func TestEvidenceIsKeptFirstAndLatest(t *testing.T) {
	s := task(t)
	s.refuse(ReasonUnknownKey, s.runner(), NoEpoch, Observed{Name: "charge"})
	s.run(charge)
	s.died()
	for i := range 20 {
		s.must(s.runner(), NoEpoch, Observed{Name: "charge", Epoch: 1, Text: fmt.Sprint(i)})
	}
	got := s.call().Effects[0].Evidence
	if len(got) != 8 || got[0].Text != "its run stopped (died) before it told how it ended" || got[7].Text != "19" || got[1].Text != "13" {
		t.Fatalf("%+v", got)
	}
}

func TestKeysOfEffects(t *testing.T) {
	a, b := opening("a", ann).Call, opening("b", bob).Call
	other := opening("a", eve).Call
	if EffectKey(a, "", "e", "") == EffectKey(b, "", "e", "") || EffectKey(a, "", "e", "s") != EffectKey(b, "", "e", "s") ||
		EffectKey(a, "", "e", "s") == EffectKey(other, "", "e", "s") || EffectKey(a, "", "e", "s") == EffectKey(a, "", "es", "") ||
		EffectKey(a, "staging", "e", "s") == EffectKey(a, "production", "e", "s") || EffectKey(a, "staging", "e", "s") == EffectKey(a, "", "e", "s") ||
		EffectKey(a, "staging", "e", "s") != EffectKey(b, "staging", "e", "s") {
		t.Error("effects' keys are the same where they should differ, or differ where they should be the same")
	}
	// What the far side has been given stays the key of the same effect.
	if got, want := EffectKey(a, "", "e", "s"), "r-akJgANegb552mWdkE4dmY9ZOp_pzbkIvx8YgFGmNY"; got != want {
		t.Errorf("the key without a deployment is %s, and was %s", got, want)
	}
	if got, want := EffectKey(a, "staging", "e", "s"), "hJ8tDQfNIi2UgFMDY1XGvtWfOU3Skke6aSv8gV5nF4o"; got != want {
		t.Errorf("the key in a deployment is %s, and was %s", got, want)
	}
	if SubjectMark("t", "ab", "c") == SubjectMark("t", "a", "bc") || KeyMark(ann.Principal, "ab", "c") == KeyMark(ann.Principal, "a", "bc") ||
		KeyMark(ann.Principal, "a", "k") == KeyMark(annElse.Principal, "a", "k") {
		t.Error("two marks of one name")
	}
	if (Action{Method: "a", Name: "b"}).Digest() == (Action{Method: "ab"}).Digest() {
		t.Error("two actions of one digest")
	}
}

func TestAStartedEffectOfAnEarlierRunIsNotStartedAgain(t *testing.T) {
	c := opening("call", ann).Call // as no change of the law's makes it, but a store may hold it
	c.State, c.Epoch, c.Lease = Running, 2, Lease{Holder: "node/1", Until: start.Add(lease)}
	c.Effects = []Effect{{Name: "charge", State: EffectStarted, Epoch: 1}}
	var r *Refusal
	if _, err := Decide(c, ann, 2, start, charge); !errors.As(err, &r) || r.Reason != ReasonInFlight {
		t.Fatalf("got %v", err)
	}
}

func TestAnEffectThatIsNoLongerRepeatableIsNotTriedAgain(t *testing.T) {
	s := task(t)
	s.run(send)
	s.died()
	s.take()
	s.runRefused(ReasonInFlight, EffectBegan{Name: "send"})
	s.run(Finished{Error: &Error{Message: "busy"}})
	s.is(Held)
}
