package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/store"
)

// Limits of a batch. The one job that passes maxBytes still belongs to it.
const (
	maxJobs  = 256
	maxBytes = 8 << 20
)

// A job is a write that waits for the writer.
type job struct {
	size int // bytes, roughly
	// do makes the change. store.ErrConflict and store.ErrQuota are its
	// refusal, and undo it alone; after any other error it may be run again.
	do   func(w *writer) error
	done chan error // buffered; gets one value, once the change is durable or not made
	// tidy: a refusal comes before anything is written, and writer.changed gets
	// each call that is written.
	tidy bool
}

// submit has the writer do a job. If ctx ends before the job was taken into a
// batch, nothing is changed; after that the caller hears how it ended.
func (s *Store) submit(ctx context.Context, size int, do func(w *writer) error) error {
	return s.queue(ctx, &job{size: size, do: do})
}

func (s *Store) queue(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.done = make(chan error, 1)
	select {
	case s.jobs <- j:
		return <-j.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

// writer is the goroutine that writes; its fields are its own while it runs.
type writer struct {
	s    *Store
	conn *sql.Conn
	stmt map[string]*sql.Stmt // on conn, by name of the file in sql/write
	pending
}

// loop takes what waits, and commits it, until the store closes. It never waits
// for more: while one batch is written the next gathers by itself.
func (w *writer) loop() {
	defer close(w.s.stopped)
	for {
		select {
		case <-w.s.closing:
			return
		case j := <-w.s.jobs:
			w.run(w.gather(j))
		}
	}
}

func (w *writer) gather(first *job) []*job {
	batch, size := []*job{first}, first.size
	for len(batch) < maxJobs && size < maxBytes {
		select {
		case j := <-w.s.jobs:
			batch, size = append(batch, j), size+j.size
		default:
			return batch
		}
	}
	return batch
}

// run makes the changes of a batch durable and then answers for each. If one
// of them hits an error of SQLite, which may take the others' work with it,
// all are done again one by one, so that a full disk or a change too large is
// the trouble of that change alone.
func (w *writer) run(batch []*job) {
	results, err := w.commit(batch)
	if err == nil {
		w.s.batched(len(batch))
		for i, j := range batch {
			j.done <- results[i]
		}
		return
	}
	var failed *commitError
	if len(batch) > 1 && !errors.As(err, &failed) {
		for _, j := range batch {
			w.run([]*job{j})
		}
		return
	}
	err = classify(err)
	w.s.log.Error("store: changes were not written", "changes", len(batch), "error", err)
	for _, j := range batch {
		j.done <- err
	}
}

// A commitError says that COMMIT itself failed: whether the changes would
// survive a crash is not known, so they must not be made again.
type commitError struct{ err error }

func (e *commitError) Error() string { return "committing: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// commit does the jobs in one transaction, each in a savepoint of its own. A
// crash before COMMIT has returned leaves none or all of them.
func (w *writer) commit(batch []*job) ([]error, error) {
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, w.rollback())
	}
	w.pending = pending{changed: map[string]*stored{}, tenants: map[string]*tenant{}, audits: w.audits[:0]}
	results := make([]error, len(batch))
	for i, j := range batch {
		refused, err := w.attempt(j)
		if err != nil {
			return nil, errors.Join(err, w.rollback())
		}
		results[i], w.blind = refused, w.blind || !j.tidy
	}
	if err := w.flush(); err != nil {
		return nil, errors.Join(err, w.rollback())
	}
	w.s.recent.commit(w.changed, w.blind)
	if err := w.do("commit"); err != nil {
		w.s.recent.forget()
		return nil, errors.Join(&commitError{err}, w.rollback())
	}
	if w.blind {
		w.s.recent.forget()
	} else {
		w.s.recent.wrote(w.changed)
	}
	return results, nil
}

// attempt does one job. A refusal undoes what the job has done, and only that.
func (w *writer) attempt(j *job) (refused, err error) {
	if j.tidy {
		err := j.do(w)
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrQuota) {
			return err, nil
		}
		return nil, err
	}
	if err := w.do("job_begin"); err != nil {
		return nil, err
	}
	err = j.do(w)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrQuota) {
		refused = err
		err = w.do("job_undo")
	}
	if err != nil {
		return nil, err
	}
	return refused, w.do("job_end")
}

// begin starts a transaction that may write. IMMEDIATE, since a transaction
// that turns from reading to writing fails at once if another has written.
func (w *writer) begin() error {
	if w.conn == nil {
		if err := w.connect(context.Background()); err != nil {
			return err
		}
	}
	return w.do("begin")
}

// rollback ends the transaction, which SQLite may have done already. A
// connection that cannot even do that is given up; begin makes a new one.
func (w *writer) rollback() error {
	if w.conn == nil {
		return nil
	}
	err := w.do("rollback")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	if err != nil {
		w.s.log.Error("store: giving up a connection", "error", err)
		w.disconnect()
	}
	return err
}

// connect takes the connection for writing and prepares what is needed on it.
func (w *writer) connect(ctx context.Context) error {
	conn, err := w.s.write.Conn(ctx)
	if err != nil {
		return err
	}
	w.stmt, err = prepareAll(ctx, conn, "write")
	if err != nil {
		return errors.Join(fmt.Errorf("preparing: %w", err), conn.Close())
	}
	w.conn = conn
	return nil
}

// disconnect closes the connection for good, so that connect gets a new one.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	// Statements first: a connection with statements stays open to SQLite, with
	// its locks, and the driver does not survive closing them after it.
	for _, p := range w.stmt {
		_ = p.Close()
	}
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool drop it
	_ = w.conn.Close()
	w.conn, w.stmt = nil, nil
}
