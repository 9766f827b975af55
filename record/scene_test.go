package record_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/tallystick/tallystick/record"
)

const lease = 10 * time.Second

// A scene is one call of Ann's and what happens to it.
type scene struct {
	*book
	id string
}

func (s *scene) call() *Call { return s.calls[s.id] }

// opening is a call of an hour's life.
func opening(id string, owner Actor) Opened {
	return Opened{Call: &Call{
		ID: id, Owner: owner.Principal, Roles: owner.Roles, Action: Action{Method: "tools/call", Name: "refund", ArgsDigest: "args"},
		Args: []byte(`{}`), Deadline: start.Add(time.Hour), Retention: time.Hour,
	}}
}

// inline opens a call that runs inside its first request.
func inline(t *testing.T) *scene {
	t.Helper()
	s := &scene{newBook(t), "call"}
	o := opening(s.id, ann)
	o.Lease = s.lease()
	s.must(ann, NoEpoch, o)
	return s
}

// keyed opens a call like inline, with an idempotency key to come back with.
func keyed(t *testing.T) *scene {
	t.Helper()
	s := &scene{newBook(t), "call"}
	o := opening(s.id, ann)
	o.Lease, o.Key = s.lease(), KeyMark(ann.Principal, "refund", "key")
	s.must(ann, NoEpoch, o)
	return s
}

// task opens a call that workers run, and takes it.
func task(t *testing.T) *scene {
	t.Helper()
	s := &scene{newBook(t), "call"}
	o := opening(s.id, ann)
	o.Call.Task = true
	s.must(ann, NoEpoch, o)
	s.take()
	return s
}

func (s *scene) lease() Lease { return Lease{Holder: "node/1", Until: s.now.Add(lease)} }

func (s *scene) must(who Actor, epoch int64, events ...Event) {
	s.Helper()
	if err := s.do(s.id, who, epoch, events...); err != nil {
		s.Fatalf("%T: %v", events[0], err)
	}
}

// refuse checks that the events are refused, and why.
func (s *scene) refuse(want Reason, who Actor, epoch int64, events ...Event) {
	s.Helper()
	err := s.do(s.id, who, epoch, events...)
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != want {
		s.Fatalf("%T: got %v, want the refusal %q", events[0], err, want)
	}
}

// run lets the current run say something.
func (s *scene) run(events ...Event) {
	s.Helper()
	s.must(s.runner(), s.call().Epoch, events...)
}

func (s *scene) runRefused(want Reason, events ...Event) {
	s.Helper()
	s.refuse(want, s.runner(), s.call().Epoch, events...)
}

func (s *scene) runner() Actor {
	return Actor{Principal: s.call().Owner, Roles: s.call().Roles, Channel: ChannelRun}
}

func (s *scene) take() { s.Helper(); s.must(System, NoEpoch, Taken{Lease: s.lease()}) }
func (s *scene) pass() { s.Helper(); s.must(System, NoEpoch, TimePassed{}) }
func (s *scene) died() {
	s.Helper()
	s.now = s.now.Add(lease)
	s.must(System, NoEpoch, Stopped{Why: WhyDied})
}
func (s *scene) retry(n int)         { s.Helper(); s.must(ann, NoEpoch, s.retrying(n, "")) }
func (s *scene) is(want State)       { s.Helper(); s.same("state", s.call().State, want) }
func (s *scene) ask(q Question)      { s.Helper(); s.run(Asked{Question: q}, Paused{}) }
func (s *scene) yes(who Actor)       { s.Helper(); s.yesTo("k", who) }
func (s *scene) begin(e EffectBegan) { s.Helper(); e.Mark = s.markOf(e); s.run(e) }

func (s *scene) retrying(n int, answers string) Taken {
	return Taken{Lease: s.lease(), Retry: &Retry{N: n, Answers: answers}}
}

func (s *scene) yesTo(key string, who Actor) {
	s.Helper()
	s.must(who, NoEpoch, Responded{WireKey: key, Action: Accept, Value: []byte(`{"confirm":true}`)})
}

func (s *scene) markOf(e EffectBegan) *Mark {
	return s.mark(SubjectMark(s.call().Owner.Tenant, e.Name, e.Subject))
}

func (s *scene) same(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: got %v, want %v\n%s", what, got, want, s.json(s.call()))
	}
}

// ended checks how the call has ended; word is that of its error.
func (s *scene) ended(want Outcome, word string) {
	s.Helper()
	s.is(Ended)
	got := ""
	if s.call().Error != nil {
		got = s.call().Error.Outcome
	}
	s.same("outcome", string(s.call().Outcome)+" "+got, string(want)+" "+word)
}

// audit counts the entries of that event.
func (s *scene) audit(event string) int {
	n := 0
	for _, e := range s.trail {
		if e.Event == event {
			n++
		}
	}
	return n
}

func (s *scene) state(key string) QuestionState { return s.call().Question(key).State }

func (s *scene) effect(name, subject string) EffectState {
	f := s.call().Effect(name, subject)
	if f == nil {
		return ""
	}
	return f.State
}

// question is one that Ann is asked.
func question(key, facts string) Question {
	return Question{Key: key, Kind: KindForm, Message: "Go ahead?", Facts: []byte(facts), Within: 15 * time.Minute}
}

func asking(who Who) Question {
	q := question("k", "1")
	q.Who = who
	return q
}

func sum(q Question) string { return q.Sum() }

var (
	charge  = EffectBegan{Name: "charge"}
	refund  = EffectBegan{Name: "refund", Subject: "order 1"}
	send    = EffectBegan{Name: "send", Repeatable: true}
	charged = EffectEnded{Name: "charge", State: EffectDone, Result: []byte(`1`)}
)
