package client

import (
	"context"
	"database/sql"
	"sync"
)

// mostAtOnce bounds how many writes are committed together.
const mostAtOnce = 64

// A queue has the writes that wait for the one connection. What waits together
// is committed together: one sync to disk serves all of them.
type queue struct {
	mu      sync.Mutex // guards what follows
	waiting []*write
	busy    bool // a goroutine commits what waits

	wg sync.WaitGroup
}

// A write is one statement. Its result is set before done is closed.
type write struct {
	stmt *sql.Stmt
	args []any
	done chan struct{}
	res  sql.Result
	err  error
}

// exec runs a statement that writes, and returns when it is on disk. Once it
// waits to be written it is, whatever becomes of ctx: whoever asked is to know.
func (m *Memory) exec(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.writes != nil {
		m.writes(statement, false)
		defer m.writes(statement, true)
	}
	w := &write{stmt: m.statements[statement], args: args, done: make(chan struct{})}
	q := &m.queue
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	if !q.busy {
		q.busy = true
		q.wg.Go(func() { q.drain(m.db) })
	}
	q.mu.Unlock()
	<-w.done
	return w.res, w.err
}

// drain commits until nothing waits.
func (q *queue) drain(db *sql.DB) {
	for {
		q.mu.Lock()
		n := min(len(q.waiting), mostAtOnce)
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		q.busy = n > 0
		q.mu.Unlock()
		if n == 0 {
			return
		}
		commit(context.Background(), db, batch) // bounded by the wait for a lock
		for _, w := range batch {
			close(w.done)
		}
	}
}

// commit writes all of a batch, or of those that fail each what can be.
func commit(ctx context.Context, db *sql.DB, batch []*write) {
	if len(batch) > 1 && together(ctx, db, batch) {
		return
	}
	for _, w := range batch {
		w.res, w.err = w.stmt.ExecContext(ctx, w.args...)
	}
}

// together reports whether the batch is settled: committed, or in doubt, which
// must not be done again. If a statement fails, nothing of the batch has been
// written.
func together(ctx context.Context, db *sql.DB, batch []*write) bool {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	for _, w := range batch {
		if w.res, err = tx.StmtContext(ctx, w.stmt).ExecContext(ctx, w.args...); err != nil {
			if tx.Rollback() == nil {
				return false
			}
			break
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	for _, w := range batch {
		w.err = err
	}
	return true
}
