//go:build unix

package client_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/seal"
)

func openAt(t *testing.T, path string) (*client.Memory, error) {
	t.Helper()
	return client.OpenMemory(t.Context(), client.MemoryOptions{Path: path})
}

// raw runs a statement in the file, past the memory.
func raw(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// waitingCall leaves a call that waits for an answer in the memory, driven by
// nobody, and returns its id.
func waitingCall(t *testing.T, d *desk, path, orderID string) string {
	t.Helper()
	m, err := openAt(t, path)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	p := &person{answer: func(ctx context.Context, _ client.Question) (client.Answer, error) {
		close(asked)
		<-ctx.Done()
		return client.Answer{}, ctx.Err()
	}}
	c, err := client.New(client.Options{Memory: m, Server: "desk", Transport: web(d.url, "ann"), Answerer: p})
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Start(t.Context(), "refund", order{orderID})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := errors.Join(c.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	return h.ID()
}

func TestAMemoryIsItsOwnersOnly(t *testing.T) {
	path := memoryPath(t)
	m := openMemory(t, path)
	d := newDesk(t)
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
	if _, err := c.Call(t.Context(), "refund", order{"1"}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 3 { // the file, its key, its log
		t.Fatal(files, err)
	}
	for _, f := range append(files, filepath.Dir(path)) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", f, info.Mode().Perm(), want)
		}
	}
}

func TestAMemoryThatIsNotItsOwnersOnlyOrNoneIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		says  string
	}{
		"others can read it": {func(t *testing.T, path string) {
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
		}, "chmod 600"},
		"others can read the key": {func(t *testing.T, path string) {
			if err := os.Chmod(path+".key", 0o640); err != nil {
				t.Fatal(err)
			}
		}, ".key"},
		"another program's": {func(t *testing.T, path string) {
			raw(t, path, "DROP TABLE goose_db_version")
		}, "another program"},
		"a newer release's": {func(t *testing.T, path string) {
			raw(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
		}, "newer release"},
		"no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("no database\n"), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a database"},
		"a folder": {func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, "not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := memoryPath(t)
			m, err := openAt(t, path)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, path)
			if m, err = openAt(t, path); err == nil {
				m.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v: want the path, and %q", err, c.says)
			}
		})
	}
}

func TestAnotherKeyOpensNothingAndTheErrorSaysSo(t *testing.T) {
	d, path := newDesk(t), memoryPath(t)
	id := waitingCall(t, d, path, "1")
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	m, err := client.OpenMemory(t.Context(), client.MemoryOptions{Path: path, Keys: keys.AEAD()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err = m.Status(t.Context(), id); err == nil || !strings.Contains(err.Error(), "another key") || !strings.Contains(err.Error(), id) {
		t.Errorf("Status: %v", err)
	}
	if all, err := m.List(t.Context()); len(all) != 0 || err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("List: %v, %v", all, err)
	}
	if err := m.Forget(t.Context(), id); err != nil {
		t.Errorf("what cannot be read cannot be forgotten: %v", err)
	}
}

func TestALostKeyIsNotReplacedWhileThereAreCalls(t *testing.T) {
	d := newDesk(t)
	path := filepath.Join(t.TempDir(), "calls.db")
	id := waitingCall(t, d, path, "o-1")
	key, away := path+".key", filepath.Join(t.TempDir(), "key")
	if err := os.Rename(key, away); err != nil {
		t.Fatal(err)
	}
	m, err := openAt(t, path)
	if err == nil {
		_ = m.Close()
		t.Fatal("a memory whose key is lost is opened")
	}
	for _, want := range []string{"calls (1)", key, "restore", "move the memory away"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it lacks %q: %v", want, err)
		}
	}
	if _, err := os.Lstat(key); !errors.Is(err, os.ErrNotExist) {
		t.Error("a new key was made")
	}
	if err := os.Rename(away, key); err != nil {
		t.Fatal(err)
	}
	if m, err = openAt(t, path); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Status(t.Context(), id); err != nil {
		t.Errorf("the call does not open with its key: %v", err)
	}
	// Without calls there is nothing to lose.
	if err := errors.Join(m.Forget(t.Context(), id), m.Close(), os.Remove(key)); err != nil {
		t.Fatal(err)
	}
	if m, err = openAt(t, path); err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
}

func TestARowThatWasSwappedOrRolledBackDoesNotOpenAndTheOthersDo(t *testing.T) {
	d := newDesk(t)
	for name, spoil := range map[string]func(t *testing.T, path, one, other string){
		"swapped": func(t *testing.T, path, one, other string) {
			raw(t, path, "UPDATE calls SET sealed = (SELECT sealed FROM calls WHERE id = ?), version = (SELECT version FROM calls WHERE id = ?) WHERE id = ?", other, other, one)
		},
		"an older entry under the newer version": func(t *testing.T, path, one, _ string) {
			raw(t, path, "UPDATE calls SET version = version + 1 WHERE id = ?", one)
		},
		"cut off": func(t *testing.T, path, one, _ string) {
			raw(t, path, "UPDATE calls SET sealed = substr(sealed, 1, 20) WHERE id = ?", one)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := memoryPath(t)
			one, other := waitingCall(t, d, path, "1"), waitingCall(t, d, path, "2")
			spoil(t, path, one, other)
			m := openMemory(t, path)
			if _, err := m.Status(t.Context(), one); err == nil || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("the spoilt one: %v", err)
			}
			c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
			handles, err := c.Resume(t.Context())
			if err == nil || len(handles) != 1 || handles[0].ID() != other {
				t.Fatalf("resumed %v, %v: want the other, and an error for this one", handles, err)
			}
			if _, err := handles[0].Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingOfACallIsReadableAtRest(t *testing.T) {
	d, path := newDesk(t), memoryPath(t)
	m := openMemory(t, path)
	// Nothing that random bytes may well hold.
	secrets := []string{"order-pellucid-71", "refund", "confirm", "Refund order", "R-order", "accept", "elicitation", "desk.example"}
	c := newClient(t, client.Options{Memory: m, Server: "https://desk.example", Transport: web(d.url, "ann"), Answerer: yes()})
	for _, tool := range []string{"refund", "job"} {
		h, err := c.Start(t.Context(), tool, order{"order-pellucid-71"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tool == "job" {
			secrets = append(secrets, h.Status().Task)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	log := false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		log = log || strings.HasSuffix(f, "-wal") && len(b) > 10_000
		for _, s := range secrets {
			if s == "" || bytes.Contains(b, []byte(s)) {
				t.Errorf("%s holds %q", f, s)
			}
		}
	}
	if !log {
		t.Error("there was no write-ahead log to look at")
	}
}

func TestManyProcessesAtOnceMakeOneMemory(t *testing.T) {
	d, path := newDesk(t), memoryPath(t)
	const many = 4
	var processes sync.WaitGroup
	for i := range many {
		processes.Go(func() {
			if _, _, err := (child{Path: path, URL: d.url, Tool: "refund", Order: fmt.Sprint(i), Open: true}).spawn(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	c := newClient(t, client.Options{Memory: openMemory(t, path), Transport: web(d.url, "ann"), Answerer: yes()})
	handles, err := c.Resume(t.Context())
	if err != nil || len(handles) != many { // all of one key
		t.Fatalf("%d calls, %v: want all that were made", len(handles), err)
	}
	for _, h := range handles {
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A parked child drives a call whose person never answers.
func parked(t *testing.T, c child) *exec.Cmd {
	t.Helper()
	c.Park = true
	cmd, err := c.command(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(io.LimitReader(out, 100)).ReadString('\n'); line != "asked\n" {
		t.Fatal(line, err)
	}
	return cmd
}

// until waits for a status that others bring about.
func until(t *testing.T, m *client.Memory, id string, f func(client.Status) bool) client.Status {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := m.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if f(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("it stays %+v", s)
		}
		<-tick.C
	}
}

// drivenElsewhere is a call that a child drives, and a memory beside it.
func drivenElsewhere(t *testing.T) (d *desk, m *client.Memory, cmd *exec.Cmd, id string) {
	t.Helper()
	d, path := newDesk(t), memoryPath(t)
	cmd = parked(t, child{Path: path, URL: d.url, Tool: "refund", Order: "1", Diary: filepath.Join(t.TempDir(), "diary")})
	m = openMemory(t, path)
	all, err := m.List(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Open) != 1 {
		t.Fatal(all, err)
	}
	if want := fmt.Sprintf("process %d on ", cmd.Process.Pid); !strings.HasPrefix(all[0].Driver, want) {
		t.Errorf("its driver is %q, want %s…", all[0].Driver, want)
	}
	return d, m, cmd, all[0].ID
}

func TestOneProcessDrivesACallAndHearsWhatOthersSay(t *testing.T) {
	d, m, _, id := drivenElsewhere(t)
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
	if _, err := c.Attach(t.Context(), id); !errors.Is(err, client.ErrBusy) {
		t.Errorf("Attach beside the driver: %v", err)
	}
	if handles, err := c.Resume(t.Context()); err != nil || len(handles) != 0 {
		t.Errorf("Resume beside the driver: %v, %v", handles, err)
	}
	if err := m.Forget(t.Context(), id); !errors.Is(err, client.ErrBusy) {
		t.Errorf("Forget beside the driver: %v", err)
	}
	if err := m.Answer(t.Context(), id, "nothing", client.Decline()); err == nil {
		t.Error("what is not asked was answered")
	}
	if err := m.Answer(t.Context(), id, "sure", client.Answer{Action: "accept", Content: []byte(`{"confirm":"perhaps"}`)}); err == nil {
		t.Error("an answer that does not fit was taken")
	}
	a, err := client.Accept(map[string]any{"confirm": true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Answer(t.Context(), id, "sure", a); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if s := until(t, m, id, func(s client.Status) bool { return s.State.Final() }); s.State != client.Completed {
		t.Errorf("it is %s", s.State)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the driver heard of the answer after %s", took)
	}
	if n := d.refunds.Load(); n != 1 {
		t.Errorf("refunded %d times", n)
	}
}

func TestAnotherProcessCancelsWhatOneDrives(t *testing.T) {
	d, m, _, id := drivenElsewhere(t)
	if err := m.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if s := until(t, m, id, func(s client.Status) bool { return s.State.Final() }); s.State != client.Cancelled || d.refunds.Load() != 0 {
		t.Errorf("it is %s, refunded %d times", s.State, d.refunds.Load())
	}
}

func TestADeadProcesssCallIsTakenOverAtOnce(t *testing.T) {
	d, m, cmd, id := drivenElsewhere(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	began := time.Now()
	p := yes()
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: p})
	h, err := c.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("taken over after %s, not at once", took)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.times() != 1 || !p.asked[0].Again || d.refunds.Load() != 1 {
		t.Errorf("asked %+v, refunded %d times", p.asked, d.refunds.Load())
	}
}

func TestAStoppedProcessLosesItsCallAfterItsLeaseAndChangesNothingMore(t *testing.T) {
	d, m, cmd, id := drivenElsewhere(t)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
	if _, err := c.Attach(t.Context(), id); !errors.Is(err, client.ErrBusy) {
		t.Errorf("Attach before its lease is over: %v", err)
	}
	until(t, m, id, func(s client.Status) bool { return s.Driver == "" })
	h, err := c.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := m.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the stopped process: %v", err)
	}
	after, err := m.Status(t.Context(), id)
	if err != nil || after.State != client.Completed || !after.Updated.Equal(before.Updated) || d.refunds.Load() != 1 {
		t.Errorf("%+v, %v; refunded %d times", after, err, d.refunds.Load())
	}
}

func TestWhatCannotBeKeptIsNotSent(t *testing.T) {
	for name, spoil := range map[string]string{"read-only": "PRAGMA query_only = 1", "full": "PRAGMA max_page_count = 1"} {
		t.Run(name, func(t *testing.T) {
			d, path := newDesk(t), memoryPath(t)
			m := openMemory(t, path)
			var posts atomic.Int64
			front := func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
				posts.Add(1)
				inner.ServeHTTP(w, r)
			}
			d.front.Store(&front)
			if err := m.Exec(t.Context(), spoil); err != nil {
				t.Fatal(err)
			}
			c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
			_, err := c.Call(t.Context(), "refund", map[string]string{"order": strings.Repeat("1", 100_000)})
			if err == nil || posts.Load() != 0 {
				t.Errorf("%v, %d requests", err, posts.Load())
			}
		})
	}
}

func TestACallIsForgottenOnceItsOutcomeWasHadAndItsTimeIsOver(t *testing.T) {
	d, path := newDesk(t), memoryPath(t)
	waiting := waitingCall(t, d, path, "1")
	m, err := openAt(t, path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Memory: m, Server: "desk", Transport: web(d.url, "ann"), Answerer: yes(), Limits: client.Limits{Keep: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, o := range []string{"2", "3"} {
		h, err := c.Start(t.Context(), "refund", order{o})
		if err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		ids = append(ids, h.ID())
	}
	had, unseen := ids[0], ids[1]
	if r, err := m.Result(t.Context(), unseen); err != nil || r == nil {
		t.Fatal(r, err)
	}
	h, err := c.Attach(t.Context(), had)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); !s.Seen {
		t.Error("its outcome was had, and it is not seen")
	}
	if err := errors.Join(c.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	// What a driver leaves that dies at the very end.
	raw(t, path, "UPDATE calls SET driver = 'elsewhere/1/dead', until = 1 WHERE id = ?", had)
	m = openMemory(t, path)
	if err := m.Cancel(t.Context(), had); err != nil { // which changes nothing
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, err = m.Status(t.Context(), had); err == nil && time.Now().Before(deadline); _, err = m.Status(t.Context(), had) {
		<-time.After(20 * time.Millisecond)
	}
	if !errors.Is(err, client.ErrNotFound) {
		t.Errorf("its time is over: %v", err)
	}
	if s, err := m.Status(t.Context(), unseen); err != nil || !s.Seen {
		t.Errorf("within its 24 hours: %+v, %v", s, err)
	}
	if s, err := m.Status(t.Context(), waiting); err != nil || s.Seen || s.State != client.InputRequired {
		t.Errorf("what waits: %+v, %v", s, err)
	}
	if err := m.Forget(t.Context(), waiting); err != nil {
		t.Error(err)
	}
	if err := m.Forget(t.Context(), waiting); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("forgotten twice: %v", err)
	}
}

// A call whose outcome was had, and that is sent again, is not to be forgotten
// for what was had before.
func TestACallThatIsSentAgainIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(hangUp(""), silence)})
		m := openMemory(t, memoryPath(t))
		c := f.client(client.Options{Memory: m, Limits: client.Limits{Keep: time.Hour}})
		_, err := c.Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrUnknown)
		time.Sleep(2 * time.Second) // by now it is on disk that it was had
		if s, err := m.Status(t.Context(), e.ID); err != nil || !s.Seen {
			t.Fatalf("%+v, %v", s, err)
		}
		h, err := c.Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); !errors.Is(err, client.ErrUnknown) { // had once more
			t.Fatal(err)
		}
		if h, err = h.Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if h.Status().Seen {
			t.Error("it goes on, and counts as seen")
		}
		h.Detach()
		time.Sleep(2 * time.Hour)
		if s, err := m.Status(t.Context(), e.ID); err != nil || s.Seen {
			t.Errorf("after its time: %+v, %v", s, err)
		}
	})
}

func TestACallThatWasLostCanBeTakenBack(t *testing.T) {
	d, path := newDesk(t), memoryPath(t)
	asked, late := make(chan struct{}, 2), make(chan struct{})
	answer := sync.OnceFunc(func() { close(late) })
	defer answer()
	p := &person{answer: func(ctx context.Context, _ client.Question) (client.Answer, error) {
		asked <- struct{}{}
		<-ctx.Done()
		<-late // it answers although it was let go of
		return client.Decline(), nil
	}}
	m := openMemory(t, path)
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: p})
	h, err := c.Start(t.Context(), "refund", order{"1"})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	other := openMemory(t, path)
	raw(t, path, "UPDATE calls SET driver = 'elsewhere/1/x', until = 1 WHERE id = ?", h.ID())
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := h.Wait(soon); !errors.Is(err, client.ErrBusy) {
		t.Fatalf("who has lost its call: %v", err)
	}
	again, err := c.Attach(t.Context(), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	answer() // the answer of the first drive is not the second's
	if err := h.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := again.Wait(t.Context()); !errors.Is(err, client.ErrCancelled) || d.refunds.Load() != 0 {
		t.Errorf("%v, refunded %d times", err, d.refunds.Load())
	}
	if s, err := other.Status(t.Context(), h.ID()); err != nil || s.State != client.Cancelled || s.Driver != "" {
		t.Errorf("%+v, %v", s, err)
	}
}
