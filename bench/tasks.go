package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallystick/tallystick/embedded"
)

// create makes a task and returns its id.
func (c *conn) create(m message, order string) (string, error) {
	c.out = m.fill(c.out, order)
	body, err := c.want(c.out, `"resultType":"task"`)
	if err != nil {
		return "", err
	}
	return member(body, "taskId")
}

func creating(address, tool string) message {
	return compose(address, "tools/call", tool, map[string]any{"arguments": map[string]any{"order": place}})
}

func getting(address string) message { return compose(address, "tasks/get", place, nil) }

// taskGet asks for tasks that are being worked on, one for each client.
func taskGet(b *bench) (rows []row, err error) {
	d, err := b.open("tallystick", "get")
	if err != nil {
		return nil, err
	}
	defer d.close(&err)
	sdk, err := b.open("sdk", "")
	if err != nil {
		return nil, err
	}
	defer sdk.close(&err)
	requests := make([][]byte, len(d.crowd))
	for i, c := range d.crowd {
		id, err := c.create(creating(d.address, "long"), nextOrder())
		if err != nil {
			return nil, err
		}
		if _, err := d.next("running "); err != nil {
			return nil, err
		}
		requests[i] = getting(d.address).fill(nil, id)
	}
	s, err := b.turns(contender{"tasks/get", func(length time.Duration) (int, error) {
		return d.during(length, func(client int, c *conn) error {
			_, err := c.want(requests[client], `"status":"working"`)
			return err
		})
	}, d.cpu}, greeter("sdk", sdk))
	if err != nil {
		return nil, err
	}
	return []row{versus("`tasks/get` of a live task, against a plain tool of the SDK", "≥ 8", s[0], s[1])}, nil
}

// taskLife has tasks made by all clients at once, and waits until all of them
// are completed.
func taskLife(b *bench) (rows []row, err error) {
	d, err := b.open("tallystick", "task")
	if err != nil {
		return nil, err
	}
	defer d.close(&err)
	batch := func(time.Duration) (int, error) { return d.lives(b.size.batch) }
	if _, err := batch(0); err != nil { // so that there is something to look at
		return nil, err
	}
	life, err := lookInto(filepath.Join(b.folder, "task", embedded.StoreFile))
	if err != nil {
		return nil, err
	}
	raw, err := openRaw(filepath.Join(b.folder, "raw.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.close()) }()
	own := func() (time.Duration, error) { return ownCPU(), nil }
	s, err := b.turns(contender{"tasks", batch, d.cpu}, contender{"raw SQLite", func(time.Duration) (int, error) {
		return raw.lives(b.size.batch, b.size.clients, life)
	}, own})
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("task from created to completed, against %d durable writes of %d bytes each to SQLite alone", life.writes, life.bytes)
	return []row{versus(what, "≥ 0.5", s[0], s[1])}, nil
}

// lives makes n tasks and waits until they are completed.
func (d *desk) lives(n int) (int, error) {
	ids := make([][]string, len(d.crowd))
	create, get := creating(d.address, "job"), getting(d.address)
	if _, err := d.times(n, func(client int, c *conn) error {
		id, err := c.create(create, nextOrder())
		ids[client] = append(ids[client], id)
		return err
	}); err != nil {
		return 0, err
	}
	return d.each(func(client int, c *conn) (int, error) {
		for _, id := range ids[client] {
			for {
				c.out = get.fill(c.out, id)
				body, err := c.call(c.out)
				if err != nil {
					return 0, err
				}
				if bytes.Contains(body, []byte(`"status":"completed"`)) {
					break
				}
				if !bytes.Contains(body, []byte(`"status":"working"`)) {
					return 0, fmt.Errorf("a task is not as it should be: %.500s", body)
				}
				time.Sleep(time.Millisecond) // the last ones are still to come
			}
		}
		return len(ids[client]), nil
	})
}

// each has every client do something, at once, and adds up what they say.
func (all crowd) each(f func(client int, c *conn) (int, error)) (int, error) {
	var work sync.WaitGroup
	counts, errs := make([]int, len(all)), make([]error, len(all))
	for client, c := range all {
		work.Go(func() { counts[client], errs[client] = f(client, c) })
	}
	work.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum, errors.Join(errs...)
}
