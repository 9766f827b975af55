package client

import (
	"context"
	"testing"
)

// OnWrite has f called before and after each statement that writes.
func (o *MemoryOptions) OnWrite(f func(statement string, done bool)) { o.writes = f }

// Exec runs a statement on the memory's own connection.
func (m *Memory) Exec(ctx context.Context, statement string) error {
	_, err := m.db.ExecContext(ctx, statement)
	return err
}

// Kept is how many bytes are on disk of a call.
func (m *Memory) Kept(t *testing.T, id string) int {
	k, err := m.load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := m.seal(k.e, k.version)
	if err != nil {
		t.Fatal(err)
	}
	return len(sealed)
}
