package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// Chapters are the whole history.
var Chapters = []Chapter{
	{"rounds", "refund", rounds}, {"changed facts", "refund", changed}, {"noes", "wipe", noes}, {"too late", "wipe", tooLate},
	{"a task", "job", aTask}, {"stopped", "job", stopped}, {"stopped while it runs", "long", stoppedRunning},
	{"held", "wipe", held}, {"unfit", "wipe", unfit}, {"not done", "wipe", notDone}, {"handed back", "long", handedBack}, {"left", "shy", left}, {"died", "long", died},
	{"evidence", "job", evidence}, {"promoted", "late", promoted}, {"asked first", "firm", askedFirst}, {"past its deadline", "brief", pastDeadline},
	{"abandoned", "job", abandoned}, {"run too often", "first", runTooOften}, {"crash loop", "long", crashLoop},
	{"purged", "job", purged}, {"a board", "board", board}, {"read-only", "look", readOnly},
}

func rounds(w *World) {
	r := w.call("ann", "refund", "o1")
	if stolen := w.try1(r, "bob"); stolen.Code != -32602 || stolen.Reason != "invalid_request_state" {
		stolen.fatal("another principal uses a state")
	}
	done := r.answer(accept)
	done.ends("completed")
	if stolen := done.again("bob"); stolen.Code != -32602 || stolen.Reason != "invalid_request_state" {
		stolen.fatal("another principal uses a round")
	}
	same := done.again("ann").await("completed")
	if first := done.await("completed"); same.sum() != first.sum() {
		same.fatal("the same round is answered otherwise: " + first.raw)
	}
	if other := r.answer(decline); other.Code != -32602 || other.Reason != "invalid_request_state" {
		other.fatal("other answers are taken")
	}
	w.did("o1", 1)
	// The same thing again, by the same owner and by another.
	second := w.send("ann", "tools/call", "refund", map[string]any{"arguments": map[string]any{"order": "o1"}, "key": "second"})
	second.answer(accept).ends("completed")
	w.did("o1", 1)
	if r := w.call("bob", "refund", "o1").answer(accept).await("already_done"); r.status() != "already_done" && (w.Faithful || r.status() == "completed" && w.far.did("o1") > 1) {
		r.fatal("another owner does it")
	}
}

// try1 sends what answers r, as somebody else.
func (w *World) try1(r reply, who string) reply {
	w.T.Helper()
	r.who = who
	return r.answer(accept)
}

func changed(w *World) {
	r := w.call("ann", "refund", "o2")
	w.far.change()
	r = r.answer(accept)
	if r.status() == "input_required" { // asked anew, for what is so now
		r = r.answer(accept)
	} else if w.Faithful {
		r.fatal("it is not asked again")
	}
	r.ends("completed")
	w.did("o2", 1)
}

func noes(w *World) {
	w.call("ann", "wipe", "no1").answer(decline).ends("declined")
	w.call("ann", "wipe", "no2").answer(dismiss).ends("dismissed")
	w.did("no1", 0)
	w.did("no2", 0)
}

func tooLate(w *World) {
	r := w.call("ann", "wipe", "late1")
	time.Sleep(16 * time.Minute)
	r.answer(accept).ends("expired")
	w.did("late1", 0)
}

func aTask(w *World) {
	r := w.call("ann", "job", "t1").await("input_required")
	if f := w.send("bob", "tasks/get", r.task(), nil); f.Code != -32602 {
		f.fatal("another principal sees a task")
	}
	end := r.answer(accept).ends("completed")
	w.did("t1", 1)
	// What comes too late is acknowledged, and changes nothing.
	w.send("ann", "tasks/update", r.task(), map[string]any{"inputResponses": map[string]any{"go": map[string]any{"action": decline}}})
	w.send("ann", "tasks/cancel", r.task(), nil)
	if now := end.poll(); now.sum() != end.sum() {
		now.fatal("it has changed after its end: " + end.raw)
	}
}

func stopped(w *World) {
	r := w.call("ann", "job", "s1").await("input_required")
	w.send("ann", "tasks/cancel", r.task(), nil)
	r.poll().ends("cancelled")
	w.did("s1", 0)
}

// begun waits until an order was begun, or cannot be any more.
func (w *World) begun(r reply, order string) {
	w.T.Helper()
	w.until(order+" is begun", func() bool {
		w.resolve(r.id())
		c := w.stored(r.id())
		return w.far.did(order) > 0 || c != nil && c.State == record.Ended
	})
	time.Sleep(time.Second)
}

func stoppedRunning(w *World) {
	open := w.far.shut()
	defer open()
	r := w.call("ann", "long", "s2")
	w.begun(r, "s2")
	w.send("ann", "tasks/cancel", r.task(), nil)
	r.poll().ends("cancelled")
	w.did("s2", 1) // its first half
}

func held(w *World) {
	for _, m := range []mood{lostAck, lostAsk} {
		order := fmt.Sprint("h", m)
		w.far.expect(order, m)
		w.call("ann", "wipe", order).answer(accept).ends("completed")
		w.did(order, 1)
	}
}

// unfit: a person says what no handler can use, to a process that cannot know it.
func unfit(w *World) {
	w.far.expect("u1", lostAck)
	r := w.call("ann", "wipe", "u1").answer(accept)
	w.restart()
	time.Sleep(time.Second) // until it runs
	w.resolveAs(r.id(), json.RawMessage("7"))
	r.ends("completed")
	w.did("u1", 1)
}

func notDone(w *World) {
	w.far.expect("n1", refuses)
	w.call("ann", "wipe", "n1").answer(accept).ends("completed")
	w.did("n1", 1)
}

func handedBack(w *World) {
	open := w.far.shut()
	defer open()
	r := w.call("ann", "long", "b1")
	w.begun(r, "b1")
	w.restart()
	open()
	r.poll().ends("completed")
	w.did("b1", 2)
}

func left(w *World) {
	open := w.far.shut()
	defer open()
	r := w.call("ann", "shy", "l1")
	ctx, leave := context.WithCancel(w.T.Context())
	params := map[string]any{"requestState": r.Result["requestState"], "inputResponses": map[string]any{"go": map[string]any{"action": accept, "content": map[string]any{"confirm": true}}}}
	for k, v := range r.params {
		params[k] = v
	}
	time.AfterFunc(time.Second, leave)
	w.try(ctx, w.alive(), "ann", "tools/call", "shy", params)
	time.Sleep(time.Second)
	open()
	r.answer(accept).ends("completed")
	w.did("l1", 1)
}

func died(w *World) {
	open := w.far.shut()
	defer open()
	r := w.call("ann", "long", "d1")
	w.begun(r, "d1")
	w.crash()
	open()
	r.poll().ends("completed")
	w.did("d1", 2)
}

// evidence: a run loses its lease while the far side takes its time, and its
// effect is held by the time that it answers.
func evidence(w *World) {
	w.far.expect("e1", slow)
	r := w.call("ann", "job", "e1").await("input_required")
	s := w.alive().store
	s.LetLeasesLapse(true)
	r = r.answer(accept)
	time.Sleep(45 * time.Second)
	s.LetLeasesLapse(false)
	r.ends("completed")
	w.did("e1", 1)
}

func promoted(w *World) {
	open := w.far.shut()
	time.AfterFunc(10*time.Second, open)
	r := w.call("ann", "late", "p1")
	if w.Faithful && w.deaths == 0 && r.task() == "" {
		r.fatal("it does not become a task")
	}
	r.ends("completed")
	w.did("p1", 2)
}

func askedFirst(w *World) {
	r := w.call("ann", "firm", "f1")
	if r.status() != "input_required" || r.task() != "" {
		r.fatal("it is not asked in a round")
	}
	r.answer(accept).ends("completed")
	w.did("f1", 1)
}

func pastDeadline(w *World) {
	r := w.call("ann", "brief", "x1").await("input_required")
	time.Sleep(61 * time.Minute)
	r.poll().ends("failed")
}

func abandoned(w *World) {
	r := w.call("ann", "job", "a1").await("input_required")
	w.allow(func(a tallystick.Access) error {
		if a.Stored && a.Verb == tallystick.Resume {
			return errors.New("not any more")
		}
		return nil
	})
	defer w.allow(nil)
	r.answer(accept).ends("failed")
	w.did("a1", 0)
}

func runTooOften(w *World) {
	r := w.call("ann", "first", "m1").await("input_required")
	if r.status() == "input_required" { // else its one run has died
		r = r.answer(accept)
	}
	r.ends("failed")
	w.did("m1", 0)
}

func crashLoop(w *World) {
	open := w.far.shut()
	defer open()
	r := w.call("ann", "long", "c1")
	w.begun(r, "c1")
	for range 10 {
		w.alive()
		if c := w.stored(r.id()); c != nil && c.State == record.Ended {
			break
		}
		w.crash()
		w.alive()
		time.Sleep(time.Second)
	}
	r.poll().ends("failed")
}

func purged(w *World) {
	r := w.call("ann", "job", "g1").await("input_required")
	w.send("ann", "tasks/cancel", r.task(), nil)
	r.poll().await("cancelled")
	time.Sleep(26 * time.Hour) // past its deadline too, until which it is known to be gone
	w.until("it is purged", func() bool { return w.stored(r.task()) == nil })
	gone, absent := r.poll(), w.send("ann", "tasks/get", "nothing", nil)
	if gone.Code != -32602 || gone.Code != absent.Code {
		gone.fatal("what is purged and what never was are told apart")
	}
}

func board(w *World) {
	r := w.call("ann", "board", "v1")
	d := tallystick.Decision{CallID: r.id(), Key: "go", Accept: true}
	w.until("the board is asked", func() bool {
		c := w.stored(r.id())
		return c != nil && (c.HasOpen() || c.State == record.Ended)
	})
	if err := w.decide("ann", d); !errors.Is(err, tallystick.ErrNoQuestion) {
		r.fatal("its requester decides")
	}
	for _, who := range []string{"eve", "eve", "dan"} {
		if err := w.decide(who, d); err != nil && !isNot(err) {
			r.fatal(who + ": " + err.Error())
		}
	}
	r.poll().ends("completed")
	w.did("v1", 1)
}

func readOnly(w *World) {
	before := len(w.Tap.Writes())
	r := w.send("ann", "tools/call", "look", map[string]any{"arguments": map[string]any{"order": "r1"}})
	w.proc.stop() // another process, and the same keys
	w.proc = nil
	if r = r.answer(accept); r.status() != "completed" {
		r.fatal("a carried state does not open after a restart")
	}
	for _, wr := range w.Tap.Writes()[before:] {
		if wr.Change.ID != "" && wr.Change.After != nil && wr.Change.After.Action.Name == "look" {
			r.fatal("a read-only call is written")
		}
	}
}
