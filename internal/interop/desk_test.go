package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/internal/child"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/sqlite"
)

// A desk is the server in ./server with a folder of its own.
type desk struct {
	binary, data string
}

// built is the server's binary, which the tests share.
var built struct {
	sync.Once
	binary string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.binary != "" {
		_ = os.RemoveAll(filepath.Dir(built.binary))
	}
	os.Exit(code)
}

func newDesk(t *testing.T) desk {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "interop")
		if err != nil {
			t.Fatal(err)
		}
		binary := child.Build(t, "./server")
		built.binary = filepath.Join(dir, "server")
		if err := os.Rename(binary, built.binary); err != nil {
			t.Fatal(err)
		}
	})
	return desk{built.binary, t.TempDir()}
}

// serve serves over HTTP until end is called, or the test ends.
func (d desk) serve(t *testing.T) (url string, end func()) {
	t.Helper()
	return child.Serve(t, exec.Command(d.binary, "-data", d.data))
}

// refunded is a line of the ledger: an effect, and the answers it rests on.
type refunded struct {
	Order   string `json:"order"`
	Answers []struct {
		Action string `json:"action"`
		Value  string `json:"value"`
	} `json:"answers"`
}

// wantRefunds says which orders were refunded, each once, with a yes.
func (d desk) wantRefunds(t *testing.T, want ...string) {
	t.Helper()
	written, err := os.ReadFile(filepath.Join(d.data, "effects.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(written) {
		var r refunded
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if len(r.Answers) != 1 || r.Answers[0].Action != "accept" || r.Answers[0].Value != `{"confirm":true}` {
			t.Errorf("order %s was refunded with the answers %+v", r.Order, r.Answers)
		}
		got = append(got, r.Order)
	}
	if !slices.Equal(got, want) {
		t.Errorf("refunded: %q, want %q", got, want)
	}
}

// trail returns what the server, which has ended, wrote into its audit trail of
// some events: the event, who brought it about and how, and what it is about.
func (d desk) trail(t *testing.T, events ...string) []string {
	t.Helper()
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(d.data, embedded.StoreFile)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.Audit(ctx, store.AuditQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range rows {
		if slices.Contains(events, r.Event) {
			lines = append(lines, r.Event+" by "+r.By.Subject+" "+string(r.By.Channel)+": "+r.Key+r.Effect+" "+r.Note)
		}
	}
	return lines
}
