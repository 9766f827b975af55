package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/tallystick/tallystick/store"
)

// oldest is the first SQLite version without the WAL-reset bug, by which a
// checkpoint that met a writer could corrupt the file.
var oldest = [3]int{3, 51, 3}

// checked is up to which size a file is looked through when it is opened. It
// takes as long as reading the file; damage in larger ones shows on use.
const checked = 16 << 20

//go:embed migrations/*.sql
var migrations embed.FS

// openDB opens a pool of connections. Each waits up to 5 s for a lock, which
// only a foreign tool can hold.
func openDB(path, txlock string, connections int, pragmas ...string) (*sql.DB, error) {
	name := filepath.ToSlash(path)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/… on Windows
	}
	q := url.Values{"_txlock": {txlock}, "_defensive": {"1"}, "_dqs": {"0"}}
	q["_pragma"] = append([]string{
		"busy_timeout(5000)",
		"journal_mode(WAL)",
		"synchronous(FULL)", // fsync at each commit: acknowledged is durable
		"foreign_keys(1)",
		"trusted_schema(0)",
		"cell_size_check(1)",           // damaged pages are found when read
		"temp_store(2)",                // memory: arguments and answers stay out of /tmp
		"secure_delete(fast)",          // purged content is overwritten where that is free
		"cache_size(-16384)",           // 16 MB: a batch fits
		"wal_autocheckpoint(4000)",     // 16 MB: fewer fsyncs
		"journal_size_limit(67108864)", // a WAL that has grown shrinks again
	}, pragmas...)
	dsn := url.URL{Scheme: "file", Path: name, RawQuery: q.Encode()}
	db, err := openPool(dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// migrate checks the library and the file and brings the schema up to date.
func (s *Store) migrate(ctx context.Context) error {
	var version string
	if err := s.write.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := s.quickCheck(ctx); err != nil {
		return err
	}
	if err := s.foreign(ctx); err != nil {
		return err
	}
	p, err := provider(s.write)
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > target {
		return fmt.Errorf("its schema is version %d and this release knows %d: use the newer release again", current, target)
	}
	done, err := p.Up(ctx)
	for _, m := range done {
		s.log.InfoContext(ctx, "store schema brought up to date", "version", m.Source.Version, "took", m.Duration)
	}
	return err
}

// foreign refuses a database that another program has made: a mistaken path
// must not put tables into it.
func (s *Store) foreign(ctx context.Context) error {
	var tables, ours int
	err := s.write.QueryRowContext(ctx,
		"SELECT count(*), count(*) FILTER (WHERE name = 'goose_db_version') FROM sqlite_schema").Scan(&tables, &ours)
	if err == nil && tables > 0 && ours == 0 {
		err = errors.New("it is the database of another program; give another path")
	}
	return err
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

func checkVersion(version string) error {
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return fmt.Errorf("SQLite version %q: %w", version, err)
	}
	for i := range v {
		if v[i] > oldest[i] {
			return nil
		}
		if v[i] < oldest[i] {
			return fmt.Errorf("SQLite %s is too old: %d.%d.%d or later is needed; update modernc.org/sqlite", version, oldest[0], oldest[1], oldest[2])
		}
	}
	return nil
}

// quickCheck looks through a small file for damage.
func (s *Store) quickCheck(ctx context.Context) error {
	info, err := os.Stat(s.path)
	if err != nil || info.Size() > checked {
		return err
	}
	var found string
	if err := s.write.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("%w (quick_check)", store.ErrCorrupt)
	}
	return nil
}
