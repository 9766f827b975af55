package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/sqlite"
)

// A server opens its store once and closes it when it has drained.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "tallystick")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "calls.db")

	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	_, err = sqlite.Open(context.Background(), sqlite.Options{Path: path})
	fmt.Println("somebody else has it open:", errors.Is(err, store.ErrLocked))
	// Output: somebody else has it open: true
}

// A backup is made while the store works on, and opens like any store.
func ExampleStore_Backup() {
	dir, err := os.MkdirTemp("", "tallystick")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "calls.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	copied := filepath.Join(dir, "monday.db")
	if err := s.Backup(ctx, copied); err != nil {
		log.Fatal(err)
	}
	b, err := sqlite.Open(ctx, sqlite.Options{Path: copied})
	fmt.Println("opened:", err == nil)
	if err == nil {
		b.Close()
	}
	// Output: opened: true
}
