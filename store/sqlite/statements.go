package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"path"
	"strings"
)

// statements are one file each: sql/read for the readers, sql/write for the
// writer.
//
//go:embed sql/read/*.sql sql/write/*.sql
var statements embed.FS

// preparer is a *sql.DB or a *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// prepareAll prepares every statement of a folder and names it after its file.
// What is prepared when it fails, it closes.
func prepareAll(ctx context.Context, db preparer, folder string) (map[string]*sql.Stmt, error) {
	files, err := statements.ReadDir("sql/" + folder)
	if err != nil {
		return nil, err
	}
	prepared := map[string]*sql.Stmt{}
	for _, f := range files {
		text, err := statements.ReadFile(path.Join("sql", folder, f.Name()))
		if err == nil {
			prepared[strings.TrimSuffix(f.Name(), ".sql")], err = db.PrepareContext(ctx, string(text))
		}
		if err != nil {
			delete(prepared, strings.TrimSuffix(f.Name(), ".sql"))
			for _, p := range prepared {
				_ = p.Close() // the first error counts
			}
			return nil, err
		}
	}
	return prepared, nil
}
