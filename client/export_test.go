package client

import "context"

// OnWrite has f called before and after each statement that writes.
func (o *MemoryOptions) OnWrite(f func(statement string, done bool)) { o.writes = f }

// Exec runs a statement on the memory's own connection.
func (m *Memory) Exec(ctx context.Context, statement string) error {
	_, err := m.db.ExecContext(ctx, statement)
	return err
}
