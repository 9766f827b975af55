package memory_test

import (
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/memory"
)

func TestACallGoesThroughItsLife(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	ctx := t.Context()
	step := func(c *record.Call, epoch int64, e ...record.Event) *record.Call {
		t.Helper()
		ch, err := record.Decide(c, record.System, epoch, now, e...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, ch); err != nil {
			t.Fatal(err)
		}
		c, err = s.Load(ctx, ch.ID)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := step(nil, record.NoEpoch, record.Opened{
		Call:  &record.Call{ID: "one", Deadline: now.Add(time.Hour), Args: []byte(`{}`)},
		Lease: record.Lease{Holder: "n/b", Until: now.Add(10 * time.Second)},
	})
	if c.State != record.Running || c.Version != 1 || !c.Lease.Live(now) {
		t.Fatalf("opened: %+v", c)
	}
	c = step(c, c.Epoch, record.Finished{Result: []byte(`{"a":1}`)})
	if c.State != record.Ended || string(c.Result) != `{"a":1}` || string(c.Args) != `{}` || c.Lease != (record.Lease{}) {
		t.Fatalf("ended: %+v", c)
	}
}
