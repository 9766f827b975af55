package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

func openTestMemory(t *testing.T) *Memory {
	t.Helper()
	m, err := OpenMemory(t.Context(), MemoryOptions{Path: filepath.Join(t.TempDir(), "calls.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func testEntry(id string) *entry {
	return &entry{ID: id, Server: "s", Method: methodTool, Name: "tool", Params: []byte(`{}`), Stage: stageReady}
}

// A statement that fails takes nothing from those that waited beside it.
func TestAWriteThatFailsHarmsNoneBesideIt(t *testing.T) {
	m := openTestMemory(t)
	if _, err := m.insert(t.Context(), testEntry("there")); err != nil {
		t.Fatal(err)
	}
	batch := []*write{}
	for _, id := range []string{"a", "there", "b"} { // "there" is unique
		batch = append(batch, &write{stmt: m.statements["insert"], args: []any{id, "", 0, []byte("x")}})
	}
	commit(t.Context(), m.db, batch)
	if batch[0].err != nil || batch[1].err == nil || batch[2].err != nil {
		t.Errorf("the errors are %v, %v, %v", batch[0].err, batch[1].err, batch[2].err)
	}
	var n int
	if err := m.db.QueryRow("SELECT count(*) FROM calls").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d calls, %v", n, err)
	}
}

// Many who change their entries at once lose nothing, and each sees its own.
func TestManyWriteAtOnce(t *testing.T) {
	m := openTestMemory(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			k, err := m.insert(t.Context(), testEntry(fmt.Sprint("call", i)))
			for n := 0; err == nil && n < 10; n++ {
				k, err = m.update(t.Context(), k, func(e *entry) error { e.Round++; return nil })
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 40 {
		k, err := m.load(t.Context(), fmt.Sprint("call", i))
		if err != nil || k.e.Round != 10 || k.version != 11 {
			t.Errorf("call %d: %+v, %v", i, k, err)
		}
	}
}

// A context that has ended before a write is queued keeps it from being made.
func TestAnEndedContextWritesNothing(t *testing.T) {
	m := openTestMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.insert(ctx, testEntry("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if _, err := m.load(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it was written all the same: %v", err)
	}
}
