package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/sqlite"
)

// childPath names the store of a child process, which is this test binary.
const childPath = "TALLYSTICK_TEST_STORE"

// TestChild is the child: it says which calls were acknowledged, until it is
// killed.
func TestChild(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return // it is no child
	}
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	boot := os.Getpid()
	fmt.Println("open")
	var wg sync.WaitGroup
	var mu sync.Mutex // one line at a time
	for worker := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", boot, worker, i)
				if err := s.Commit(context.Background(), change(id)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				fmt.Println("ack", id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func change(id string) record.Change {
	return record.Change{
		ID: id, After: &record.Call{ID: id, State: record.Waiting, Args: []byte(id)},
		Marks: []record.MarkWrite{{MarkID: record.MarkID{Kind: record.MarkSubject, Name: id}, Set: &record.Mark{Call: id}}},
		Audit: []record.Entry{{Call: id, Event: "opened"}},
	}
}

// child starts a child and returns its lines.
func child(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), childPath+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		_ = cmd.Process.Kill()
		t.Fatalf("the child says %q", lines.Text())
	}
	return cmd, lines
}

func TestWhatWasAcknowledgedSurvivesKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	acked := map[string]bool{}
	for range 3 {
		cmd, lines := child(t, path)
		for n := 0; n < 60 && lines.Scan(); n++ {
			acked[strings.TrimPrefix(lines.Text(), "ack ")] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it died counts too
			if id, ok := strings.CutPrefix(lines.Text(), "ack "); ok {
				acked[id] = true
			}
		}
		_ = cmd.Wait() // killed: an error
	}
	s := open(t, path, nil)
	for id := range acked {
		c, err := s.Load(t.Context(), id)
		if err != nil || string(c.Args) != id {
			t.Errorf("call %s was acknowledged: %v", id, err)
		}
		if _, err := s.Mark(t.Context(), record.MarkID{Kind: record.MarkSubject, Name: id}); err != nil {
			t.Errorf("mark %s was acknowledged: %v", id, err)
		}
		if rows, err := s.Audit(t.Context(), store.AuditQuery{Call: id}); err != nil || len(rows) != 1 {
			t.Errorf("call %s has %d entries: %v", id, len(rows), err)
		}
	}
	if len(acked) < 180 {
		t.Errorf("only %d calls were acknowledged", len(acked))
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	cmd, lines := child(t, path)
	alias := filepath.Join(dir, "alias.db")
	if err := os.Symlink(path, alias); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, alias} {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: p})
		if !errors.Is(err, store.ErrLocked) || s != nil {
			t.Errorf("%s: error is %v", p, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	_ = cmd.Wait()
	open(t, path, nil) // the kernel has given the lock back
}

func TestTheSameProcessIsRefusedToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path, nil)
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("error is %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, nil)
}
