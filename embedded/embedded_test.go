package embedded_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sdk() *mcp.Server { return mcp.NewServer(&mcp.Implementation{Name: "e", Version: "1"}, nil) }

func TestAFolderHoldsEverythingAndIsItsOwnersOnly(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "data")
	s, err := embedded.Open(folder, sdk(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, want := range map[string]os.FileMode{".": 0o700, embedded.StoreFile: 0o600, embedded.KeyFile: 0o600} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

func TestASecondProcessIsRefusedAndKeysStay(t *testing.T) {
	folder := t.TempDir()
	first, err := embedded.Open(folder, sdk(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(folder, sdk(), nil); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("a second one: %v", err)
	}
	keys := first.Keys.List()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := embedded.Open(folder, sdk(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.Keys.List(); len(got) != 1 || got[0] != keys[0] {
		t.Errorf("keys %v, before %v", got, keys)
	}
}

// What cannot be opened is left as it is, and holds nothing.
func TestAFailedOpenLeavesNothingOpen(t *testing.T) {
	folder := t.TempDir()
	if _, err := embedded.Open(folder, sdk(), &tallystick.Options{Store: memory.New(memory.Options{})}); err == nil {
		t.Error("a store beside the folder's was accepted")
	}
	key := filepath.Join(folder, embedded.KeyFile)
	if err := os.WriteFile(key, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(folder, sdk(), nil); err == nil {
		t.Fatal("a damaged key file was accepted")
	}
	if b, err := os.ReadFile(key); err != nil || string(b) != "{" {
		t.Errorf("the key file was changed: %q, %v", b, err)
	}
	if _, err := embedded.Open(folder, nil, nil); err == nil {
		t.Error("no SDK server was accepted")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Open(folder, sdk(), nil) // nothing holds the lock
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- s.Run(ctx) }()
	cancel()
	if err := errors.Join(<-ran, s.Close()); err != nil {
		t.Error(err)
	}
}
