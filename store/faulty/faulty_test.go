package faulty_test

import (
	"context"
	"errors"
	"testing"
	"time"

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

// A write that took longer than its run's lease changes nothing, and neither
// does one that nobody waits for any more.
func TestAWriteIsDelayed(t *testing.T) {
	now := time.Unix(1000, 0)
	inner := memory.New(memory.Options{Now: func() time.Time { return now }})
	ctx, leave := context.WithCancel(t.Context())
	s := faulty.New(inner, func(n int, _ record.Change) faulty.Fault {
		switch n {
		case 2:
			return faulty.Fault{Delay: func() { now = now.Add(time.Minute) }}
		case 3:
			return faulty.Fault{Delay: leave}
		}
		return faulty.Fault{}
	})
	call := &record.Call{ID: "1", State: record.Running, Epoch: 1, Lease: record.Lease{Holder: "h", Until: now.Add(10 * time.Second)}}
	if err := s.Commit(ctx, record.Change{ID: "1", After: call}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, record.Change{ID: "1", Version: 1, Epoch: 1, After: call}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("past its lease: %v", err)
	}
	if err := s.Commit(ctx, record.Change{ID: "1", Version: 1, After: call}); !errors.Is(err, context.Canceled) {
		t.Errorf("past its context: %v", err)
	}
	if c, err := inner.Load(t.Context(), "1"); err != nil || c.Version != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestAProcessIsKilledFromOutside(t *testing.T) {
	inner := memory.New(memory.Options{})
	s := faulty.New(inner, func(int, record.Change) faulty.Fault { return faulty.Fault{} })
	s.LetLeasesLapse(true)
	if _, err := s.Renew(t.Context(), "h", nil, time.Time{}); !errors.Is(err, faulty.ErrLapsing) {
		t.Error(err)
	}
	s.LetLeasesLapse(false)
	if _, err := s.Renew(t.Context(), "h", nil, time.Time{}); err != nil {
		t.Error(err)
	}
	s.Kill()
	<-s.Killed()
	if err := s.Commit(t.Context(), record.Change{ID: "1", After: &record.Call{ID: "1"}}); !errors.Is(err, faulty.ErrKilled) {
		t.Error(err)
	}
	if _, err := inner.Load(t.Context(), "1"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}
