package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/internal/history"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/faulty"
	"github.com/tallystick/tallystick/store/memory"
)

// everyOperation is the variable with which no operation is left out.
const everyOperation = "TALLYSTICK_POWER"

// stride is which of the images are looked at: with the variable all of them, and
// fewer under the race detector, which makes SQLite ten times as slow and sees
// nothing of it. Strides are prime, so that no kind of operation is left out
// each time.
func stride(plain, raced int) int {
	switch {
	case os.Getenv(everyOperation) == "all":
		return 1
	case raceDetector:
		return raced
	}
	return plain
}

// recorded is what the history of a whole server writes.
func recorded(t *testing.T) []history.Write {
	t.Helper()
	var writes []history.Write
	synctest.Test(t, func(t *testing.T) {
		tap := &history.Tap{Store: memory.New(memory.Options{})}
		w := &history.World{T: t, Tap: tap, Faithful: true, Boot: func() (*faulty.Store, func()) {
			return faulty.New(tap, func(int, record.Change) faulty.Fault { return faulty.Fault{} }), func() {}
		}}
		w.Play(history.Chapters...)
		writes = tap.Writes()
	})
	return writes
}

// A replay makes the recorded writes again, on a disk.
type replay struct {
	t    testing.TB
	s    *Store
	mu   sync.Mutex
	time time.Time
	done int // how many were acknowledged
}

func (r *replay) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.time
}

func (r *replay) acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// write makes one of the writes. It must be answered as it was.
func (r *replay) write(w history.Write) error {
	r.mu.Lock()
	r.time = w.At
	r.mu.Unlock()
	var err error
	if w.Lease != nil {
		err = w.Lease(context.Background(), r.s)
	} else if err = r.s.Commit(context.Background(), w.Change); errors.Is(w.Err, store.ErrConflict) && errors.Is(err, store.ErrConflict) {
		err = nil
	}
	if err == nil {
		r.mu.Lock()
		r.done++
		r.mu.Unlock()
	}
	return err
}

// dump is all that a store has.
func dump(s *Store) (string, error) {
	var out strings.Builder
	for _, table := range []string{"calls", "payloads", "marks", "audit", "tenants"} {
		rows, err := s.reads.Query("SELECT * FROM " + table)
		if err != nil {
			return "", err
		}
		names, err := rows.Columns()
		if err != nil {
			return "", err
		}
		var lines []string
		for rows.Next() {
			row := make([]any, len(names))
			into := make([]any, len(names))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return "", err
			}
			for i, v := range row {
				if b, ok := v.([]byte); ok {
					row[i] = string(b)
				}
			}
			lines = append(lines, fmt.Sprintln(row...))
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", err
		}
		slices.Sort(lines)
		fmt.Fprintln(&out, table, lines)
	}
	return out.String(), nil
}

// A cut is a moment at which the power may fail.
type cut struct {
	n     int
	what  string
	s     survival
	acked int
	found image
}

// look opens what is found after a cut: SQLite finds it in order, and it is what
// was acknowledged, with the write that was under way whole or not at all.
func (c cut) look(parent string, may ...string) error {
	d, end, err := boot(parent, c.found, 0)
	if err != nil {
		return err
	}
	defer end()
	s, err := Open(context.Background(), Options{Path: d.path()})
	if err != nil {
		return fmt.Errorf("%v: %w (%v)", c, err, c.found)
	}
	defer s.Close()
	if err := whole(s); err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	got, err := dump(s)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	if !slices.Contains(may, got) {
		return fmt.Errorf("%v: it has\n%s\nand should have\n%s", c, got, strings.Join(may, "\nor\n"))
	}
	return nil
}

func (c cut) String() string {
	return fmt.Sprintf("the power was cut at operation %d (%s) after %d writes, what was not synced: %s", c.n, c.what, c.acked, c.s)
}

// At every operation of a history that touches the whole law, the power is cut,
// in four ways.
func TestThePowerIsCutAtEveryOperation(t *testing.T) {
	writes := recorded(t)
	parent := t.TempDir()
	d := mustBoot(t, nil)
	r := &replay{t: t, time: writes[0].At}
	candidates, looked, synced, every := 0, 0, 0, stride(29, 499)
	var cuts []cut
	d.watch = func(what string) {
		for _, s := range survivals {
			key := d.syncs<<16 + r.acknowledged()
			if s == lost && key == synced {
				continue // as it was before
			}
			synced = key
			if candidates++; candidates%every != 0 {
				continue
			}
			found, err := d.found(s, 0)
			if err != nil {
				t.Error(err)
				return
			}
			cuts = append(cuts, cut{d.n, what, s, r.acknowledged(), found})
		}
	}
	// look looks at what was cut since the last time: it may be any of those.
	look := func(may ...string) {
		t.Helper()
		d.mu.Lock()
		now := cuts
		cuts = nil
		d.mu.Unlock()
		looked += len(now)
		var all sync.WaitGroup
		room := make(chan struct{}, 2)
		for _, c := range now {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				if err := c.look(parent, may...); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	r.s = on(t, d, r.now)
	before := r.mustDump(t)
	look(before)
	// So that checkpoints come, and the log is written over again.
	if _, err := r.s.w.conn.ExecContext(t.Context(), "PRAGMA wal_autocheckpoint=200"); err != nil {
		t.Fatal(err)
	}
	for i, w := range writes {
		if err := r.write(w); err != nil {
			t.Fatalf("write %d: %v, and it was %v", i, err, w.Err)
		}
		after := r.mustDump(t)
		look(before, after)
		before = after
	}
	r.inStep(t, writes)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	look(before)
	t.Logf("%d writes, %d operations, %d images, %d of them looked at", len(writes), d.operations(), candidates, looked)
}

func (r *replay) mustDump(t testing.TB) string {
	t.Helper()
	all, err := dump(r.s)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inStep: the trail is what the writes said, in their order, and the calls are
// what they made of them.
func (r *replay) inStep(t *testing.T, writes []history.Write) {
	t.Helper()
	text := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var want, got []string
	calls, versions := map[string]*record.Call{}, map[string]int64{}
	for _, w := range writes {
		if w.Err != nil || w.Lease != nil {
			continue
		}
		for _, e := range w.Change.Audit {
			want = append(want, text(e))
		}
		if w.Change.After != nil || w.Change.Remove {
			calls[w.Change.ID], versions[w.Change.ID] = w.Change.After, w.Change.Version+1
		}
	}
	for after := int64(0); ; {
		rows, err := r.s.Audit(t.Context(), store.AuditQuery{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			got, after = append(got, text(row.Entry)), row.Seq
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the trail has %d entries, and the writes %d", len(got), len(want))
	}
	for id, c := range calls {
		is, err := r.s.Load(t.Context(), id)
		switch {
		case c == nil && errors.Is(err, store.ErrNotFound):
		case c == nil || err != nil:
			t.Errorf("call %s: %v", id, err)
		case is.Version != versions[id] || text(is) != text(c) || string(is.Result) != string(c.Result):
			t.Errorf("call %s is version %d, %s", id, is.Version, text(is))
		}
	}
}

// The process lives on while its disk is gone: from then on it acknowledges
// nothing, and what it had acknowledged is there.
func TestNothingIsAcknowledgedAfterThePowerIsCut(t *testing.T) {
	writes := recorded(t)
	const before, more = 30, 3
	d := mustBoot(t, nil)
	r := &replay{t: t, time: writes[0].At}
	r.s = on(t, d, r.now)
	states := []string{r.mustDump(t)}
	for _, w := range writes[:before] {
		if err := r.write(w); err != nil {
			t.Fatal(err)
		}
	}
	found := func() image {
		d.mu.Lock()
		defer d.mu.Unlock()
		found, err := d.found(lost, 0)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}()
	states[0] = r.mustDump(t)
	for _, w := range writes[before : before+more] {
		if err := r.write(w); err != nil {
			t.Fatal(err)
		}
		states = append(states, r.mustDump(t))
	}
	parent := t.TempDir()
	n, cuts := 1, 0
	for uncut := false; !uncut; n += stride(1, 13) {
		d, end, err := boot(parent, found, n)
		if err != nil {
			t.Fatal(err)
		}
		r := &replay{t: t, time: writes[before].At}
		if r.s, err = Open(context.Background(), Options{Path: d.path(), Now: r.now}); err != nil {
			t.Fatal(err)
		}
		for i, w := range writes[before : before+more] {
			err := r.write(w)
			if off := d.isOff(); (err != nil) != off || r.done > i+1 {
				t.Fatalf("cut at %d, write %d: %v, and the power is off: %t", n, i, err, off)
			}
		}
		uncut = !d.isOff()
		cuts++
		c := cut{n: n, what: "any", s: survivals[n%len(survivals)], acked: r.done}
		if c.found, err = d.image(c.s, uint64(n)); err != nil {
			t.Fatal(err)
		}
		_ = r.s.Close() // it cannot write its log back
		end()
		if err := c.look(parent, states[r.done:min(r.done+2, len(states))]...); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cuts", cuts)
}

func (d *disk) isOff() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}
