package bazaar

import (
	"database/sql"
	"fmt"

	_ "github.com/tallystick/tallystick/store/sqlite" // its driver
)

// Sound looks through an SQLite file that nobody has open.
func Sound(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	var said string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&said); err != nil {
		return fmt.Errorf("integrity_check: %w", err)
	}
	if said != "ok" {
		return fmt.Errorf("integrity_check: %s", said)
	}
	return nil
}
