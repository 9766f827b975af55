package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/exampletest"
	"github.com/tallystick/tallystick/tallysticktest"
)

// folder makes a folder with one note.
func folder(t *testing.T) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old.txt"), []byte("buy milk"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func gone(root *os.Root) bool {
	_, err := root.Stat("old.txt")
	return errors.Is(err, fs.ErrNotExist)
}

func TestANoteIsDeletedWhereverItCrashes(t *testing.T) {
	user := tallystick.Identity{Issuer: "os", Subject: "me"}
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		_, root := folder(t)
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { Add(s, root) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(user).Call("delete_note", DeleteArgs{"old.txt"})
				if gone(root) {
					t.Error("deleted unasked")
				}
				r.Confirm("sure").Await("completed")
			},
			Check: func(*tallysticktest.Bench) {
				if !gone(root) {
					t.Error("the note is still there")
				}
			},
		}
	})
}

func TestANoteThatWasChangedIsNotDeleted(t *testing.T) {
	dir, root := folder(t)
	b := tallysticktest.New(t, func(s *tallystick.Server) { Add(s, root) }, nil)
	r := b.As(tallystick.Identity{Subject: "me"}).Call("delete_note", DeleteArgs{"old.txt"})
	if err := os.WriteFile(filepath.Join(dir, "old.txt"), []byte("buy more milk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := r.Confirm("sure"); !again.InputRequired() || gone(root) {
		t.Errorf("%v", again)
	}
}

func TestTheProgramDeletes(t *testing.T) {
	dir, root := folder(t)
	cmd := exec.Command(exampletest.Build(t), "-notes", dir, "-data", t.TempDir())
	cmd.Stderr = os.Stderr
	user := exampletest.Connect(t, &mcp.CommandTransport{Command: cmd}, &mcp.ClientOptions{ElicitationHandler: exampletest.Yes})
	if res, text := exampletest.Call(t, user, "delete_note", map[string]any{"note": "old.txt"}); res.IsError || text != `{"bytes":8}` || !gone(root) {
		t.Errorf("deleted: %s", text)
	}
	if err := user.Close(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
