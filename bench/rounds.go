package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A desk is a server and the clients that are connected to it.
type desk struct {
	*process
	crowd
}

func (b *bench) open(role, folder string) (*desk, error) {
	p, err := start(role, filepath.Join(b.folder, folder))
	if err != nil {
		return nil, err
	}
	all, err := gather(p.address, b.size.clients)
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return &desk{p, all}, nil
}

func (d *desk) close(err *error) {
	d.crowd.close()
	*err = errors.Join(*err, d.stop())
}

// greeter has the clients call the tool greet.
func greeter(name string, d *desk) contender {
	request := compose(d.address, "tools/call", "greet", map[string]any{"arguments": map[string]any{"name": "Ann"}}).fill(nil)
	return contender{name, func(length time.Duration) (int, error) {
		return d.during(length, func(_ int, c *conn) error {
			_, err := c.want(request, `"structuredContent":{"greeting":"Hello, Ann!"}`)
			return err
		})
	}, d.cpu}
}

func greet(b *bench) (rows []row, err error) {
	var contenders []contender
	for _, role := range []string{"tallystick", "sdk", "bare"} {
		d, err := b.open(role, "greet")
		if err != nil {
			return nil, err
		}
		defer d.close(&err)
		contenders = append(contenders, greeter(role, d))
	}
	s, err := b.turns(contenders...)
	if err != nil {
		return nil, err
	}
	return []row{
		versus("plain tool, against the SDK", "≥ 8", s[0], s[1]),
		versus("plain tool, against net/http and encoding/json", "≥ 0.6", s[0], s[2]),
	}, nil
}

// orders gives each approval an order of its own.
var orders atomic.Int64

func nextOrder() string { return fmt.Sprintf("%09d", orders.Add(1)) }

// An approver calls the tool approve, and answers yes when it is asked.
type approver struct{ first, second message }

func newApprover(address string) approver {
	arguments := map[string]any{"order": place}
	yes := map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}
	return approver{
		compose(address, "tools/call", "approve", map[string]any{"arguments": arguments}),
		compose(address, "tools/call", "approve", map[string]any{
			"arguments": arguments, "inputResponses": map[string]any{"approve": yes}, "requestState": place,
		}),
	}
}

// ask makes a call, which asks, and returns its state.
func (a approver) ask(c *conn, order string) (state string, err error) {
	c.out = a.first.fill(c.out, order)
	body, err := c.want(c.out, `"resultType":"input_required"`)
	if err != nil {
		return "", err
	}
	return member(body, "requestState")
}

func (a approver) answer(c *conn, order, state string) error {
	c.out = a.second.fill(c.out, order, state)
	_, err := c.want(c.out, `"structuredContent":{"receipt":"R-`)
	return err
}

func (a approver) both(c *conn) error {
	order := nextOrder()
	state, err := a.ask(c, order)
	if err != nil {
		return err
	}
	return a.answer(c, order, state)
}

func approval(b *bench) (rows []row, err error) {
	var contenders []contender
	for _, role := range []string{"tallystick", "sdk"} {
		d, err := b.open(role, "approval")
		if err != nil {
			return nil, err
		}
		defer d.close(&err)
		a := newApprover(d.address)
		contenders = append(contenders, contender{role, func(length time.Duration) (int, error) {
			return d.during(length, func(_ int, c *conn) error { return a.both(c) })
		}, d.cpu})
	}
	s, err := b.turns(contenders...)
	if err != nil {
		return nil, err
	}
	return []row{versus("approval in two rounds, one effect, durable and once; the SDK's is neither", "≥ 2", s[0], s[1])}, nil
}
