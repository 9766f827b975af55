package client_test

import (
	"errors"
	"testing"

	"github.com/tallystick/tallystick/client"
)

func TestACallIsDrivenThroughItsRounds(t *testing.T) {
	d, p := newDesk(t), yes()
	c := newClient(t, client.Options{Transport: web(d.url, "ann"), Answerer: p})
	r, err := c.Call(t.Context(), "refund", order{"1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := structured(t, r); got != `{"order":"R-1"}` || p.times() != 1 || d.refunds.Load() != 1 {
		t.Errorf("result %s, asked %d times, refunded %d times", got, p.times(), d.refunds.Load())
	}
}

func TestACallIsDrivenAsATask(t *testing.T) {
	d, p := newDesk(t), yes()
	c := newClient(t, client.Options{Transport: web(d.url, "ann"), Answerer: p})
	r, err := c.Call(t.Context(), "job", order{"1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := structured(t, r); got != `{"order":"J-1"}` || p.times() != 1 || d.refunds.Load() != 1 {
		t.Errorf("result %s, asked %d times, done %d times", got, p.times(), d.refunds.Load())
	}
}

func TestSessionsOfServersThatAreNotThereSayWhy(t *testing.T) {
	d := newDesk(t)
	for _, one := range []struct {
		url, token string
		want       error
	}{
		{"http://127.0.0.1:1/mcp", "ann", client.ErrUnreachable},
		{d.url, "bad", client.ErrUnauthorized},
	} {
		c := newClient(t, client.Options{Transport: web(one.url, one.token)})
		if _, err := c.Session(t.Context()); !errors.Is(err, one.want) {
			t.Errorf("the session of %s: %v", one.url, err)
		}
		if _, err := c.Tools(t.Context()); !errors.Is(err, one.want) {
			t.Errorf("the tools of %s: %v", one.url, err)
		}
	}
}
