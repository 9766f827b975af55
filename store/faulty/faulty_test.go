package faulty_test

import (
	"errors"
	"testing"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/memory"
)

func TestAProcessDiesAtItsWrite(t *testing.T) {
	for name, want := range map[string]struct {
		fault   faulty.Fault
		applied bool
	}{"before": {faulty.KillBefore, false}, "after": {faulty.KillAfter, true}} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New(memory.Options{})
			s := faulty.New(inner, func(n int, c record.Change) faulty.Fault {
				if n == 2 && c.ID == "2" {
					return want.fault
				}
				return faulty.Fault{}
			})
			commit := func(id string) error {
				return s.Commit(t.Context(), record.Change{ID: id, After: &record.Call{ID: id}})
			}
			if err := commit("1"); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"2", "3"} {
				if err := commit(id); !errors.Is(err, faulty.ErrKilled) {
					t.Fatalf("write %s: %v", id, err)
				}
			}
			<-s.Killed()
			if _, err := s.Load(t.Context(), "1"); !errors.Is(err, faulty.ErrKilled) {
				t.Errorf("a dead process reads: %v", err)
			}
			for id, there := range map[string]bool{"1": true, "2": want.applied, "3": false} {
				if _, err := inner.Load(t.Context(), id); errors.Is(err, store.ErrNotFound) == there {
					t.Errorf("call %s afterwards: %v", id, err)
				}
			}
			if s.Writes() != 2 {
				t.Errorf("%d writes", s.Writes())
			}
		})
	}
}

func TestAFaultThatKillsNobody(t *testing.T) {
	unknown := errors.New("unknown")
	inner := memory.New(memory.Options{})
	s := faulty.New(inner, func(n int, _ record.Change) faulty.Fault {
		return faulty.Fault{Err: unknown, After: n == 1}
	})
	for _, id := range []string{"applied", "lost"} {
		if err := s.Commit(t.Context(), record.Change{ID: id, After: &record.Call{ID: id}}); !errors.Is(err, unknown) {
			t.Fatal(err)
		}
	}
	if _, err := s.Load(t.Context(), "applied"); err != nil {
		t.Error(err)
	}
	if _, err := s.Load(t.Context(), "lost"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}
