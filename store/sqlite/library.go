package sqlite

import (
	"database/sql"
	"errors"

	driver "modernc.org/sqlite"
)

// The SQLite beneath. Tests of power loss put another build of it here, before
// any store is opened: one whose files they can cut off.
var (
	// openPool opens a pool of connections by a data source name.
	openPool = func(dsn string) (*sql.DB, error) { return sql.Open("sqlite", dsn) }
	// resultCode returns SQLite's extended result code, if err has one.
	resultCode = func(err error) (code int, ok bool) {
		var e *driver.Error
		if !errors.As(err, &e) {
			return 0, false
		}
		return e.Code(), true
	}
)
