package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// A bench is an engine at work over a store, with a handler that a test makes.
type bench struct {
	t    *testing.T
	e    *Engine
	stop func() // drains
}

type handler func(ctx context.Context, r *Run) End

var (
	ann  = record.Actor{Principal: record.Principal{Tenant: "acme", Subject: "ann"}, Channel: record.ChannelTask}
	done = End{Result: []byte(`"done"`)}
	ids  atomic.Int64
)

func newBench(t *testing.T, s store.Store, h handler, set ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, e: newEngine(s, h, set...)}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- b.e.Work(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Work: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

func newEngine(s store.Store, h handler, set ...func(*Options)) *Engine {
	o := Options{
		Store: s, Handle: h, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		MayRun: func(context.Context, *record.Call) *record.Error { return nil },
		MayAct: func(context.Context, *Run, string) error { return nil },
		Bounds: func(*record.Call) (time.Duration, int) { return 0, 16 },
	}
	for _, f := range set {
		f(&o)
	}
	return New(o)
}

// opening describes a call of ann's.
func opening(set ...func(*record.Call)) record.Opened {
	c := &record.Call{
		ID: fmt.Sprintf("call-%d", ids.Add(1)), Owner: ann.Principal, Action: record.Action{Method: "tools/call", Name: "t"},
		CreatedAt: time.Now(), Deadline: time.Now().Add(24 * time.Hour), Retention: time.Hour, MaxRuns: 100, Task: true,
	}
	for _, f := range set {
		f(c)
	}
	return record.Opened{Call: c}
}

// create makes a task.
func (b *bench) create(set ...func(*record.Call)) string {
	b.t.Helper()
	c, err := b.e.Create(context.Background(), ann, opening(set...))
	if err != nil {
		b.t.Fatal(err)
	}
	return c.ID
}

func (b *bench) load(id string) *record.Call {
	b.t.Helper()
	synctest.Wait()
	c, err := b.e.Store.Load(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) ended(id string, want record.Outcome, word string) {
	b.t.Helper()
	c := b.load(id)
	got := ""
	if c.Error != nil {
		got = c.Error.Outcome
	}
	if c.State != record.Ended || c.Outcome != want || got != word {
		b.t.Fatalf("%s, %s (%q), want %s (%q)", c.State, c.Outcome, got, want, word)
	}
}

// audited counts the entries of a call, by event and reason.
func (b *bench) audited(id, event string, reason record.Reason) int {
	b.t.Helper()
	rows, err := b.e.Store.Audit(context.Background(), store.AuditQuery{Call: id, Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, r := range rows {
		if r.Event == event && (reason == "" || r.Reason == reason) {
			n++
		}
	}
	return n
}

func (b *bench) answer(id, key string, action record.AnswerAction) {
	b.t.Helper()
	_, err := b.e.Change(context.Background(), id, ann, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.Responded{WireKey: key, Action: action, Value: []byte(`{}`)}}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func ask(r *Run, key string) (record.Question, bool) {
	q, pending, err := r.Ask(record.Question{Key: key, Kind: record.KindForm, Message: key, Within: 15 * time.Minute})
	if err != nil {
		panic(err)
	}
	return q, pending
}

// flaky is a store whose methods a test counts, refuses and holds up.
type flaky struct {
	store.Store
	calls   atomic.Int64
	noRenew atomic.Bool
	noLoads atomic.Int64 // so many fail

	mu     sync.Mutex                // guards the rest
	commit func(record.Change) error // nil: nothing
	due    func()                    // after the store has looked
}

func (s *flaky) onCommit(f func(record.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit = f
}

func (s *flaky) onDue(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = f
}

func (s *flaky) hooks() (func(record.Change) error, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit, s.due
}

func (s *flaky) Now(ctx context.Context) (time.Time, error) {
	s.calls.Add(1)
	return s.Store.Now(ctx)
}

func (s *flaky) Load(ctx context.Context, id string) (*record.Call, error) {
	s.calls.Add(1)
	if s.noLoads.Add(-1) >= 0 {
		return nil, errors.New("input/output error")
	}
	return s.Store.Load(ctx, id)
}

func (s *flaky) Commit(ctx context.Context, c record.Change) error {
	s.calls.Add(1)
	if commit, _ := s.hooks(); commit != nil {
		if err := commit(c); err != nil {
			return err
		}
	}
	return s.Store.Commit(ctx, c)
}

func (s *flaky) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	s.calls.Add(1)
	d, err := s.Store.Due(ctx, now, limit, except)
	if _, due := s.hooks(); due != nil {
		due()
	}
	return d, err
}

func (s *flaky) Renew(ctx context.Context, holder string, refs []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	s.calls.Add(1)
	if s.noRenew.Load() {
		return nil, errors.New("the process is stopped")
	}
	return s.Store.Renew(ctx, holder, refs, until)
}

func (s *flaky) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	s.calls.Add(1)
	return s.Store.Purge(ctx, now, limit)
}
