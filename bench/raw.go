package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// A life is what the store writes for one call, from its beginning to its end.
type life struct {
	writes int // changes that were made durable one after the other
	bytes  int // of each, on average
}

// lookInto reads from a store's file how often and how much it has written for
// a call on average. The document of a call is written anew at each change.
func lookInto(path string) (life, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return life{}, err
	}
	defer db.Close()
	var calls, writes, bytes int
	err = db.QueryRow(`SELECT count(*), sum(version),
			sum(version * length(doc)) + (SELECT sum(coalesce(length(args), 0) + coalesce(length(result), 0)) FROM payloads)
			+ (SELECT sum(length(doc)) FROM audit)
		FROM calls`).Scan(&calls, &writes, &bytes)
	if err == nil && (calls == 0 || writes == 0) {
		err = errors.New("the store is empty")
	}
	if err != nil {
		return life{}, err
	}
	return life{(writes + calls/2) / calls, bytes / writes}, nil
}

// A raw is a SQLite file to which one goroutine appends what others hand it,
// with one commit for all that wait: the least that can be done for the same
// promise by the same library.
type raw struct {
	db     *sql.DB
	conn   *sql.Conn
	insert *sql.Stmt
	jobs   chan rawJob
	done   chan struct{}
}

type rawJob struct {
	data []byte
	done chan error
}

// rawGroup is how many writes share a commit at most, as in store/sqlite.
const rawGroup = 256

// openRaw sets what store/sqlite sets.
func openRaw(path string) (*raw, error) {
	q := url.Values{"_txlock": {"immediate"}, "_defensive": {"1"}, "_dqs": {"0"}, "_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "trusted_schema(0)", "cell_size_check(1)",
		"temp_store(2)", "secure_delete(fast)", "cache_size(-16384)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)",
	}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	r := &raw{db: db, jobs: make(chan rawJob), done: make(chan struct{})}
	ctx := context.Background()
	if _, err = db.Exec("CREATE TABLE raw (n INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT"); err == nil {
		if r.conn, err = db.Conn(ctx); err == nil {
			r.insert, err = r.conn.PrepareContext(ctx, "INSERT INTO raw (data) VALUES (?1)")
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	go r.loop()
	return r, nil
}

func (r *raw) close() error {
	close(r.jobs)
	<-r.done
	return errors.Join(r.insert.Close(), r.conn.Close(), r.db.Close())
}

func (r *raw) loop() {
	defer close(r.done)
	for j := range r.jobs {
		group := []rawJob{j}
		for more := true; more && len(group) < rawGroup; {
			select {
			case j, ok := <-r.jobs:
				if more = ok; ok {
					group = append(group, j)
				}
			default:
				more = false
			}
		}
		err := r.commit(group)
		for _, j := range group {
			j.done <- err
		}
	}
}

func (r *raw) commit(group []rawJob) error {
	ctx := context.Background()
	tx, err := r.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	insert := tx.StmtContext(ctx, r.insert)
	defer insert.Close()
	for _, j := range group {
		if _, err := insert.ExecContext(ctx, j.data); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// lives writes what n calls take, with so many of them at a time.
func (r *raw) lives(n, at int, of life) (int, error) {
	var work sync.WaitGroup
	var begun atomic.Int64
	errs := make([]error, at)
	for i := range at {
		work.Go(func() {
			data := make([]byte, of.bytes)
			done := make(chan error, 1)
			for begun.Add(1) <= int64(n) {
				for range of.writes {
					r.jobs <- rawJob{data, done}
					if errs[i] = <-done; errs[i] != nil {
						return
					}
				}
			}
		})
	}
	work.Wait()
	return n, errors.Join(errs...)
}
