package record_test

import (
	"testing"
	"time"

	. "github.com/tallystick/tallystick/record"
)

func TestARoundIsTakenOnce(t *testing.T) {
	s := inline(t)
	s.same("before the first response", s.call().Round, 0)
	s.ask(question("k", "1"))
	s.same("the next", s.call().Round, 1)
	s.same("asked", s.call().Rounds[0].Asked[0], "k")
	s.must(ann, NoEpoch, Responded{WireKey: "k", Action: Accept}, s.retrying(1, "A"))
	s.refuse(ReasonInFlight, ann, NoEpoch, s.retrying(1, "A")) // a duplicate in flight
	s.run(Asked{Question: question("l", "1")}, Paused{})
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(1, "A"))
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(0, ""))
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(-1, ""))
	s.refuse(ReasonRoundAhead, ann, NoEpoch, s.retrying(3, "A"))
	s.retry(2)
}

func TestRetryWithOtherAnswersIsRefused(t *testing.T) {
	s := inline(t)
	s.ask(question("k", "1"))
	s.must(ann, NoEpoch, Responded{WireKey: "k", Action: Accept}, s.retrying(1, "yes"))
	s.died()
	s.is(Waiting)
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(1, "no"))
	s.must(ann, NoEpoch, s.retrying(1, "yes"))
	s.run(Stopped{Why: WhyLeft})
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(1, "no"))
	s.must(ann, NoEpoch, s.retrying(1, "yes"))
	s.same("rounds", len(s.call().Rounds), 2)
}

func TestARefusedRetryTakesNoAnswers(t *testing.T) {
	s := inline(t)
	s.ask(question("k", "1"))
	s.refuse(ReasonRoundAhead, ann, NoEpoch, Responded{WireKey: "k", Action: Accept}, s.retrying(2, "A"))
	s.same("question", s.state("k"), Open)
	s.same("entries", s.audit("answered"), 0)
}

// Whoever loses the connection, the call is not over: it waits, at the most
// until its deadline.
func TestALostConnectionNeverEndsTheCall(t *testing.T) {
	for _, why := range []Why{WhyLeft, WhyHandback, WhyDied} {
		s := inline(t)
		s.run(Asked{Question: question("k", "1")}) // live, of a 2025-era client
		if why == WhyDied {
			s.died()
		} else {
			s.run(Stopped{Why: why})
		}
		s.is(Waiting)
		s.now = start.Add(time.Hour)
		s.must(System, NoEpoch, TimePassed{})
		s.ended(Expired, "expired")
	}
}

func TestTheFirstRoundIsTakenOverWhenItsRunDied(t *testing.T) {
	s := keyed(t)
	s.died()
	s.is(Waiting)
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(0, "made up"))
	s.refuse(ReasonRoundAhead, ann, NoEpoch, s.retrying(1, ""))
	s.retry(0)
	s.same("runs", s.call().Runs, 2)
	s.same("epoch", s.call().Epoch, int64(2))
	s.same("rounds", len(s.call().Rounds), 1)
}

func TestAWorkersCallIsNotRetried(t *testing.T) {
	s := inline(t)
	s.run(Asked{Question: asking(Who{NotRequester: true})}, Paused{Background: true})
	s.same("its response asks nothing", len(s.call().Rounds[0].Asked), 0)
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(1, ""))
	s.yes(bob)
	s.is(Ready)
	s.take()
	s.refuse(ReasonWrongState, System, NoEpoch, Taken{Lease: s.lease()})
}

func TestAReadyCallIsNotToBeRetried(t *testing.T) {
	s := inline(t)
	s.run(charge)
	s.run(charged)
	s.died()
	s.is(Ready)
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(0, ""))
}

func TestAnEffectMakesTheCallAWorkersWhenItsRunIsOver(t *testing.T) {
	for _, why := range []Why{WhyLeft, WhyHandback} {
		s := inline(t)
		s.run(charge)
		s.run(charged)
		s.run(Stopped{Why: why, Ran: time.Second})
		s.is(Ready)
		s.same("background", s.call().Background, true)
		s.same("round closed", s.call().Rounds[0].Closed, true)
		s.same("ran", s.call().Ran, time.Second)
	}
	s := keyed(t)
	s.run(charge)
	s.run(EffectEnded{Name: "charge", State: EffectUndone})
	s.run(Stopped{Why: WhyLeft})
	s.is(Waiting) // nothing has happened: its client may retry
}

func TestWaitingInlineWithoutAnythingOpenCanBeRetried(t *testing.T) {
	s := inline(t)
	q := asking(Who{Roles: []string{"finance"}})
	s.run(Asked{Question: q})
	s.yes(bob) // while the handler returned
	s.run(Paused{})
	s.is(Waiting)
	s.retry(1)
	s.is(Running)
}

func TestAnAnnouncedCallIsATask(t *testing.T) {
	s := inline(t)
	s.run(Announced{})
	s.same("task", s.call().Task && s.call().Background && s.call().Rounds[0].Closed, true)
	s.runRefused(ReasonWrongState, Announced{})
	s.run(Asked{Question: question("k", "1")}, Paused{})
	s.same("asked by no round", len(s.call().Rounds[0].Asked), 0)
	s.refuse(ReasonRoundUsed, ann, NoEpoch, s.retrying(1, ""))

	s = inline(t)
	s.run(Asked{Question: question("k", "1")}, Paused{Task: true})
	s.same("task", s.call().Task && s.call().Background, true)
}

func TestAWorkersCallGoesOnOnceNothingIsOpen(t *testing.T) {
	s := task(t)
	s.run(Asked{Question: question("k", "1")}, Asked{Question: question("l", "1")}, Paused{})
	s.yesTo("k", ann)
	s.is(Waiting)
	s.yesTo("l", ann)
	s.is(Ready)
}

func TestAnAnswerWhileTheHandlerReturnsIsNotLost(t *testing.T) {
	for _, action := range []AnswerAction{Accept, Decline} {
		s := task(t)
		s.run(Asked{Question: question("k", "1")})
		s.must(ann, NoEpoch, Responded{WireKey: "k", Action: action})
		s.run(Paused{})
		s.is(Ready)
	}
	s := task(t) // or lapses
	s.run(Asked{Question: question("k", "1")})
	s.now = start.Add(15 * time.Minute)
	s.pass()
	s.same("question", s.state("k"), Lapsed)
}

func TestANoIsHeardAtOnceAndOnlyOnce(t *testing.T) {
	s := task(t)
	s.run(Asked{Question: question("k", "1")}, Asked{Question: question("l", "1")}, Paused{})
	s.must(ann, NoEpoch, Responded{WireKey: "k", Action: Decline})
	s.is(Ready) // though l is open
	s.take()
	s.run(Paused{}) // the handler does not mind
	s.is(Waiting)   // and is not run for it again and again
	s.now = start.Add(15 * time.Minute)
	s.pass()
	s.is(Ready) // l has expired
}

func TestReportsNeverGoBack(t *testing.T) {
	s := task(t)
	s.run(Reported{Progress{Message: "a", Done: 5, Total: 10}})
	s.run(Reported{Progress{Message: "b", Done: 3, Total: 4}})
	s.same("progress", *s.call().Progress, Progress{Message: "b", Done: 5, Total: 10})
	before := s.call().Version
	s.run(Reported{Progress{Message: "b", Done: 1}})
	s.same("what says nothing new is no change", s.call().Version, before)
}

func TestOpenedTakesOverNothingButWhatACallerMaySay(t *testing.T) {
	s := &scene{newBook(t), "call"}
	o := opening("call", ann)
	o.Call.Effects = []Effect{{Name: "charge", State: EffectDone}}
	o.Call.Questions = []Question{{Key: "k", WireKey: "k", State: Answered}}
	o.Call.State, o.Call.Outcome, o.Call.EndedAt, o.Call.CancelledAt = Ended, Completed, start, start
	o.Call.Version, o.Call.Epoch, o.Call.Round, o.Call.Runs, o.Call.Kills = 7, 7, 7, 7, 4
	o.MaxLive = 3
	change, err := s.decide("call", ann, NoEpoch, o)
	if err != nil || change.MaxLive != 3 || change.Version != 0 {
		t.Fatalf("%v: %+v", err, change)
	}
	s.must(ann, NoEpoch, o)
	c := s.call()
	if c.State != Ready || len(c.Effects)+len(c.Questions)+c.Runs+c.Kills != 0 || c.Epoch != 0 || c.Version != 1 || !c.CancelledAt.IsZero() || c.Round != 1 || !c.Background {
		t.Fatalf("opened %s", s.json(c))
	}
	s.same("owner, arguments", c.Owner.Subject+string(c.Args), "ann{}")
	s.same("due at once", c.Due(), start)
}

func TestWhatDoesNotExistHasNoEventsAndNothingIsOpenedTwice(t *testing.T) {
	s := &scene{newBook(t), "call"}
	for _, e := range []Event{TimePassed{}, CancelAsked{}, Taken{}, Refused{Reason: "x"}, Observed{}} {
		s.refuse(ReasonWrongState, ann, NoEpoch, e)
	}
	s.must(ann, NoEpoch, opening("call", ann))
	s.refuse(ReasonWrongState, ann, NoEpoch, opening("call", ann))
}

func TestAStaleRunChangesNothing(t *testing.T) {
	s := task(t)
	old := s.call().Epoch
	s.run(charge)
	s.died()
	s.must(bob, NoEpoch, EffectResolved{Name: "charge"})
	s.take()
	for _, e := range []Event{
		Asked{Question: question("k", "1")}, Voided{WireKey: "k"}, Paused{}, Announced{}, charge, charged,
		Reported{}, Finished{}, Stopped{Why: WhyLeft}, Stopped{Why: WhyHandback},
	} {
		s.refuse(ReasonStaleEpoch, s.runner(), old, e)
		s.refuse(ReasonStaleEpoch, s.runner(), NoEpoch, e)
		s.refuse(ReasonStaleEpoch, s.runner(), old+7, e)
	}
	s.must(s.runner(), NoEpoch, Observed{Name: "charge", Epoch: old, Result: []byte("1"), Text: "it happened"})
	s.same("evidence settles nothing", s.effect("charge", ""), EffectUndone)

	s.now = s.now.Add(lease)
	s.runRefused(ReasonLeaseLost, Finished{})
}

func TestALiveRunIsNotDead(t *testing.T) {
	s := task(t)
	s.refuse(ReasonInFlight, ann, NoEpoch, Stopped{Why: WhyDied})
	s.died()
	s.same("kills", s.call().Kills, 1)
	s.refuse(ReasonWrongState, ann, NoEpoch, Stopped{Why: WhyDied})
}

func TestARunNeedsALeaseThatIsLive(t *testing.T) {
	s := &scene{newBook(t), "call"}
	s.must(ann, NoEpoch, opening("call", ann))
	s.refuse(ReasonLeaseLost, ann, NoEpoch, Taken{})
	s.refuse(ReasonLeaseLost, ann, NoEpoch, Taken{Lease: Lease{Holder: "node/1", Until: s.now}})
	s.is(Ready)
}

func TestWritesOfARunAskTheStoreForItsEpoch(t *testing.T) {
	s := inline(t)
	for _, e := range []Event{Asked{Question: question("k", "1")}, charge, Reported{Progress{Done: 1}}, Paused{}, Finished{}, Stopped{Why: WhyLeft}} {
		change, err := s.decide("call", s.runner(), 1, e)
		if err != nil || change.Epoch != 1 {
			t.Errorf("%T: %v, epoch %d", e, err, change.Epoch)
		}
	}
	for _, e := range []Event{CancelAsked{}, TimePassed{}, Refused{Reason: "x"}} {
		if change, _ := s.decide("call", ann, NoEpoch, e); change.Epoch != 0 {
			t.Errorf("%T is no write of a run", e)
		}
	}
	// The store has nothing to compare with when the call is made by the same change.
	o := opening("new", ann)
	o.Lease = s.lease()
	change, err := s.decide("new", s.runner(), 1, o, charge)
	if err != nil || change.Epoch != 0 {
		t.Errorf("%v, epoch %d", err, change.Epoch)
	}
}

func TestTwoDecisionsOfOneCallShareNothing(t *testing.T) {
	s := task(t)
	s.ask(asking(Who{Roles: []string{"finance"}, Count: 3}))
	c := s.call()
	c.Questions[0].Answers = make([]Answer, 0, 4) // room to write into
	first, _ := Decide(c, bob, NoEpoch, s.now, Responded{WireKey: "k", Action: Accept})
	if _, err := Decide(c, cid, NoEpoch, s.now, Responded{WireKey: "k", Action: Accept}); err != nil {
		t.Fatal(err)
	}
	s.same("answer", first.After.Question("k").Latest().By.Subject, "bob")

	s = task(t)
	for _, key := range []string{"k", "l"} {
		s.run(Asked{Question: question(key, "1")})
		s.yesTo(key, ann)
	}
	s.run(send)
	c = s.call()
	c.Effects[0].Relied = make([]string, 0, 4)
	began := func(key string) Change {
		change, err := Decide(c, s.runner(), c.Epoch, s.now, EffectBegan{Name: "send", Repeatable: true, Relied: []Reliance{{Key: key, Digest: sum(question(key, "1"))}}})
		if err != nil {
			t.Fatal(err)
		}
		return change
	}
	k := began("k")
	began("l")
	s.same("relied", k.After.Effects[0].Relied[0], "k")
}
