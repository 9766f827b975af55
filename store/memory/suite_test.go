package memory_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
	"github.com/tallystick/tallystick/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(_ *testing.T, clock func() time.Time) (store.Store, func() store.Store) {
				s := memory.New(memory.Options{Now: clock, Shared: shared})
				return s, func() store.Store { return s }
			})
		})
	}
}

func TestEveryEngineOfASharedStoreIsWoken(t *testing.T) {
	s := memory.New(memory.Options{Shared: true})
	a, b := s.Wake(), s.Wake()
	for range 3 {
		if err := s.Takeover(t.Context(), "n", "1"); err != nil {
			t.Fatal(err)
		}
	}
	<-a // what changes before the wait is not missed
	<-b // nor taken away by the other
	select {
	case <-s.Wake():
		t.Error("woken by what was before")
	default:
	}
	if memory.New(memory.Options{}).Wake() != nil {
		t.Error("a store of one process wakes")
	}
}
