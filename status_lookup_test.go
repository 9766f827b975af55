package tallystick_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// brokenLoads is a store that cannot read.
type brokenLoads struct{ store.Store }

func (brokenLoads) Load(context.Context, string) (*record.Call, error) {
	return nil, errors.New("sqlite3: disk I/O error")
}

// That a call could not be looked up is no word on how it ended, and what the
// store says of it is for the log.
func TestAStatusThatCannotBeLookedUpIsAnInternalError(t *testing.T) {
	d := newDesk(t, setup{opts: tallystick.Options{Store: brokenLoads{memory.New(memory.Options{})}}})
	r := d.as("ann/acme", capsNone).call("call_status", map[string]any{"callId": "x"})
	if !strings.Contains(string(r.raw), "-32603") || strings.Contains(string(r.raw), "disk I/O") {
		t.Errorf("the answer is %s", r.raw)
	}
}
