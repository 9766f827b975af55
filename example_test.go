package tallystick_test

import (
	"fmt"
	"os"

	"github.com/tallystick/tallystick"
)

var (
	ann = tallystick.Identity{Tenant: "acme", Subject: "ann"}
	eve = tallystick.Identity{Tenant: "acme", Subject: "eve", Roles: []string{"finance", "operator"}}
)

// A demonstration is what an example has in place of a *testing.T.
type demonstration struct {
	failed  bool
	cleanup []func()
}

func (d *demonstration) Helper()                           {}
func (d *demonstration) Failed() bool                      { return d.failed }
func (d *demonstration) Cleanup(f func())                  { d.cleanup = append(d.cleanup, f) }
func (d *demonstration) Logf(f string, args ...any)        { fmt.Printf(f+"\n", args...) }
func (d *demonstration) Errorf(format string, args ...any) { d.failed = true; d.Logf(format, args...) }
func (d *demonstration) Fatalf(format string, args ...any) { d.Logf(format, args...); os.Exit(1) }
func (d *demonstration) end() {
	for i := len(d.cleanup) - 1; i >= 0; i-- {
		d.cleanup[i]()
	}
}
