package engine

import (
	"testing"

	"github.com/tallystick/tallystick/record"
)

// A watcher that keeps up is told every change, one that does not the last of
// each call, and none holds up who changes.
func TestAWatchKeepsEveryChangeAndAtLastTheLast(t *testing.T) {
	e := New(Options{})
	w := e.Watch("a", "b")
	change := func(id string, version int64) {
		e.notify(&record.Call{ID: id, Version: version, State: record.Running})
	}
	change("a", 1)
	change("c", 1)
	change("b", 1)
	change("a", 2)
	<-w.C
	if got := w.Take(); len(got) != 3 || got[0].ID != "a" || got[1].ID != "b" || got[2].Call.Version != 2 {
		t.Fatalf("taken: %v", got)
	}
	for v := range int64(10 * backlog) {
		change("a", 3+v)
		change("b", 3+v)
	}
	<-w.C
	got := w.Take()
	if len(got) > backlog {
		t.Errorf("%d changes are kept", len(got))
	}
	last := map[string]int64{}
	for _, c := range got {
		if c.Call.Version < last[c.ID] {
			t.Errorf("%s %d after %d", c.ID, c.Call.Version, last[c.ID])
		}
		last[c.ID] = c.Call.Version
	}
	if want := int64(10*backlog + 2); last["a"] != want || last["b"] != want {
		t.Errorf("last told: %v, not %d", last, want)
	}
	select {
	case <-w.C:
		t.Error("signalled with nothing to take")
	default:
	}
	e.gone("a")
	if got := w.Take(); len(got) != 1 || got[0].ID != "a" || got[0].Call != nil {
		t.Errorf("of a call that is no more: %v", got)
	}
	w.Stop()
	change("a", 1e6)
	if len(w.Take()) != 0 || len(e.watches) != 0 {
		t.Error("told after its end")
	}
}
