package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

// A board is a server of many tasks, which tells of all that it is asked to.
type board struct {
	t   *testing.T
	end chan struct{} // closed: all tasks are done

	mu     sync.Mutex // guards what follows
	open   map[*listened]bool
	opened int
	most   int // tasks in one listen
}

// A listened is one listen that is open.
type listened struct {
	ids  []string
	drop chan struct{} // closed: the server ends it
}

func (b *board) listen(w http.ResponseWriter, r request) {
	var asked struct {
		TaskIDs []string `json:"taskIds"`
	}
	if err := json.Unmarshal([]byte(r.param("notifications")), &asked); err != nil {
		b.t.Error(err)
	}
	one := &listened{ids: asked.TaskIDs, drop: make(chan struct{})}
	ids, err := json.Marshal(one.ids)
	if err != nil {
		b.t.Error(err)
	}
	listening(strings.Trim(string(ids), "[]"), func(send func(string), r request) {
		b.mu.Lock()
		b.open[one] = true
		b.opened++
		b.most = max(b.most, len(one.ids))
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			delete(b.open, one)
			b.mu.Unlock()
		}()
		select {
		case <-b.end:
			for _, id := range one.ids {
				send(strings.Replace(tellTask(r, "completed", completedTask), "t-1", id, 1))
			}
			silence(nil, r)
		case <-one.drop:
		case <-r.HTTP.Context().Done():
		}
	})(w, r)
}

// covered holds what is listened to against what there is: each task once, in
// as few listens as there can be.
func (b *board) covered(tasks int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	times := map[string]int{}
	for one := range b.open {
		for _, id := range one.ids {
			times[id]++
		}
	}
	for n := range tasks {
		if id := fmt.Sprintf("task-%d", n); times[id] != 1 {
			b.t.Errorf("%s is listened to %d times", id, times[id])
			return
		}
	}
	if least := (tasks + 499) / 500; len(b.open) != least || b.most > 500 {
		b.t.Errorf("%d listens, want %d; %d tasks in one", len(b.open), least, b.most)
	}
}

// Many tasks share few listens; of those that come later, too, none is polled.
// When a listen ends, its tasks are listened to again.
func TestManyTasksShareFewListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{t: t, end: make(chan struct{}), open: map[*listened]bool{}}
		f := fakeServer(t, map[string]saying{
			"tools/call": func(w http.ResponseWriter, r request) {
				result(strings.Replace(taskJSON("task", "working", `"pollIntervalMs":1000`), "t-1", "task-"+r.param("arguments", "n"), 1))(w, r)
			},
			"subscriptions/listen": b.listen,
			"tasks/get": func(w http.ResponseWriter, r request) {
				var id string
				if err := json.Unmarshal([]byte(r.param("taskId")), &id); err != nil {
					t.Error(err)
				}
				result(strings.Replace(taskJSON("complete", "working", ""), "t-1", id, 1))(w, r)
			},
		})
		c := f.client(client.Options{})
		var handles []*client.Handle
		start := func(n int) {
			for range n {
				h, err := c.Start(t.Context(), "pay", map[string]int{"n": len(handles)})
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
			time.Sleep(20 * time.Second)
		}
		start(700)
		b.covered(700)
		start(1) // joins the one with room
		b.covered(701)
		start(400)
		b.covered(1101)
		before := len(f.got("tasks/get"))
		time.Sleep(4 * time.Minute)
		if n := len(f.got("tasks/get")) - before; n != 0 {
			t.Errorf("polled %d times, though all are listened to", n)
		}
		b.mu.Lock()
		for one := range b.open {
			close(one.drop)
			break
		}
		if b.opened > 12 {
			t.Errorf("listened %d times in all", b.opened)
		}
		b.mu.Unlock()
		time.Sleep(20 * time.Second)
		b.covered(1101)
		close(b.end)
		for _, h := range handles {
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.open) != 0 {
			t.Errorf("%d listens are open, and nothing is to be told of", len(b.open))
		}
	})
}
