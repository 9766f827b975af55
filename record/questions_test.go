package record_test

import (
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/tallystick/tallystick/record"
)

func TestAnswerToTheExactQuestionCounts(t *testing.T) {
	s := task(t)
	s.ask(question("k", "1"))
	s.is(Waiting)
	s.yes(ann)
	s.is(Ready)
	s.take()
	found := s.call().Look("k", sum(question("k", "1"))).Found
	if found == nil || found.State != Answered || string(found.Latest().Value) != `{"confirm":true}` || found.Latest().By.Subject != "ann" {
		t.Fatalf("found %+v", found)
	}
}

func TestAnswerToOtherFactsIsVoid(t *testing.T) {
	s := task(t)
	s.ask(question("k", "1"))
	s.yes(ann)
	s.take()
	look := s.call().Look("k", sum(question("k", "2")))
	if look.Found != nil || look.Stale == nil || look.Stale.WireKey != "k" {
		t.Fatalf("other facts found %+v", look)
	}
	// The old must be void before the new can go out.
	s.runRefused(ReasonWrongState, Asked{Question: question("k", "2")})
	s.run(Voided{WireKey: "k"}, Asked{Question: question("k", "2")}, Paused{})
	s.same("old", s.state("k"), Void)
	s.same("new", s.state("k~2"), Open)
	// The old wire key is retired.
	s.refuse(ReasonNotOpen, ann, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.yesTo("k~2", ann)
	s.is(Ready)
}

func TestWhatAQuestionIsMakesItsDigest(t *testing.T) {
	base := question("k", "1")
	for name, change := range map[string]func(*Question){
		"key": func(q *Question) { q.Key = "l" }, "kind": func(q *Question) { q.Kind = KindURL },
		"message": func(q *Question) { q.Message = "?" }, "request": func(q *Question) { q.Request = []byte("{}") },
		"facts": func(q *Question) { q.Facts = nil }, "roles": func(q *Question) { q.Who.Roles = []string{"finance"} },
		"subjects": func(q *Question) { q.Who.Subjects = []string{"finance"} }, "requester": func(q *Question) { q.Who.NotRequester = true },
		"channel": func(q *Question) { q.Who.OutOfBand = true }, "count": func(q *Question) { q.Who.Count = 2 },
		"confirm": func(q *Question) { q.Confirm = true },
	} {
		q := base
		change(&q)
		if q.Sum() == base.Sum() {
			t.Errorf("%s makes no difference", name)
		}
	}
	q := base
	q.Within, q.Who.Count = time.Hour, 1
	if q.Sum() != base.Sum() {
		t.Error("time, or a count of one that is said aloud, makes a difference")
	}
	roles, subjects := base, base
	roles.Who.Roles, subjects.Who.Subjects = []string{"x"}, []string{"x"}
	if roles.Sum() == subjects.Sum() {
		t.Error("a role passes for a subject")
	}
}

func TestTheLawItselfDigestsTheQuestion(t *testing.T) {
	s := task(t)
	q := question("k", "1")
	q.Digest = sum(question("k", "2")) // a lie
	s.ask(q)
	s.same("digest", s.call().Question("k").Digest, sum(question("k", "1")))
}

func TestAskingAgainWhatIsOpenIsRefused(t *testing.T) {
	s := task(t)
	s.run(Asked{Question: question("k", "1")})
	s.runRefused(ReasonWrongState, Asked{Question: question("k", "1")})
}

func TestKeysThatWireKeysCouldClashWithAreRefused(t *testing.T) {
	s := task(t)
	for _, key := range []string{"", "k~2", "~", strings.Repeat("k", 129)} {
		s.runRefused(ReasonUnknownKey, Asked{Question: question(key, "1")})
	}
}

func TestThreeVoidsFailAndNameTheKey(t *testing.T) {
	s := task(t)
	s.ask(question("k", "0"))
	key := "k"
	for i, next := range []string{"1", "2"} {
		s.yesTo(key, ann)
		s.take()
		s.run(Voided{WireKey: key}, Asked{Question: question("k", next)}, Paused{})
		key = "k~" + string(rune('2'+i))
	}
	s.yesTo(key, ann)
	s.take()
	s.runRefused(ReasonUnstable, Voided{WireKey: key}, Asked{Question: question("k", "3")})
	s.same("key", s.trail[len(s.trail)-1].Key, "k")
	s.same("nothing else changed", s.state("k~3"), Answered)
}

func TestVoidsWithoutAnAnswerAreNotCounted(t *testing.T) {
	s := task(t)
	s.run(Asked{Question: question("k", "0")})
	for _, key := range []string{"k", "k~2", "k~3", "k~4"} {
		s.run(Voided{WireKey: key}, Asked{Question: question("k", key)})
	}
	s.run(Paused{})
	s.yesTo("k~5", ann)
	s.take()
	s.run(Voided{WireKey: "k~5"}) // the first that was answered
	s.same("last", s.state("k~5"), Void)
}

func TestWhatIsVoidSpentOrExpiredIsNotVoided(t *testing.T) {
	s := task(t)
	s.runRefused(ReasonNotOpen, Voided{WireKey: "none"})
	s.run(Asked{Question: question("k", "1")}, Voided{WireKey: "k"})
	s.runRefused(ReasonNotOpen, Voided{WireKey: "k"})

	s = spent(t)
	s.runRefused(ReasonNotOpen, Voided{WireKey: "k"})

	s = task(t)
	s.ask(question("k", "1"))
	s.now = s.now.Add(15 * time.Minute)
	s.pass()
	s.take()
	s.runRefused(ReasonNotOpen, Voided{WireKey: "k"})
}

// spent is a task in which an effect is done on the answer to k.
func spent(t *testing.T) *scene {
	t.Helper()
	s := task(t)
	s.ask(question("k", "1"))
	s.yes(ann)
	s.take()
	s.run(EffectBegan{Name: "charge", Relied: []Reliance{{Key: "k", Digest: sum(question("k", "1"))}}})
	s.run(charged)
	return s
}

func TestSpentAnswerSurvivesChangedFacts(t *testing.T) {
	s := spent(t)
	s.died()
	s.take()
	found := s.call().Look("k", sum(question("k", "the effect changed it"))).Found
	if found == nil || found.State != Answered {
		t.Fatalf("found %+v", found)
	}
	// Another effect may rest on it too.
	s.run(EffectBegan{Name: "send", Relied: []Reliance{{Key: "k", Digest: "whatever is asked now"}}})
}

func TestAnswerSpentOnWhatDidNotHappenCountsOnlyForItsOwnQuestion(t *testing.T) {
	relied := []Reliance{{Key: "k", Digest: sum(question("k", "1"))}}
	for name, undo := range map[string]func(*scene){
		"the run says so": func(s *scene) {
			s.run(EffectEnded{Name: "charge", State: EffectUndone})
			s.died()
		},
		"a person says so": func(s *scene) {
			s.died()
			s.must(bob, NoEpoch, EffectResolved{Name: "charge"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := task(t)
			s.ask(question("k", "1"))
			s.yes(ann)
			s.take()
			s.run(EffectBegan{Name: "charge", Relied: relied})
			undo(s)
			s.take()
			if look := s.call().Look("k", sum(question("k", "1"))); look.Found == nil {
				t.Fatal("the answer no longer counts for its question")
			}
			if look := s.call().Look("k", sum(question("k", "ten times the price"))); look.Found != nil {
				t.Fatal("the answer counts for other facts, though nothing has happened on it")
			}
			s.runRefused(ReasonUnanswered, EffectBegan{Name: "charge", Relied: []Reliance{{Key: "k", Digest: sum(question("k", "ten times the price"))}}})
			s.run(EffectBegan{Name: "charge", Relied: relied})
		})
	}
	t.Run("but not while another effect rests on it", func(t *testing.T) {
		s := spent(t)
		s.run(EffectBegan{Name: "send", Relied: relied}, EffectEnded{Name: "send", State: EffectUndone})
		if look := s.call().Look("k", sum(question("k", "2"))); look.Found == nil {
			t.Fatal("the charge changed the facts, and the answer is lost")
		}
	})
}

func TestExpiryHoldsForTheKeyWhateverIsAsked(t *testing.T) {
	s := task(t)
	s.ask(question("k", "1"))
	s.same("due", s.call().Due(), start.Add(15*time.Minute))
	s.now = start.Add(15 * time.Minute)
	s.refuse(ReasonDeadline, ann, NoEpoch, Responded{WireKey: "k", Action: Accept}) // the clock decides, not who looks first
	s.pass()
	s.same("question", s.state("k"), Lapsed)
	s.is(Ready)
	s.take()
	if look := s.call().Look("k", sum(question("k", "2"))); look.Found == nil || look.Found.State != Lapsed {
		t.Fatalf("found %+v", look)
	}
	s.runRefused(ReasonWrongState, Asked{Question: question("k", "2")})
}

func TestQuestionExpiresWithItsCallAtTheLatest(t *testing.T) {
	for _, within := range []time.Duration{2 * time.Hour, math.MaxInt64} {
		s := task(t)
		q := question("k", "1")
		q.Within = within
		s.ask(q)
		s.same("expires", s.call().Question("k").Expires, start.Add(time.Hour))
		s.same("the state too", s.call().Expires(), start.Add(time.Hour))
	}
	s := task(t)
	q := question("k", "1")
	q.Within = -time.Hour
	s.ask(q)
	s.pass()
	s.same("without time", s.state("k"), Lapsed)
}

func TestStateOpensAsLongAsTheLatestQuestion(t *testing.T) {
	s := inline(t)
	s.same("none open", s.call().Expires(), s.call().Deadline)
	long := question("l", "1")
	long.Within = 20 * time.Minute
	s.run(Asked{Question: question("k", "1")}, Asked{Question: long}, Paused{})
	s.same("latest", s.call().Expires(), start.Add(20*time.Minute))
	s.same("due with the first", s.call().Due(), start.Add(15*time.Minute))
}

// case S42
func TestWhoMayAnswer(t *testing.T) {
	relayed := func(a Actor) Actor { return by(a, ChannelRound) }
	anon := Actor{Principal: Principal{Tenant: "acme", Client: "laptop"}, Channel: ChannelRound}
	for name, tt := range map[string]struct {
		who   Who
		by    Actor
		owner Actor
		want  bool
	}{
		"the requester":                             {Who{}, ann, ann, true},
		"the requester through another client":      {Who{}, annElse, ann, true},
		"somebody else of the tenant":               {Who{}, bob, ann, false},
		"the same subject of another issuer":        {Who{}, annOther, ann, false},
		"another tenant":                            {Who{Roles: []string{"finance"}}, eve, ann, false},
		"another tenant, by subject":                {Who{Subjects: []string{"eve"}}, eve, ann, false},
		"a holder of the role":                      {Who{Roles: []string{"legal", "finance"}}, bob, ann, true},
		"no holder of the role":                     {Who{Roles: []string{"legal"}}, bob, ann, false},
		"the named":                                 {Who{Subjects: []string{"bob"}}, bob, ann, true},
		"the named or holders of the role":          {Who{Subjects: []string{"dan"}, Roles: []string{"finance"}}, bob, ann, true},
		"the requester who is not named":            {Who{Subjects: []string{"bob"}}, ann, ann, false},
		"the requester who is named":                {Who{Subjects: []string{"ann"}}, ann, ann, true},
		"anybody but the requester":                 {Who{NotRequester: true}, bob, ann, true},
		"never the requester":                       {Who{NotRequester: true}, ann, ann, false},
		"never the requester, elsewhere":            {Who{NotRequester: true, Roles: []string{"finance"}}, annElse, ann, false},
		"never the requester, though named":         {Who{NotRequester: true, Subjects: []string{"ann"}}, ann, ann, false},
		"out of band, relayed":                      {Who{OutOfBand: true}, relayed(ann), ann, false},
		"out of band, decided":                      {Who{OutOfBand: true}, ann, ann, true},
		"out of band, relayed by a holder":          {Who{OutOfBand: true, Roles: []string{"finance"}}, by(bob, ChannelTask), ann, false},
		"the anonymous requester":                   {Who{}, nobody, nobody, true},
		"an anonymous of another client":            {Who{}, anon, nobody, false},
		"an anonymous is not somebody else":         {Who{NotRequester: true}, anon, nobody, false},
		"an anonymous has no roles":                 {Who{Roles: []string{"r"}}, Actor{Principal: nobody.Principal, Roles: []string{"r"}}, nobody, false},
		"an anonymous is not the empty subject":     {Who{Subjects: []string{""}}, nobody, nobody, false},
		"a person for an anonymous requester":       {Who{}, ann, nobody, false},
		"a person besides an anonymous requester":   {Who{NotRequester: true}, bob, nobody, true},
		"the system is nobody":                      {Who{NotRequester: true}, System, ann, false},
		"the system is nobody of no tenant, either": {Who{NotRequester: true}, System, Actor{Principal: Principal{Subject: "x"}}, false},
		"the requester's own run":                   {Who{}, by(ann, ChannelRun), ann, false},
		"the system, for nobody in particular":      {Who{}, System, Actor{}, false},
	} {
		if got := tt.who.Allows(tt.by, tt.owner.Principal); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestNotRequesterHoldsThroughAnotherClient(t *testing.T) {
	s := task(t)
	s.ask(asking(Who{Roles: []string{"finance"}, NotRequester: true}))
	s.refuse(ReasonNotAllowed, annElse, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.refuse(ReasonNotAllowed, eve, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.yes(bob)
	s.is(Ready)
}

// case S07
func TestOutOfBandCountsWhatIsDecidedOnly(t *testing.T) {
	s := task(t)
	s.ask(asking(Who{OutOfBand: true}))
	for _, ch := range []Channel{ChannelRound, ChannelTask, ChannelLive, ChannelRun} {
		s.refuse(ReasonNotAllowed, by(ann, ch), NoEpoch, Responded{WireKey: "k", Action: Accept})
	}
	s.yes(ann)
}

func TestQuorumNeedsDifferentPeople(t *testing.T) {
	s := task(t)
	s.ask(asking(Who{Roles: []string{"finance"}, Count: 2}))
	s.yes(bob)
	s.same("one of two", s.state("k"), Open)
	s.is(Waiting)
	elsewhere := bob
	elsewhere.Client, elsewhere.Channel = "phone", ChannelTask
	s.refuse(ReasonSamePerson, elsewhere, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.refuse(ReasonSamePerson, bob, NoEpoch, Responded{WireKey: "k", Action: Decline})
	s.yes(cid)
	s.same("two", s.state("k"), Answered)
	s.same("the completing answer", s.call().Question("k").Latest().By.Subject, "cid")
	s.same("accepts", s.call().Question("k").Accepts(), 2)
}

func TestAnAnonymousRequesterIsNoTwoPeople(t *testing.T) {
	s := &scene{newBook(t), "call"}
	s.must(nobody, NoEpoch, opening("call", nobody))
	s.take()
	s.ask(asking(Who{Count: 2}))
	s.yes(nobody)
	s.refuse(ReasonSamePerson, nobody, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.same("question", s.state("k"), Open)
}

func TestOneNoEndsAQuorum(t *testing.T) {
	for action, want := range map[AnswerAction]QuestionState{Decline: Declined, Dismiss: Dismissed} {
		s := task(t)
		s.ask(asking(Who{Roles: []string{"finance"}, Count: 3}))
		s.yes(bob)
		s.must(cid, NoEpoch, Responded{WireKey: "k", Action: action, Value: []byte("not kept")})
		s.same("question", s.state("k"), want)
		s.same("value", string(s.call().Question("k").Latest().Value), "")
		s.is(Ready)
		s.refuse(ReasonNotOpen, bob, NoEpoch, Responded{WireKey: "k", Action: Accept})
	}
}

func TestAQuorumOfMoreThanThereAreExpires(t *testing.T) {
	s := task(t)
	s.ask(asking(Who{Subjects: []string{"bob"}, Count: 2}))
	s.yes(bob)
	s.now = s.call().Due()
	s.pass()
	s.same("question", s.state("k"), Lapsed)
	s.is(Ready)
}

func TestAnswersThatDoNotCount(t *testing.T) {
	s := task(t)
	s.ask(question("k", "1"))
	s.refuse(ReasonUnknownKey, ann, NoEpoch, Responded{WireKey: "other", Action: Accept})
	s.refuse(ReasonWrongState, ann, NoEpoch, Responded{WireKey: "k", Action: "maybe"})
	s.refuse(ReasonNotAllowed, bob, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.same("refusals on record", s.audit("refused"), 3)
	if s.call().Question("k").Latest() != nil {
		t.Fatal("an answer was kept")
	}
}

func TestAnswersAfterACancelDoNotCount(t *testing.T) {
	s := task(t)
	s.run(Asked{Question: question("k", "1")})
	s.must(ann, NoEpoch, CancelAsked{})
	s.refuse(ReasonCancelled, ann, NoEpoch, Responded{WireKey: "k", Action: Accept})
}

func TestAnswersPastTheDeadlineDoNotCount(t *testing.T) {
	s := task(t)
	q := question("k", "1")
	q.Within = 2 * time.Hour
	s.ask(q)
	s.now = start.Add(time.Hour)
	s.refuse(ReasonDeadline, ann, NoEpoch, Responded{WireKey: "k", Action: Accept})
}

func TestWhoIsForTheRequesterAlone(t *testing.T) {
	for _, who := range []Who{{}, {OutOfBand: true}, {Count: 1}} {
		if !who.Requester() || who.Needed() != 1 {
			t.Errorf("%+v", who)
		}
	}
	for _, who := range []Who{{Roles: []string{"r"}}, {Subjects: []string{"s"}}, {NotRequester: true, Count: -1}} {
		if who.Requester() || who.Needed() != 1 {
			t.Errorf("%+v", who)
		}
	}
}
