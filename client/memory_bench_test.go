package client

import (
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkUpdate is one change of an entry, synced.
func BenchmarkUpdate(b *testing.B) {
	m, err := OpenMemory(b.Context(), MemoryOptions{Path: filepath.Join(b.TempDir(), "calls.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	k, err := m.insert(b.Context(), &entry{ID: newID(), Server: "s", Method: methodTool, Name: "tool", Params: []byte(`{"name":"tool","arguments":{"order":"1"}}`), Arguments: []byte(`{"order":"1"}`), Stage: stageReady, Created: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if k, err = m.update(b.Context(), k, func(e *entry) error { e.Round++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
