package client

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"modernc.org/sqlite" // the driver "sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/tallystick/tallystick/seal"
)

//go:embed migrations/*.sql
var migrations embed.FS

// OpenMemory opens a memory, and makes its file if there is none. A key file
// that is missing is made only if the memory has no calls.
func OpenMemory(ctx context.Context, opts MemoryOptions) (*Memory, error) {
	if opts.Path == "" {
		return nil, errors.New("client: MemoryOptions.Path is missing")
	}
	m := &Memory{
		aead: opts.Keys, log: opts.Log, writes: opts.writes, me: fmt.Sprintf("%s/%d/%s", machine(), os.Getpid(), rand.Text()),
		held: map[string]*holding{}, seen: map[string]seen{}, done: make(chan struct{}),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if err := m.openFile(ctx, opts.Path); err != nil {
		return nil, fmt.Errorf("client: opening the memory %s: %w", opts.Path, err)
	}
	beating, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		m.tend(beating)
	}()
	return m, nil
}

func (m *Memory) openFile(ctx context.Context, file string) (err error) {
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := createPrivate(file); err != nil {
		return err
	}
	if m.db, err = openDB(file); err != nil {
		return err
	}
	if err = m.prepare(ctx); err == nil && m.aead == nil {
		err = m.openKeys(ctx, file)
	}
	if err != nil {
		return errors.Join(err, m.db.Close())
	}
	return nil
}

// openKeys reads the key file, and makes one only for a memory without calls:
// another key would open none of those that are there.
func (m *Memory) openKeys(ctx context.Context, file string) error {
	keyFile := file + ".key"
	keys, err := seal.LoadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		var calls int
		if err := m.db.QueryRowContext(ctx, "SELECT count(*) FROM calls").Scan(&calls); err != nil {
			return err
		}
		if calls == 0 {
			keys, err = seal.OpenOrCreateFile(keyFile)
		} else if keys, err = seal.LoadFile(keyFile); errors.Is(err, fs.ErrNotExist) { // also now that there are calls, whose key was there before them
			return fmt.Errorf("it has calls (%d), and the key that opens them, %s, is not there: restore that file; "+
				"if it is lost, move the memory away (%s, with its -wal and -shm), and a new one is made that knows nothing of them", calls, keyFile, file)
		}
	}
	if err != nil {
		return err
	}
	m.aead = keys.AEAD()
	return nil
}

// createPrivate makes an empty file that is its owner's only, before SQLite
// would with whatever mode.
func createPrivate(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return errors.Join(f.Sync(), f.Close())
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others can read or write it (mode %04o); run: chmod 600 '%s'", info.Mode().Perm(), file)
	}
	return nil
}

// openDB opens one connection: every change is a statement of its own, and
// waits up to 5 s for those of other processes.
func openDB(file string) (*sql.DB, error) {
	name := filepath.ToSlash(file)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/… on Windows
	}
	q := url.Values{"_txlock": {"immediate"}, "_defensive": {"1"}, "_dqs": {"0"}, "_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)",
		"synchronous(FULL)", // what a client acts on survives power loss
		"trusted_schema(0)", "cell_size_check(1)", "temp_store(2)", "secure_delete(fast)",
	}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: name, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// prepare brings the schema up to date and prepares the statements.
func (m *Memory) prepare(ctx context.Context) error {
	tables, ours, err := m.tables(ctx)
	if err != nil {
		return err
	}
	if tables > 0 && ours == 0 {
		return errors.New("it is the database of another program; give another path")
	}
	if ours == 0 {
		if err := m.makeVersions(ctx); err != nil {
			return err
		}
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, m.db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if current, target, err := p.GetVersions(ctx); err != nil {
		return err
	} else if current > target {
		return fmt.Errorf("its schema is version %d and this release knows %d: use the newer release again", current, target)
	} else if current < target {
		if _, err := p.Up(ctx); err != nil && !m.broughtUp(ctx, p, target) {
			return err
		}
	}
	m.statements = map[string]*sql.Stmt{}
	names, err := statements.ReadDir("sql")
	if err != nil {
		return err
	}
	for _, f := range names {
		text, err := statements.ReadFile(path.Join("sql", f.Name()))
		if err != nil {
			return err
		}
		if m.statements[strings.TrimSuffix(f.Name(), ".sql")], err = m.db.PrepareContext(ctx, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// tables counts the tables that there are, and those of ours. It is the first
// statement, with which the file becomes one with a log (WAL): another process
// that does so just then is not waited for by SQLite itself.
func (m *Memory) tables(ctx context.Context) (all, ours int, err error) {
	for range 50 {
		err = m.db.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = 'goose_db_version') FROM sqlite_schema").Scan(&all, &ours)
		var said *sqlite.Error
		if !errors.As(err, &said) || said.Code()&0xff != lib.SQLITE_BUSY {
			break
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return all, ours, err
}

// makeVersions makes the table in which goose keeps the schema's version. When
// several processes make a new file at once, one does that while the others
// wait for its lock; goose itself would have them try again after whole
// seconds.
func (m *Memory) makeVersions(ctx context.Context) error {
	versions, err := database.NewStore(database.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return err
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var tables int
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables)
	if err == nil && tables == 0 {
		if err = versions.CreateVersionTable(ctx, tx); err == nil {
			err = versions.Insert(ctx, tx, database.InsertRequest{Version: 0})
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// broughtUp reports whether another process has made the schema meanwhile.
func (m *Memory) broughtUp(ctx context.Context, p *goose.Provider, target int64) bool {
	for range 50 {
		if current, _, err := p.GetVersions(ctx); err == nil && current == target {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false
}

// tend moves leases on, sees what other processes have changed, and forgets
// what may be forgotten, until ctx ends.
func (m *Memory) tend(ctx context.Context) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	var version int64
	var renewed, purged time.Time
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), lease)
			m.markSeen(last)
			cancel()
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(renewed) >= heartbeat {
			renewed = now
			m.renew(ctx, now)
		}
		m.markSeen(ctx)
		if now.Sub(purged) >= purgeEach {
			purged = now
			if _, err := m.exec(ctx, "purge", now.UnixMilli()); err != nil {
				m.log.Warn("calls that are over could not be forgotten", "err", err)
			}
		}
		version = m.look(ctx, version)
	}
}

// renew moves the leases of all that is held on.
func (m *Memory) renew(ctx context.Context, now time.Time) {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.held))
	m.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	held, err := json.Marshal(ids)
	if err == nil {
		_, err = m.exec(ctx, "renew", now.Add(lease).UnixMilli(), m.me, string(held))
	}
	if err != nil {
		m.log.Warn("leases could not be moved on", "err", err)
	}
}

// look tells drivers whose entries other processes have changed. It costs a
// read of one number as long as nobody has.
func (m *Memory) look(ctx context.Context, before int64) int64 {
	var version int64
	if err := m.db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil || version == before {
		return before
	}
	rows, err := m.statements["held"].QueryContext(ctx, m.me)
	if err != nil {
		return before
	}
	defer rows.Close()
	there := map[string]int64{}
	for rows.Next() {
		var id string
		var v int64
		if err := rows.Scan(&id, &v); err != nil {
			return before
		}
		there[id] = v
	}
	if rows.Err() != nil {
		return before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, h := range m.held {
		if v, ok := there[id]; !ok || v > h.version { // not there: lost, or forgotten
			h.tell()
		}
	}
	return version
}

// markSeen puts on disk which outcomes callers have had, all at once.
func (m *Memory) markSeen(ctx context.Context) {
	m.mu.Lock()
	now := m.seen
	m.seen = map[string]seen{}
	m.mu.Unlock()
	if len(now) == 0 {
		return
	}
	var rows [][]any
	for id, s := range now {
		rows = append(rows, []any{id, s.version, s.forget.UnixMilli()})
	}
	all, err := json.Marshal(rows)
	if err == nil {
		_, err = m.exec(ctx, "seen", string(all))
	}
	if err == nil {
		return
	}
	m.log.Warn("that outcomes were had could not be kept yet", "calls", len(now), "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range now {
		if _, newer := m.seen[id]; !newer {
			m.seen[id] = s
		}
	}
}
