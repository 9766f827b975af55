package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/seal"
)

func noTransport() (mcp.Transport, error) { return nil, errors.New("off") }

// stopped leaves a call in the memory that nobody drives, and returns its id.
func stopped(t *testing.T, m *client.Memory) string {
	t.Helper()
	c := newClient(t, client.Options{Memory: m, Transport: noTransport})
	h, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Detach()
	return h.ID()
}

// It is looked who drives the call, and then it is removed: only if that is so
// still.
func TestACallThatSomebodyBeginsToDriveIsNotForgotten(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": silence})
	path := memoryPath(t)
	other := f.client(client.Options{Memory: openMemory(t, path)})
	var id string
	var once sync.Once
	m := watched(t, path, func(statement string, done bool) {
		if statement == "forget" && !done {
			once.Do(func() {
				if _, err := other.Attach(context.Background(), id); err != nil {
					t.Error(err)
				}
			})
		}
	})
	id = stopped(t, m)
	wants(t, m.Forget(t.Context(), id), client.ErrBusy)
	if s, err := m.Status(t.Context(), id); err != nil || s.Driver == "" {
		t.Errorf("a call that is under way has no record: %+v, %v", s, err)
	}
}

// What changes between the look and the removal is looked at again.
func TestACallThatChangesMeanwhileIsForgottenAllTheSame(t *testing.T) {
	var m *client.Memory
	var id string
	var once sync.Once
	m = watched(t, memoryPath(t), func(statement string, done bool) {
		if statement == "forget" && !done {
			once.Do(func() {
				if err := m.Cancel(context.Background(), id); err != nil {
					t.Error(err)
				}
			})
		}
	})
	id = stopped(t, m)
	if err := m.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, err := m.Status(t.Context(), id)
	wants(t, err, client.ErrNotFound)
}

// Two clients of one memory: who comes while the call is released is refused,
// and who comes after has it for good.
func TestAReleaseTakesNothingFromANewerClaim(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": asking(form("k"), `"s"`)})
	var second *client.Client
	var id atomic.Pointer[string]
	var once sync.Once
	refused := make(chan error, 1)
	m := watched(t, memoryPath(t), func(statement string, done bool) {
		if statement == "release" && !done {
			once.Do(func() {
				_, err := second.Attach(context.Background(), *id.Load())
				refused <- err
			})
		}
	})
	asked := make(chan struct{}, 2)
	p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
		asked <- struct{}{}
		return silent(ctx, q)
	}}
	first := f.client(client.Options{Memory: m, Answerer: p})
	second = f.client(client.Options{Memory: m, Answerer: p})
	h, err := first.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	own := h.ID()
	id.Store(&own)
	<-asked
	h.Detach()
	wants(t, <-refused, client.ErrBusy)
	if h, err = second.Attach(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	<-asked
	if s, err := m.Status(t.Context(), own); err != nil || s.Driver != "here" {
		t.Errorf("on disk it is driven by %q, %v", s.Driver, err)
	}
	yes, err := client.Accept(map[string]any{"confirm": true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Answer(t.Context(), "k", yes); err != nil {
		t.Errorf("it is attached, and driven by nobody: %v", err)
	}
}

// Two claims at once by one memory, which is one driver: one of them has it.
func TestOfTwoClientsOfOneMemoryOneDrives(t *testing.T) {
	var m *client.Memory
	var id string
	var other *client.Client
	var inside atomic.Bool
	m = watched(t, memoryPath(t), func(statement string, done bool) {
		if statement == "claim" && done && inside.CompareAndSwap(false, true) {
			_, err := other.Attach(context.Background(), id)
			if !errors.Is(err, client.ErrBusy) {
				t.Errorf("a call that has just been claimed: %v", err)
			}
		}
	})
	id = stopped(t, m)
	f := fakeServer(t, map[string]saying{"tools/call": silence})
	other = f.client(client.Options{Memory: m})
	if _, err := f.client(client.Options{Memory: m}).Attach(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if !inside.Load() {
		t.Error("nobody came in between")
	}
}

// A slow reader of a long list.
type slowKey struct {
	tink.AEAD
	reading chan struct{}
	goOn    chan struct{}
}

func (k *slowKey) Decrypt(sealed, associated []byte) ([]byte, error) {
	if k.reading != nil {
		k.reading <- struct{}{}
		<-k.goOn
	}
	return k.AEAD.Decrypt(sealed, associated)
}

func TestAListHoldsUpNoCallThatBegins(t *testing.T) {
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	k := &slowKey{AEAD: keys.AEAD()}
	m, err := client.OpenMemory(t.Context(), client.MemoryOptions{Path: memoryPath(t), Keys: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	first := stopped(t, m)
	second := stopped(t, m)
	k.reading, k.goOn = make(chan struct{}), make(chan struct{})
	listed := make(chan []string)
	go func() {
		var ids []string
		all, err := m.List(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		listed <- ids
	}()
	<-k.reading // the list is at its first call
	c := newClient(t, client.Options{Memory: m, Transport: noTransport})
	began, err := c.Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	began.Detach()
	close(k.goOn)
	<-k.reading
	if ids := <-listed; fmt.Sprint(ids) != fmt.Sprint([]string{first, second}) {
		t.Errorf("listed %v, not %v", ids, []string{first, second})
	}
}

func TestANewFileIsOpenedByManyAtOnce(t *testing.T) {
	for range 5 {
		path := memoryPath(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				m, err := client.OpenMemory(context.Background(), client.MemoryOptions{Path: path})
				if err == nil {
					err = m.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// A process of this host that is not there has let go of its calls; one of
// another container may be there under that number.
func TestALeaseOfAnotherContainerIsNotJudgedByItsProcessNumber(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Skip("there are no PID namespaces here")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	d, path := newDesk(t), memoryPath(t)
	id := waitingCall(t, d, path, "1")
	m := openMemory(t, path)
	c := newClient(t, client.Options{Memory: m, Transport: web(d.url, "ann"), Answerer: yes()})
	until := time.Now().Add(time.Hour).UnixMilli()
	raw(t, path, "UPDATE calls SET driver = ?, until = ? WHERE id = ?", fmt.Sprintf("%s~pid:[1]/%d/x", host, gone.Process.Pid), until, id)
	_, err = c.Attach(t.Context(), id)
	wants(t, err, client.ErrBusy, fmt.Sprintf("process %d on %s", gone.Process.Pid, host))
	raw(t, path, "UPDATE calls SET driver = ?, until = ? WHERE id = ?", fmt.Sprintf("%s~%s/%d/x", host, own, gone.Process.Pid), until, id)
	h, err := c.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
