// Package sqlite keeps calls in one SQLite file, for one process at a time.
//
// One goroutine writes: it takes all changes that wait and commits them
// together, so that many calls share one fsync. Nobody is answered before that
// commit. Reads have connections of their own and never wait for the writer.
//
// Beside the file lie its -wal and -shm, which are part of it while it is open,
// and a .lock, which tells other processes that it is in use.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tallystick/tallystick/store"
)

// Options of [Open].
type Options struct {
	// Path of the file. It is created with mode 0600 if it does not exist, and
	// its folder with 0700. The file system must have working locks; most
	// network file systems have not.
	Path string
	// Now is the store's clock; nil: time.Now.
	Now func() time.Time
	// Log gets migrations and faults, never what is stored; nil: nothing.
	Log *slog.Logger
	// Batched is called after each write with how many changes it made durable
	// together. It must not block. Nil: not called.
	Batched func(changes int)
}

// readers is how many reads go on at a time; more wait.
const readers = 4

// A Store is an open file. It implements [store.Store].
type Store struct {
	now     func() time.Time
	log     *slog.Logger
	batched func(changes int)
	path    string

	lock  *os.File // held until all else is closed
	write *sql.DB  // one connection, which is the writer's
	w     *writer
	reads *sql.DB
	query map[string]*sql.Stmt // on reads, by name of the file in sql/read

	recent recent

	jobs    chan *job     // unbuffered: whoever could send has been taken into a batch
	closing chan struct{} // closed by Close: nothing more is taken
	stopped chan struct{} // closed by the writer, at its end

	once sync.Once
	// open is held for reading by each read, and for writing by Close, which
	// so waits for them.
	open   sync.RWMutex
	closed bool // guarded by open
}

var _ store.Store = (*Store)(nil)

// Open opens the file, creates it if there is none, and brings it to the
// present schema. Only one process can have it open; that ends with the
// process, however that ends.
//
// Errors: [store.ErrLocked], [store.ErrCorrupt], [store.ErrFull]; and others
// that say what to do, such as about a file that others can read.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		now: o.Now, log: o.Log, batched: o.Batched,
		jobs: make(chan *job), closing: make(chan struct{}), stopped: make(chan struct{}),
	}
	if s.batched == nil {
		s.batched = func(int) {}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.start(ctx, o.Path); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", o.Path, classify(err)), s.release())
	}
	go s.w.loop()
	return s, nil
}

// start does what Open says, up to the writer's first batch. What it has
// opened when it fails, release closes.
func (s *Store) start(ctx context.Context, path string) error {
	if path == "" {
		return errors.New("no path given")
	}
	path, err := prepare(path)
	if err != nil {
		return err
	}
	s.path = path
	// The lock before anything looks into the file: another process may be
	// about to create it.
	if s.lock, err = lock(path + ".lock"); err != nil {
		return err
	}
	if err := createFile(path, s.lock); err != nil {
		return err
	}
	if s.write, err = openDB(path, "immediate", 1); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if err := begun(s.lock); err != nil {
		return err
	}
	s.w = &writer{s: s}
	if err := s.w.connect(ctx); err != nil {
		return err
	}
	if s.reads, err = openDB(path, "deferred", readers, "query_only(1)"); err != nil {
		return err
	}
	s.query, err = prepareAll(ctx, s.reads, "read")
	return err
}

// release closes all that is open. The writer's connection after the readers',
// since the last one writes the WAL back into the file; the lock last, since
// another process may open the file once it is free.
func (s *Store) release() error {
	var errs []error
	for _, q := range s.query {
		errs = append(errs, q.Close())
	}
	if s.reads != nil {
		errs = append(errs, s.reads.Close())
	}
	if s.w != nil {
		s.w.disconnect()
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Close waits for the batch that is being written and for reads, and closes
// the file. Changes that wait to be taken get [store.ErrClosed]. Closing again
// does nothing.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		<-s.stopped
		s.open.Lock()
		defer s.open.Unlock()
		s.closed = true
		err = classify(s.release())
	})
	return err
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.now(), ctx.Err() }

// Wake implements [store.Store]: there is no other process.
func (s *Store) Wake() <-chan struct{} { return nil }

// Shared implements [store.Store].
func (s *Store) Shared() bool { return false }
