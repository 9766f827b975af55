package tallysticktest

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// Waiting is what waits for the caller's decision, out of band: what a page
// would show them.
func (c *Caller) Waiting() []tallystick.Waiting {
	c.b.t.Helper()
	for {
		p := c.b.current()
		var list []tallystick.Waiting
		var err error
		if !p.do(func() { list, err = p.server.Waiting(context.Background(), c.id) }) {
			c.b.revive(p)
			continue
		}
		if err != nil {
			c.b.t.Fatalf("Waiting: %v", err)
		}
		return list
	}
}

// Approve says yes, out of band, to the question with that key of the call that
// the result names. It first waits for the handler to ask. content is what a
// form asks for; nil says yes to a Call.Confirm. The error is that of
// Server.Decide; for whom the question is not, ErrNoQuestion.
func (c *Caller) Approve(of *Result, key string, content any) error {
	c.b.t.Helper()
	d := tallystick.Decision{Accept: true}
	if content != nil {
		raw, err := json.Marshal(content)
		if err != nil {
			return err
		}
		d.Content = raw
	}
	return c.answer(of, key, d)
}

// Reject says no, out of band; see [Caller.Approve].
func (c *Caller) Reject(of *Result, key string) error {
	c.b.t.Helper()
	return c.answer(of, key, tallystick.Decision{})
}

// Resolve says whether a held effect of the call that the result names has
// happened, and with what result (marshalled to JSON).
func (c *Caller) Resolve(of *Result, effect, subject string, happened bool, result any) error {
	c.b.t.Helper()
	d := tallystick.Decision{CallID: of.CallID(), Effect: effect, Subject: subject, Happened: happened}
	if happened {
		raw, err := json.Marshal(result)
		if err != nil {
			return err
		}
		d.Result = raw
	}
	return c.Decide(d)
}

// answer decides on a question in the words in which the caller is shown it.
func (c *Caller) answer(of *Result, key string, d tallystick.Decision) error {
	c.b.t.Helper()
	d.CallID, d.Key = of.CallID(), key
	if d.CallID == "" {
		of.fatalf("it names no call to decide on")
	}
	c.b.until("the call asks "+key, func() bool {
		c.b.mend()
		call, err := c.b.world.inner.Load(context.Background(), d.CallID)
		if err != nil || call.State != record.Ready && call.State != record.Running {
			return true
		}
		for _, q := range call.Open() {
			if q.Key == key {
				return true
			}
		}
		return false
	})
	for _, w := range c.Waiting() {
		if w.CallID == d.CallID && (w.Key == key || isAgain(w.Key, key)) {
			d.Key, d.Digest = w.Key, w.Digest
		}
	}
	return c.Decide(d)
}

// Decide decides as the caller, out of band. If the server dies before it says
// that the decision is recorded, it is made again; that it is settled by then is
// no error.
func (c *Caller) Decide(d tallystick.Decision) error {
	c.b.t.Helper()
	for lost := false; ; lost = true {
		p := c.b.current()
		var err error
		if !p.do(func() { err = p.server.Decide(context.Background(), c.id, d) }) {
			c.b.revive(p)
			continue
		}
		if lost && errors.Is(err, tallystick.ErrSettled) {
			return nil
		}
		return err
	}
}
