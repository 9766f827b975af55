package tallysticktest

import (
	"fmt"

	"github.com/tallystick/tallystick"
)

// A Trial is one life of what a [CrashEverywhere] tests.
type Trial struct {
	// Server adds the tools, as for [New].
	Server func(s *tallystick.Server)
	// Options as for [New]; nil is fine.
	Options *tallystick.Options
	// Scenario is what clients and people do. It sees no crash: a request whose
	// response was lost is sent again, with the same state and the same answers,
	// until it has one. It must come to its end wherever the server dies; in
	// particular an answer may come as "pending" where it used to be complete,
	// since a call whose run has died is gone on with in the background: see
	// [Result.Await].
	Scenario func(b *Bench)
	// Check looks at the far side once nothing runs any more.
	Check func(b *Bench)
}

// CrashEverywhere runs a scenario once as it is, and then again and again. In
// the n-th of these the server dies at its n-th write to the store: in one pass
// just before that is applied, in another just after, before anybody hears of
// it. Each time another server starts on the same store, clients repeat what got
// no response, and in the end Check is called. It stops at the first failure,
// and says at which write it was and what the audit trail is.
//
// trial is called for each life, and makes a fresh far side for it: what a
// crash does not undo, such as a ledger, is made by trial and used by its
// Server. Scenarios must be the same each time; they may use their own test's
// TB.
//
// A first request that is repeated makes a second call, unless it has an
// idempotency key ([Caller.CallKeyed]) or its effect a Subject. That this does
// no harm is what the check is for.
func CrashEverywhere(t TB, trial func() Trial) {
	t.Helper()
	writes, _ := live(t, trial(), fault{})
	if t.Failed() {
		return
	}
	crashes := 0
	for _, after := range []bool{false, true} {
		// A life after a crash may write more than an undisturbed one, which does
		// not matter here: a life that did not get as far as its n-th write has
		// had none to die at.
		for n := 1; ; n++ {
			if n > 4*writes+100 {
				t.Fatalf("there is no end to the writes: the scenario is not the same each time")
			}
			_, died := live(t, trial(), fault{write: n, after: after})
			if t.Failed() {
				return
			}
			if !died {
				break
			}
			crashes++
		}
	}
	t.Logf("%d writes; survived %d crashes", writes, crashes)
}

// live runs a trial with one fault.
func live(t TB, trial Trial, f fault) (writes int, died bool) {
	t.Helper()
	failed := t.Failed()
	b := newBench(t, trial.Server, trial.Options, f)
	defer b.close()
	defer func() { // also when the scenario ends the test
		if t.Failed() && !failed {
			t.Logf("%s; the audit trail:\n%s", f, b.Trail())
		}
	}()
	if trial.Scenario != nil {
		trial.Scenario(b)
	}
	b.Quiet()
	if trial.Check != nil {
		trial.Check(b)
	}
	return b.world.history()
}

func (f fault) String() string {
	switch {
	case f.write == 0:
		return "no crash"
	case f.after:
		return fmt.Sprintf("the server was killed just after write %d", f.write)
	}
	return fmt.Sprintf("the server was killed just before write %d", f.write)
}
