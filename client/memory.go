package client

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tink-crypto/tink-go/v2/tink"
)

const (
	lease     = 10 * time.Second // how long a driver that says nothing is taken for alive
	heartbeat = 3 * time.Second
	glance    = time.Second // how often it is looked whether another process has changed something
	purgeEach = time.Minute
)

//go:embed sql/*.sql
var statements embed.FS

// MemoryOptions of [OpenMemory].
type MemoryOptions struct {
	// Path of the file. It is made with mode 0600, its folder with 0700. The
	// key that seals what is in it is in Path+".key", unless Keys is given.
	Path string
	Keys tink.AEAD
	Log  *slog.Logger // default: discards

	writes func(statement string, done bool) // of tests: called before and after each write
}

// A Memory is what clients know of their calls, in one SQLite file that is
// sealed at rest. Everything is on disk, synced, before a client acts on it.
//
// Several clients and several processes of one machine may use one file at the
// same time; each call is driven by one of them. A Memory is safe for
// concurrent use.
type Memory struct {
	db   *sql.DB
	aead tink.AEAD
	log  *slog.Logger
	me   string // this memory as a driver: machine/process/random

	statements map[string]*sql.Stmt
	queue      queue                             // of writes
	writes     func(statement string, done bool) // nil but in tests

	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex          // guards what follows
	held   map[string]*holding // by call
	seen   map[string]seen     // calls whose outcome a caller has had, which is not on disk yet
	closed bool
}

// errUnchanged, from a function that changes an entry: there is nothing to.
var errUnchanged = errors.New("nothing to change")

// seen is when a call may be forgotten whose outcome a caller has had, if it is
// still of that version.
type seen struct {
	version int64
	forget  time.Time
}

// kept is an entry as it is on disk.
type kept struct {
	e       *entry
	version int64
	driver  string
	until   time.Time
	seen    bool
	at      time.Time // when this memory last put on disk that it drives it
	h       *holding  // by which this memory drives it; nil if it does not
}

// errLost: the call is another process's by now.
var errLost = errors.New("another process has taken the call over")

// List tells of all calls, oldest first, those of other processes included. An
// entry that cannot be read is left out and is part of the error. Calls are
// read one by one, so that what is written meanwhile does not wait for all.
func (m *Memory) List(ctx context.Context) ([]Status, error) {
	ids, err := m.ids(ctx)
	if err != nil {
		return nil, m.failed("listing the calls", err)
	}
	var all []Status
	var damaged []error
	for _, id := range ids {
		r, err := m.read(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound): // forgotten meanwhile
			continue
		case err != nil:
			return all, err
		}
		k, err := m.open(id, r)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		all = append(all, m.statusOf(k))
	}
	return all, errors.Join(damaged...)
}

func (m *Memory) ids(ctx context.Context) ([]string, error) {
	rows, err := m.statements["list"].QueryContext(ctx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// Status tells of one call. Errors: ErrNotFound.
func (m *Memory) Status(ctx context.Context, id string) (Status, error) {
	k, err := m.load(ctx, id)
	if err != nil {
		return Status{}, err
	}
	return m.statusOf(k), nil
}

func (m *Memory) statusOf(k kept) Status {
	s := k.e.status()
	m.mu.Lock()
	s.Seen = k.seen || m.seen[s.ID].version == k.version
	holds := k.h != nil && m.held[s.ID] == k.h && !k.e.ended() // whatever its lease was when it last changed
	m.mu.Unlock()
	switch alive := m.alive(k.driver, k.until); {
	case holds, alive && k.driver == m.me:
		s.Driver = "here"
	case alive:
		host, process, _ := strings.Cut(k.driver, "/")
		host, _, _ = strings.Cut(host, "~")
		process, _, _ = strings.Cut(process, "/")
		s.Driver = "process " + process + " on " + host
	}
	return s
}

// Result is the outcome of a call that has ended; nil and no error if it has
// not. It counts as seen by asking.
func (m *Memory) Result(ctx context.Context, id string) (*Result, error) {
	k, err := m.load(ctx, id)
	if err != nil || !k.e.ended() {
		return nil, err
	}
	m.saw(k, 24*time.Hour)
	return k.e.result()
}

// Cancel is [Handle.Cancel] for a call that this process does not drive: who
// drives it, or will, is told.
func (m *Memory) Cancel(ctx context.Context, id string) error {
	return m.change(ctx, id, (*entry).askCancel)
}

// Answer is [Handle.Answer] for a call by its id, whoever drives it.
func (m *Memory) Answer(ctx context.Context, id, question string, a Answer) error {
	return m.change(ctx, id, func(e *entry) error { return e.answer(question, a, "caller") })
}

// Forget removes a call. Errors: ErrNotFound; ErrBusy while somebody drives it.
func (m *Memory) Forget(ctx context.Context, id string) error {
	for {
		r, err := m.read(ctx, id)
		if err != nil {
			return err
		}
		if m.alive(r.driver, time.UnixMilli(r.until)) {
			return &Error{ID: id, Kind: ErrBusy, Reason: "cancel it, or end the process that drives it, first"}
		}
		// Only as it was seen: somebody may begin to drive it just now.
		res, err := m.exec(ctx, "forget", id, r.version, r.driver, r.until)
		if err != nil {
			return m.failed("forgetting a call", err)
		}
		if n, err := res.RowsAffected(); n == 1 || err != nil {
			return err
		}
	}
}

// Close lets go of the file. Close the clients that use the memory first.
func (m *Memory) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.stop()
	<-m.done
	m.queue.wg.Wait()
	return m.db.Close()
}

// row is what a query gives of a call.
type row struct {
	version, until int64
	driver         string
	seen           bool
	sealed         []byte
}

// associated is what a sealed entry is bound to: put in the place of another,
// or of a later version of itself, it does not open.
func associated(id string, version int64) []byte {
	return []byte("tallystick client call\x00" + id + "\x00" + strconv.FormatInt(version, 10))
}

func (m *Memory) open(id string, r row) (kept, error) {
	plain, err := m.aead.Decrypt(r.sealed, associated(id, r.version))
	if err != nil {
		return kept{}, fmt.Errorf("client: call %s cannot be read: the file was changed, or has another key", id)
	}
	e := new(entry)
	var params struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(plain, e); err != nil || e.ID != id || e.ended() != (e.Outcome != nil) ||
		(e.Stage == stageWatching) != (e.Task != nil && !e.ended()) || unmarshal(e.Params, &params) != nil {
		return kept{}, fmt.Errorf("client: call %s cannot be read: its entry is not one of this release", id)
	}
	e.Arguments = params.Arguments
	return kept{e: e, version: r.version, driver: r.driver, until: time.UnixMilli(r.until), seen: r.seen}, nil
}

func (m *Memory) seal(e *entry, version int64) ([]byte, error) {
	plain, err := marshal(e) // with what came from others as they wrote it
	if err != nil {
		return nil, err
	}
	return m.aead.Encrypt(plain, associated(e.ID, version))
}

func (m *Memory) load(ctx context.Context, id string) (kept, error) {
	r, err := m.read(ctx, id)
	if err != nil {
		return kept{}, err
	}
	return m.open(id, r)
}

// read reads the row of a call. Errors: ErrNotFound.
func (m *Memory) read(ctx context.Context, id string) (r row, err error) {
	err = m.statements["load"].QueryRowContext(ctx, id).Scan(&r.version, &r.driver, &r.until, &r.seen, &r.sealed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return row{}, &Error{ID: id, Kind: ErrNotFound}
	case err != nil:
		return row{}, m.failed("reading a call", err)
	}
	return r, nil
}

// insert puts a new call on disk, held by this memory.
func (m *Memory) insert(ctx context.Context, e *entry) (kept, error) {
	sealed, err := m.seal(e, 1)
	if err != nil {
		return kept{}, err
	}
	until := time.Now().Add(lease)
	k := m.hold(kept{e: e, version: 1, driver: m.me, until: until, at: time.Now()}) // before another client of this memory can claim it
	if _, err := m.exec(ctx, "insert", e.ID, m.me, until.UnixMilli(), sealed); err != nil {
		m.letGo(e.ID, k.h)
		return kept{}, m.failed("keeping a call", err)
	}
	return k, nil
}

// update is the driver's way to change an entry: f is called with a copy, once
// more if somebody else was quicker, and changes it or returns an error. The
// result is on disk. An entry that has ended has no driver any more. errLost:
// the call is no longer this memory's.
func (m *Memory) update(ctx context.Context, k kept, f func(*entry) error) (kept, error) {
	for {
		m.mu.Lock()
		holds := k.h != nil && m.held[k.e.ID] == k.h
		m.mu.Unlock()
		if !holds { // let go of, and maybe held anew: that is another's to change
			return k, errLost
		}
		next := k.e.clone()
		if err := f(next); errors.Is(err, errUnchanged) {
			return k, nil
		} else if err != nil {
			return k, err
		}
		now := time.Now()
		until := now.Add(lease)
		done, err := m.write(ctx, next, k.version, until)
		if err != nil {
			return k, err
		}
		if done {
			k.e, k.version, k.seen, k.until, k.at = next, k.version+1, false, until, now
			if next.ended() {
				k.driver, k.until = "", time.Time{}
			}
			m.mu.Lock()
			k.h.version = k.version
			m.mu.Unlock()
			return k, nil
		}
		if k, err = m.reload(ctx, k); err != nil {
			return k, err
		}
	}
}

// reload reads what this memory drives as it is now. Errors: errLost,
// ErrNotFound.
func (m *Memory) reload(ctx context.Context, k kept) (kept, error) {
	r, err := m.read(ctx, k.e.ID)
	if err != nil {
		return k, err
	}
	now := k
	if r.version != k.version {
		if now, err = m.open(k.e.ID, r); err != nil {
			return k, err
		}
		if now.h = k.h; now.e.Stage == stageSent && k.e.staying() {
			now.e.via = k.e.via
		}
	}
	now.driver, now.until, now.at = r.driver, time.UnixMilli(r.until), k.at
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.driver != m.me || m.held[k.e.ID] != k.h {
		return k, errLost
	}
	k.h.version = now.version
	return now, nil
}

// change is everybody else's: whoever drives the call is told.
func (m *Memory) change(ctx context.Context, id string, f func(*entry) error) error {
	for {
		k, err := m.load(ctx, id)
		if err != nil {
			return err
		}
		next := k.e.clone()
		if err := f(next); errors.Is(err, errUnchanged) {
			return nil
		} else if err != nil {
			return err
		}
		done, err := m.write(ctx, next, k.version, time.Time{})
		if err != nil {
			return err
		}
		if done {
			m.mu.Lock()
			if h := m.held[id]; h != nil {
				h.tell()
			}
			m.mu.Unlock()
			return nil
		}
	}
}

// write writes the next version of an entry: of its driver, who has it until
// then, or of anybody. It reports whether it was still that version, and his.
func (m *Memory) write(ctx context.Context, e *entry, version int64, until time.Time) (bool, error) {
	if e.Updated = time.Now(); e.ended() {
		e.Updated = e.Outcome.At
	}
	sealed, err := m.seal(e, version+1)
	if err != nil {
		return false, err
	}
	var res sql.Result
	switch {
	case until.IsZero():
		res, err = m.exec(ctx, "change", sealed, e.ID, version)
	case e.ended():
		res, err = m.exec(ctx, "end", sealed, e.ID, version, m.me)
	default:
		res, err = m.exec(ctx, "update", sealed, until.UnixMilli(), e.ID, version, m.me)
	}
	if err != nil {
		return false, m.failed("keeping a call", err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// saw notes that a caller has had the outcome. It is on disk a little later:
// a crash before that only means that the outcome is given once more.
func (m *Memory) saw(k kept, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed && !k.seen && m.seen[k.e.ID].version <= k.version {
		m.seen[k.e.ID] = seen{k.version, time.Now().Add(keep)}
	}
}

// failed wraps what the database says. After Close that is ErrClosed.
func (m *Memory) failed(what string, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	return fmt.Errorf("client: %s: %w", what, err)
}
