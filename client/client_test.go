package client_test

import (
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
