package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"time"
)

// listening has clients listen to tasks that wait, and cancels one task after
// the other: the time is from sending the request that changes the task to the
// notification at the client that listens, with the durable write in between.
func listening(b *bench) (rows []row, err error) {
	d, err := b.open("tallystick", "listen")
	if err != nil {
		return nil, err
	}
	defer d.close(&err)
	changer, err := dial(d.address)
	if err != nil {
		return nil, err
	}
	defer changer.Close()
	var told, acked []float64
	streams := make([]*stream, len(d.crowd))
	ids := make([][]string, len(d.crowd))
	for i, c := range d.crowd {
		for range max(b.size.changes/len(d.crowd), 1) {
			id, err := c.create(creating(d.address, "ask"), nextOrder())
			if err != nil {
				return nil, err
			}
			if err := c.until(d.address, id, `"status":"input_required"`); err != nil {
				return nil, err
			}
			ids[i] = append(ids[i], id)
		}
		if streams[i], err = c.listen(d.address, ids[i]); err != nil {
			return nil, err
		}
	}
	cancel := compose(d.address, "tasks/cancel", place, nil)
	for n := range ids[0] {
		for i, s := range streams {
			request := cancel.fill(nil, ids[i][n])
			arrived := make(chan error, 1)
			var at time.Time
			start := time.Now()
			go func() {
				err := s.until(ids[i][n], `"status":"cancelled"`)
				at = time.Now()
				arrived <- err
			}()
			if _, err := changer.call(request); err != nil {
				return nil, err
			}
			acked = append(acked, time.Since(start).Seconds())
			if err := <-arrived; err != nil {
				return nil, err
			}
			told = append(told, at.Sub(start).Seconds())
		}
	}
	show := func(s []float64) string { return "p50 " + micros(median(s)) + ", p99 " + micros(quantile(s, 0.99)) }
	return []row{{
		figure: fmt.Sprintf("request that changes a task to the notification at a listening client (%d of them), against its response", len(streams)),
		ours:   show(told), baseline: show(acked), ratio: fmt.Sprintf("%.2f", median(told)/median(acked)),
	}}, nil
}

// until asks for a task until it is so.
func (c *conn) until(address, id, what string) error {
	request := getting(address).fill(nil, id)
	for range 10_000 {
		body, err := c.call(request)
		if err != nil || bytes.Contains(body, []byte(what)) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("a task does not get there: " + what)
}

// A stream is the response to a subscriptions/listen.
type stream struct{ lines *bufio.Reader }

func (c *conn) listen(address string, ids []string) (*stream, error) {
	request := compose(address, "subscriptions/listen", "", map[string]any{"notifications": map[string]any{"taskIds": ids}}).fill(nil)
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			break
		}
	}
	s := &stream{bufio.NewReader(httputil.NewChunkedReader(c.in))}
	return s, s.until("notifications/subscriptions/acknowledged", ids[0])
}

// until reads events until one has all of that.
func (s *stream) until(what ...string) error {
	for {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		all := true
		for _, w := range what {
			all = all && bytes.Contains(line, []byte(w))
		}
		if all {
			return nil
		}
	}
}
