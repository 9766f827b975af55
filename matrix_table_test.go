package tallystick_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Who may do what: what each of these people gets of each method, whatever the
// state of the call. Written by hand, from what the documents promise; nothing
// of it is computed. Words:
//
//	none         the one answer for what is foreign, purged or absent
//	bad-state    the one answer for a state that does not open or fit
//	not-allowed  that the caller may not do this, and nothing of the call
//	401          the token has expired
//	own          the caller's own call, which has nothing to do with the other
//	anew         the call begins, and asks its first question
//	nothing      Waiting lists nothing
//	-            there is no such cell: see noSuchCell
//
// and for who is allowed: the status that is shown, acked, settled (Decide says
// that it was), decided, listed. A row with one word has it in every state.
type matrixRow struct {
	kind, method string
	people       string
	onRecord     int // refusals on the record of a call that is there, for who is refused
	cells        string
}

const (
	//  states: ready running owner role held completed failed expired cancelled purged absent
	taskShown = "working working input_required working working completed failed failed cancelled none none"
	taskAcked = "acked acked acked acked acked acked acked acked acked none none"
	told      = "pending pending pending pending held completed failed expired cancelled none none"
	tasked    = "task task task task task task task task task"
	bad10     = "bad-state bad-state bad-state bad-state bad-state bad-state bad-state bad-state - bad-state bad-state"
)

var matrix = []matrixRow{
	// The methods of tasks, on a task.
	{"task", "tasks/get", "owner", 0, taskShown},
	{"task", "tasks/update", "owner", 0, taskAcked},
	{"task", "tasks/cancel", "owner", 0, taskAcked},
	{"task", "subscriptions/listen", "owner", 0, taskShown},
	{"task", "tasks/get", "colleague tenant finance operator nobody withdrawn", 1, "none"},
	{"task", "tasks/update", "colleague tenant finance operator nobody withdrawn", 1, "none"},
	{"task", "tasks/cancel", "colleague tenant finance operator nobody withdrawn", 1, "none"},
	{"task", "subscriptions/listen", "colleague tenant finance operator nobody withdrawn", 1, "none"},
	{"task", "tasks/get", "expired", 0, "401"},
	{"task", "tasks/update", "expired", 0, "401"},
	{"task", "tasks/cancel", "expired", 0, "401"},
	{"task", "subscriptions/listen", "expired", 0, "401"},

	// A call that is no task is none to anybody, its owner included.
	{"inline", "tasks/get", "owner withdrawn", 0, none10},
	{"inline", "tasks/update", "owner withdrawn", 0, none10},
	{"inline", "tasks/cancel", "owner withdrawn", 0, none10},
	{"inline", "subscriptions/listen", "owner withdrawn", 0, none10},
	{"inline", "tasks/get", "colleague tenant finance operator nobody", 1, none10},
	{"inline", "tasks/update", "colleague tenant finance operator nobody", 1, none10},
	{"inline", "tasks/cancel", "colleague tenant finance operator nobody", 1, none10},
	{"inline", "subscriptions/listen", "colleague tenant finance operator nobody", 1, none10},
	{"inline", "tasks/get", "expired", 0, out10},
	{"inline", "tasks/update", "expired", 0, out10},
	{"inline", "tasks/cancel", "expired", 0, out10},
	{"inline", "subscriptions/listen", "expired", 0, out10},

	// call_status, of both.
	{"task", "call_status", "owner", 0, told},
	{"task", "call_status", "colleague tenant finance operator nobody withdrawn", 1, "none"},
	{"task", "call_status", "expired", 0, "401"},
	{"inline", "call_status", "owner", 0, "pending pending pending pending held completed failed expired - none none"},
	{"inline", "call_status", "colleague tenant finance operator nobody withdrawn", 1, none10},
	{"inline", "call_status", "expired", 0, out10},

	// A retry with the state of a kept call. Who is known, and may not go on with
	// a call that is theirs, is told so; where nothing of theirs is, it is as for
	// everybody.
	{"task", "retry", "owner", 0, tasked + " bad-state bad-state"},
	{"task", "retry", "withdrawn", 1, "not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed bad-state bad-state"},
	{"task", "retry", "colleague tenant finance operator", 1, "bad-state"},
	{"task", "retry", "nobody", 0, "not-allowed"},
	{"task", "retry", "expired", 0, "401"},
	{"inline", "retry", "owner", 0, "pending in-flight completed pending held completed failed expired - bad-state bad-state"},
	{"inline", "retry", "withdrawn", 1, "not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed - bad-state bad-state"},
	{"inline", "retry", "colleague tenant finance operator", 1, bad10},
	{"inline", "retry", "nobody", 0, "not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed - not-allowed not-allowed"},
	{"inline", "retry", "expired", 0, out10},

	// A first request with the idempotency key that the call was made with.
	{"task", "key", "owner", 0, tasked + " anew anew"},
	{"task", "key", "colleague tenant finance operator", 0, "own"},
	{"task", "key", "nobody withdrawn", 0, "not-allowed"},
	{"task", "key", "expired", 0, "401"},
	{"inline", "key", "owner", 0, "pending pending input_required pending held completed failed expired - anew anew"},
	{"inline", "key", "colleague tenant finance operator", 0, "own own own own own own own own - own own"},
	{"inline", "key", "nobody withdrawn", 0, "not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed not-allowed - not-allowed not-allowed"},
	{"inline", "key", "expired", 0, out10},

	// What is carried: no store knows of it, and nobody can know that it is there.
	{"carried", "tools/call", "owner", 0, carried("completed", "completed", "expired")},
	{"carried", "prompts/get", "owner", 0, carried("completed", "completed", "expired")},
	{"carried", "resources/read", "owner", 0, carried("completed", "completed", "expired")},
	{"carried", "tools/call", "withdrawn", 0, carried("not-allowed", "not-allowed", "not-allowed")},
	{"carried", "prompts/get", "withdrawn", 0, carried("not-allowed", "not-allowed", "not-allowed")},
	{"carried", "resources/read", "withdrawn", 0, carried("not-allowed", "not-allowed", "not-allowed")},
	{"carried", "tools/call", "colleague tenant finance operator nobody", 0, carried("bad-state", "bad-state", "bad-state")},
	{"carried", "prompts/get", "colleague tenant finance operator nobody", 0, carried("bad-state", "bad-state", "bad-state")},
	{"carried", "resources/read", "colleague tenant finance operator nobody", 0, carried("bad-state", "bad-state", "bad-state")},
	{"carried", "tools/call", "expired", 0, "- - 401 - - 401 - 401 - - 401"},
	{"carried", "prompts/get", "expired", 0, "- - 401 - - 401 - 401 - - 401"},
	{"carried", "resources/read", "expired", 0, "- - 401 - - 401 - 401 - - 401"},

	// Out of band: the question that is the owner's to answer, the one that is
	// for somebody of finance, and the effect. Of what is not theirs to settle
	// people learn nothing, of what is, that it is settled.
	{"task", "decide mine", "owner", 0, "settled settled decided settled settled settled settled settled settled none none"},
	{"task", "decide mine", "colleague tenant finance operator withdrawn", 1, "none"},
	{"task", "decide mine", "nobody", 0, "none"},
	{"task", "decide theirs", "finance", 0, "settled settled settled decided settled settled settled settled settled none none"},
	{"task", "decide theirs", "owner colleague tenant operator withdrawn", 1, "none"},
	{"task", "decide theirs", "nobody", 0, "none"},
	{"task", "decide effect", "operator", 1, "none settled none none decided settled none none none none none"},
	{"task", "decide effect", "owner colleague tenant finance withdrawn", 1, "none"},
	{"task", "decide effect", "nobody", 0, "none"},
	{"task", "decide mine", "expired", 0, dashes},
	{"task", "decide theirs", "expired", 0, dashes},
	{"task", "decide effect", "expired", 0, dashes},
	{"inline", "decide mine", "owner", 0, "settled settled decided settled settled settled settled settled - none none"},
	{"inline", "decide mine", "colleague tenant finance operator withdrawn", 1, none10},
	{"inline", "decide mine", "nobody", 0, none10},
	{"inline", "decide theirs", "finance", 0, "settled settled settled decided settled settled settled settled - none none"},
	{"inline", "decide theirs", "owner colleague tenant operator withdrawn", 1, none10},
	{"inline", "decide theirs", "nobody", 0, none10},
	{"inline", "decide effect", "operator", 1, "none settled none none decided settled none none - none none"},
	{"inline", "decide effect", "owner colleague tenant finance withdrawn", 1, none10},
	{"inline", "decide effect", "nobody", 0, none10},
	{"inline", "decide mine", "expired", 0, dashes},
	{"inline", "decide theirs", "expired", 0, dashes},
	{"inline", "decide effect", "expired", 0, dashes},

	// Waiting lists what somebody may settle.
	{"task", "waiting", "owner", 0, "nothing nothing listed nothing nothing nothing nothing nothing nothing nothing nothing"},
	{"task", "waiting", "finance", 0, "nothing nothing nothing listed nothing nothing nothing nothing nothing nothing nothing"},
	{"task", "waiting", "operator", 0, "nothing nothing nothing nothing listed nothing nothing nothing nothing nothing nothing"},
	{"task", "waiting", "colleague tenant nobody withdrawn", 0, "nothing"},
	{"task", "waiting", "expired", 0, dashes},
	{"inline", "waiting", "owner", 0, "nothing nothing listed nothing nothing nothing nothing nothing - nothing nothing"},
	{"inline", "waiting", "finance", 0, "nothing nothing nothing listed nothing nothing nothing nothing - nothing nothing"},
	{"inline", "waiting", "operator", 0, "nothing nothing nothing nothing listed nothing nothing nothing - nothing nothing"},
	{"inline", "waiting", "colleague tenant nobody withdrawn", 0, "nothing nothing nothing nothing nothing nothing nothing nothing - nothing nothing"},
	{"inline", "waiting", "expired", 0, dashes},
}

const (
	none10 = "none none none none none none none none - none none"
	out10  = "401 401 401 401 401 401 401 401 - 401 401"
	dashes = "- - - - - - - - - - -"
)

// carried is a row of what is carried: it waits for its owner, has been
// answered before, or its question has expired. A state that was changed comes
// to the same for everybody.
func carried(owner, completed, expired string) string {
	return fmt.Sprintf("- - %s - - %s - %s - - bad-state", owner, completed, expired)
}

// noSuchCell says why there is no such cell; empty: there must be one.
func noSuchCell(kind, method, people, state string) string {
	outOfBand := strings.HasPrefix(method, "decide ") || method == "waiting"
	switch {
	case outOfBand && people == "expired":
		return "who calls Decide and Waiting has authenticated the person"
	case kind == "inline" && state == "cancelled":
		return "nothing but tasks/cancel cancels a call"
	case kind == "carried" && !slices.Contains([]string{"owner", "completed", "expired", "absent"}, state):
		return "nothing of the call is kept that could be in this state"
	}
	return ""
}

var matrixMethods = map[string][]string{
	"task":    {"tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen", "call_status", "retry", "key", "decide mine", "decide theirs", "decide effect", "waiting"},
	"inline":  {"tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen", "call_status", "retry", "key", "decide mine", "decide theirs", "decide effect", "waiting"},
	"carried": {"tools/call", "prompts/get", "resources/read"},
}

// A cell is what is expected of one method, for one of the people, of a call in
// one state.
type cell struct{ kind, method, people, state string }

type expectation struct {
	word     string
	onRecord int
}

// expectations reads the table, and fails on a cell that it lacks or has twice.
func expectations(t *testing.T) map[cell]expectation {
	t.Helper()
	cells := map[cell]expectation{}
	for _, row := range matrix {
		words := strings.Fields(row.cells)
		if len(words) == 1 {
			words = slices.Repeat(words, len(matrixStates))
		}
		if len(words) != len(matrixStates) {
			t.Fatalf("%s %s %s: %d cells", row.kind, row.method, row.people, len(words))
		}
		for _, p := range strings.Fields(row.people) {
			for i, state := range matrixStates {
				c := cell{row.kind, row.method, p, state}
				if _, twice := cells[c]; twice {
					t.Errorf("%v is in the table twice", c)
				}
				cells[c] = expectation{words[i], row.onRecord}
			}
		}
	}
	n := 0
	for kind, methods := range matrixMethods {
		for _, method := range methods {
			for people := range matrixPeople {
				for _, state := range matrixStates {
					c := cell{kind, method, people, state}
					if e, ok := cells[c]; !ok || (e.word == "-") != (noSuchCell(kind, method, people, state) != "") {
						t.Errorf("nothing is expected of %v", c)
					}
					n++
				}
			}
		}
	}
	if n != len(cells) {
		t.Errorf("%d cells for %d", len(cells), n)
	}
	if t.Failed() {
		t.FailNow()
	}
	return cells
}
