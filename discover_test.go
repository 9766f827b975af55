package tallystick_test

import (
	"testing"
)

// A client may send a request again only to a server that keeps its key: that
// is declared to whom it is true for.
func TestKeptKeysAreDeclaredToWhomTheyAreKeptFor(t *testing.T) {
	d := newDesk(t, setup{})
	kept := func(token string) (any, string) {
		r := d.as(token, capsNone).send("server/discover", "x", nil)
		have, _ := r.result["capabilities"].(map[string]any)
		extensions, _ := have["extensions"].(map[string]any)
		said, _ := extensions["tallystick/idempotencyKey"].(map[string]any)
		scope, _ := r.result["cacheScope"].(string)
		return said["keptMs"], scope
	}
	if ms, scope := kept("ann/acme"); ms != float64(24*60*60*1000) || scope != "private" {
		t.Errorf("ann is told %v, in a result that is %q", ms, scope)
	}
	if ms, _ := kept("/acme"); ms != nil {
		t.Errorf("somebody unknown is told %v", ms)
	}
}
