package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// told asks again for what clients were told: it stays so.
func (w *World) told() {
	w.T.Helper()
	for _, e := range w.ends {
		if r := e.again(e.who); r.sum() != e.sum {
			r.fatal("a client was told otherwise: " + e.sum)
		}
	}
	w.ends = nil
}

// heard: what a client is told of a kept call is in the store by then, be it an
// end or a question.
func (w *World) heard(r reply) {
	w.T.Helper()
	a, _ := r.params["arguments"].(map[string]any)
	order, _ := a["order"].(string)
	if r.method != "tools/call" || r.name == "look" || order == "" || r.task() != "" {
		return
	}
	want := record.Ended
	switch r.status() {
	case "error", "pending", "held":
		return
	case "input_required":
		want = record.Waiting
	}
	select {
	case <-w.proc.store.Killed(): // nothing can be asked now
		return
	default:
	}
	var states []record.State
	for _, wr := range w.Tap.Writes() {
		c := wr.Change.After
		if c == nil || wr.Change.Version != 0 || c.Owner.Subject != r.who || c.Action.Name != r.name || !strings.Contains(string(c.Args), order) {
			continue
		}
		is := w.stored(c.ID)
		if is == nil {
			return // purged, or the store is gone
		}
		if states = append(states, is.State); is.State == want {
			return
		}
	}
	r.fatal(fmt.Sprintf("it was told before it was so: %v is stored", states))
}

// quiet waits until no call runs or is ready to.
func (w *World) quiet() {
	w.T.Helper()
	w.until("nothing runs", func() bool {
		calls, err := w.durable().List(w.T.Context(), store.Filter{Tenant: "acme", Limit: 1000})
		if err != nil {
			return false
		}
		for _, c := range calls {
			if c.State == record.Ready || c.State == record.Running {
				return false
			}
		}
		return true
	})
}

func (f *far) keyed(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.deeds {
		if d.key == key {
			return true
		}
	}
	return false
}

// ledger: nothing was done twice, but under the same key what may be.
func (w *World) ledger() {
	w.T.Helper()
	w.far.mu.Lock()
	defer w.far.mu.Unlock()
	for _, what := range w.far.wrong {
		w.T.Errorf("%s\n%s", what, w.trail())
	}
	first := map[string]deed{}
	for _, d := range w.far.deeds {
		of := d.effect + " " + d.order
		if was, again := first[of]; again && (!d.repeatable || was.key != d.key) {
			w.T.Errorf("%s was done twice\n%s", of, w.trail())
		}
		first[of] = d
	}
}

// replay goes through what was written: each change has its entries, in the same
// transaction; versions have no gap; what was acknowledged is there, and what
// was not is there whole or not at all; what has ended stays as it is.
func (w *World) replay() {
	w.T.Helper()
	s, release := w.Boot() // what a last process would find
	defer release()
	writes := w.Tap.Writes()
	for i, wr := range writes {
		if wr.Change.ID == "" || wr.Change.Version != 0 || wr.Lease != nil || wr.Change.After == nil || i > 0 && seenBefore(writes[:i], wr.Change.ID) {
			continue
		}
		if err := w.replayOne(s, wr.Change.ID, writes); err != nil {
			w.T.Errorf("call %.6s: %v\n%s", wr.Change.ID, err, w.trail())
		}
	}
}

func seenBefore(writes []Write, id string) bool {
	for _, wr := range writes {
		if wr.Change.ID == id {
			return true
		}
	}
	return false
}

func (w *World) replayOne(s store.Store, id string, all []Write) error {
	ctx := w.T.Context()
	final, err := s.Load(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rows, err := s.Audit(ctx, store.AuditQuery{Call: id, Limit: 1000})
	if err != nil {
		return err
	}
	var writes []Write
	for _, wr := range all {
		if wr.Lease == nil && wr.Change.ID == id {
			writes = append(writes, wr)
		}
	}
	version, at, removed := int64(0), 0, false
	var last *record.Call
	for i, wr := range writes {
		c := wr.Change
		changes := c.After != nil || c.Remove
		if !applied(writes, i, final, rows[at:]) {
			continue
		}
		switch {
		case len(c.Audit) == 0:
			return fmt.Errorf("change %d has no entry", i)
		case !same(rows[at:], c.Audit):
			return fmt.Errorf("the entries of change %d are not in the trail at %d", i, at)
		case changes && c.Version != version:
			return fmt.Errorf("change %d is of version %d, and %d is stored", i, c.Version, version)
		}
		at += len(c.Audit)
		if err := final1(last, c.After); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		if c.After != nil {
			last = c.After
		}
		if changes {
			version++
		}
		removed = removed || c.Remove
	}
	switch {
	case at != len(rows):
		return fmt.Errorf("%d entries of %d belong to a change", at, len(rows))
	case (final == nil) != (removed || version == 0):
		return fmt.Errorf("it is stored: %t", final != nil)
	case final != nil && final.Version != version:
		return fmt.Errorf("version %d is stored, and %d changes were made", final.Version, version)
	case final != nil && (text(final) != text(last) || string(final.Result) != string(last.Result)):
		return fmt.Errorf("it is stored as %s, and not as %s", text(final), text(last))
	}
	return nil
}

// applied reports whether the store has a write, also if it never said so: the
// next one that it acknowledged, or what is stored now, tells.
func applied(writes []Write, i int, final *record.Call, rows []store.AuditRow) bool {
	wr := writes[i]
	if wr.Err == nil {
		return true
	}
	for _, refusal := range []error{store.ErrConflict, store.ErrQuota, store.ErrFull, store.ErrClosed} {
		if errors.Is(wr.Err, refusal) {
			return false
		}
	}
	// Several may have been tried from one version, when the store was gone.
	if !same(rows, wr.Change.Audit) {
		return false
	}
	if wr.Change.After == nil && !wr.Change.Remove {
		// The same may have been written again, at the same moment: then it is
		// there twice, or only the second is.
		for _, next := range writes[i+1:] {
			if next.Err == nil {
				return text(next.Change.Audit) != text(wr.Change.Audit) || same(rows[len(wr.Change.Audit):], next.Change.Audit)
			}
		}
		return true
	}
	for _, next := range writes[i+1:] {
		if next.Err == nil && (next.Change.After != nil || next.Change.Remove) {
			return next.Change.Version > wr.Change.Version
		}
	}
	return final == nil && wr.Change.Version > 0 || final != nil && final.Version > wr.Change.Version
}

func same(rows []store.AuditRow, entries []record.Entry) bool {
	if len(rows) < len(entries) {
		return false
	}
	for i, e := range entries {
		if text(rows[i].Entry) != text(e) {
			return false
		}
	}
	return true
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// final1: an end is not changed any more.
func final1(was, is *record.Call) error {
	if was == nil || is == nil || was.State != record.Ended {
		return nil
	}
	if is.State != record.Ended || is.Outcome != was.Outcome || !is.EndedAt.Equal(was.EndedAt) || string(is.Result) != string(was.Result) || text(is.Error) != text(was.Error) {
		return errors.New("it changes what has ended")
	}
	return nil
}
