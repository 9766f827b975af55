// Package embedded makes a tallystick server from a folder: SQLite and a key
// file inside it, for one process.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/sqlite"
)

// Files in the folder.
const (
	StoreFile = "tallystick.db"
	KeyFile   = "tallystick.keys.json"
)

// A Server is a [tallystick.Server] with what it keeps in its folder.
type Server struct {
	*tallystick.Server
	// Store has the audit trail and backups.
	Store *sqlite.Store
	// Keys are those of the key file; see seal.Keyset for how they are rotated.
	Keys *seal.Keyset
}

// Open makes a server on top of s, from a folder that is created with mode
// 0700 if it does not exist. opts may be nil; its Store and Keys must be.
//
// A folder serves one process at a time: a second is refused with
// store.ErrLocked. Close the server after its Run has returned.
func Open(folder string, s *mcp.Server, opts *tallystick.Options) (*Server, error) {
	var o tallystick.Options
	if opts != nil {
		o = *opts
	}
	if o.Store != nil || o.Keys != nil {
		return nil, errors.New("embedded: Options.Store and Keys come from the folder; use tallystick.New for others")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: making the folder: %w", err)
	}
	batched, err := observe.Batches(o.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("embedded: making the metrics: %w", err)
	}
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(folder, StoreFile), Log: o.Log, Batched: batched})
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	// The store's lock is held: no other process makes keys at the same time.
	keys, err := seal.OpenOrCreateFile(filepath.Join(folder, KeyFile))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: %w", err), db.Close())
	}
	o.Store, o.Keys = db, keys.AEAD()
	srv, err := tallystick.New(s, &o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Server{Server: srv, Store: db, Keys: keys}, nil
}

// Close closes the store. Call it once Run has returned.
func (s *Server) Close() error { return s.Store.Close() }
