//go:build unix

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/client"
)

// childEnv has a child's orders, as JSON: the test binary runs them instead of
// tests (TestMain).
const childEnv = "TALLYSTICK_CLIENT_TEST_CHILD"

// A child is what one client process does.
type child struct {
	Path, URL string
	Tool      string
	Order     string
	Cancel    bool   // once there is a task
	Connected bool   // before it makes the call
	Diary     string // the person's: see diary
	KillAt    int    // the write of the memory, from 1, at which it kills itself; 0: none
	KillAfter bool   // after that write; else before
	Open      bool   // it only makes a call and leaves it
	Park      bool   // its person never answers in time; it says when that is asked
}

// String says when it is killed.
func (c child) String() string {
	when := "before"
	if c.KillAfter {
		when = "after"
	}
	return fmt.Sprintf("%s write %d", when, c.KillAt)
}

// said is what a child prints at the end.
type said struct {
	Result string
	Err    string // its kind
	Task   string
	Writes int
}

// runChild runs a child if this process is one.
func runChild() bool {
	orders := os.Getenv(childEnv)
	if orders == "" {
		return false
	}
	var c child
	if err := json.Unmarshal([]byte(orders), &c); err != nil {
		panic(err)
	}
	out, err := c.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
	return true
}

// killer kills the process at a write. What moves leases on and tidies up comes
// by the clock and does not count.
type killer struct {
	at    int
	after bool

	mu sync.Mutex // held during each write
	n  int
}

func (k *killer) write(statement string, done bool) {
	if statement == "renew" || statement == "purge" {
		return
	}
	if !done {
		k.mu.Lock()
		k.n++
	}
	if k.n == k.at && k.after == done {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // does not return alive
		select {}
	}
	if done {
		k.mu.Unlock()
	}
}

func (c *child) run() (said, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	k := &killer{at: c.KillAt, after: c.KillAfter}
	opts := client.MemoryOptions{Path: c.Path}
	opts.OnWrite(k.write)
	m, err := client.OpenMemory(ctx, opts)
	if err != nil {
		return said{}, err
	}
	defer m.Close()
	task := make(chan struct{})
	var once sync.Once
	cl, err := client.New(client.Options{
		Memory: m, Server: "desk", Transport: web(c.URL, "ann"), Answerer: &diary{path: c.Diary, park: c.Park},
		Notify: func(s client.Status) {
			if s.Task != "" {
				once.Do(func() { close(task) })
			}
		},
	})
	if err != nil {
		return said{}, err
	}
	defer cl.Close()
	if c.Open {
		_, err := cl.Start(ctx, c.Tool, order{c.Order})
		return said{}, errors.Join(err, cl.Close(), m.Close())
	}
	h, r, err := c.resume(ctx, m, cl)
	if h != nil {
		if c.Cancel {
			select {
			case <-task:
				if err := h.Cancel(ctx); err != nil {
					return said{}, err
				}
			case <-h.Done():
			}
		}
		r, err = h.Wait(ctx)
	}
	out := said{}
	all, bad := m.List(ctx)
	if bad != nil || len(all) != 1 {
		return said{}, fmt.Errorf("%d calls are on disk: %w", len(all), bad)
	}
	out.Task = all[0].Task
	switch {
	case err == nil:
		tool, bad := r.Tool()
		if bad != nil {
			return said{}, bad
		}
		b, bad := json.Marshal(tool.StructuredContent)
		if bad != nil {
			return said{}, bad
		}
		out.Result = string(b)
	default:
		known := new(client.Error)
		if !errors.As(err, &known) {
			return said{}, err
		}
		out.Err = known.Error()
		for _, kind := range []error{client.ErrUnknown, client.ErrCancelled} {
			if errors.Is(err, kind) {
				out.Err = kind.Error()
			}
		}
	}
	if err := errors.Join(cl.Close(), m.Close()); err != nil {
		return said{}, err
	}
	out.Writes = k.n
	return out, nil
}

// resume goes on with the call that is on disk, and makes it if none is.
func (c *child) resume(ctx context.Context, m *client.Memory, cl *client.Client) (*client.Handle, *client.Result, error) {
	handles, err := cl.Resume(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case len(handles) > 1:
		return nil, nil, errors.New("one call has become two")
	case len(handles) == 1:
		return handles[0], nil, nil
	}
	all, err := m.List(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case len(all) == 0:
		if c.Connected {
			for _, err := cl.Session(ctx); err != nil && ctx.Err() == nil; _, err = cl.Session(ctx) {
				time.Sleep(10 * time.Millisecond) // the server has just begun
			}
		}
		h, err := cl.Start(ctx, c.Tool, order{c.Order})
		return h, nil, err
	case !all[0].Seen:
		return nil, nil, fmt.Errorf("it is not resumed, and not over: %+v", all[0])
	}
	r, err := m.Result(ctx, all[0].ID)
	return nil, r, err
}

// An entryOfDiary is one line of a [diary].
type entryOfDiary struct {
	ID    string // of the question
	Key   string
	Again bool
	Note  string // the answer; empty: it is handed to the person
}

// A diary is a person who is reached through something that lasts, as a chat
// is: a question is put there under its ID, and the answer is found there by
// whoever asks again. Each answer is another, so that it can be told whose
// arrived.
type diary struct {
	path string
	park bool
	mu   sync.Mutex
}

func (*diary) Kinds() []client.Kind { return []client.Kind{client.Form} }

func (p *diary) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, err := readDiary(p.path)
	if err != nil {
		return client.Answer{}, err
	}
	if err := p.note(entryOfDiary{ID: q.ID, Key: q.Key, Again: q.Again}); err != nil {
		return client.Answer{}, err
	}
	if p.park {
		fmt.Println("asked")
		<-ctx.Done()
		return client.Decline(), nil // which nobody waits for any more
	}
	note := ""
	for _, e := range before {
		if e.ID == q.ID && q.Again && e.Note != "" {
			note = e.Note
		}
	}
	if note == "" {
		note = fmt.Sprintf("%s by %d at %d", q.Key, os.Getpid(), time.Now().UnixNano())
		if err := p.note(entryOfDiary{ID: q.ID, Key: q.Key, Again: q.Again, Note: note}); err != nil {
			return client.Answer{}, err
		}
	}
	return client.Accept(map[string]string{"note": note})
}

func (p *diary) note(e entryOfDiary) error {
	f, err := os.OpenFile(p.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(e), f.Close())
}

func readDiary(path string) ([]entryOfDiary, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []entryOfDiary
	for line := range strings.Lines(string(b)) {
		var e entryOfDiary
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, err
}

// command is this binary as a child.
func (c child) command(ctx context.Context) (*exec.Cmd, error) {
	orders, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(slices.Clone(os.Environ()), childEnv+"="+string(orders))
	return cmd, nil
}

// spawn runs a child to its end, and reports whether it has killed itself.
func (c child) spawn(ctx context.Context) (out said, killed bool, err error) {
	cmd, err := c.command(ctx)
	if err != nil {
		return said{}, false, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL && c.KillAt > 0 {
			return said{}, true, nil
		}
	}
	if err == nil {
		err = json.Unmarshal(stdout.Bytes(), &out)
	}
	if err != nil {
		err = fmt.Errorf("child %s killed %v: %w\n%s%s", c.Tool, c, err, stdout.Bytes(), stderr.Bytes())
	}
	return out, false, err
}
