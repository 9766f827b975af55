package tallysticktest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

type deleteArgs struct {
	File string `json:"file"`
}

// addDelete adds a tool that asks before it deletes a file.
func addDelete(s *tallystick.Server, disk map[string]bool) {
	tallystick.AddTool(s, &mcp.Tool{Name: "delete", Description: "Deletes a file."}, nil,
		func(ctx context.Context, call *tallystick.Call, in deleteArgs) (*mcp.CallToolResult, any, error) {
			err := call.Confirm(tallystick.Question{Key: "sure", Message: "Delete " + in.File + "?", Within: time.Hour})
			if err != nil {
				return nil, nil, err
			}
			_, err = tallystick.Once(ctx, call, tallystick.Effect{Name: "delete", Subject: in.File, Repeatable: true},
				func(ctx context.Context, key string) (bool, error) {
					delete(disk, in.File)
					return true, nil
				})
			return nil, nil, err
		})
}

var writer = tallystick.Identity{Tenant: "acme", Subject: "will"}

// In a test, pass its *testing.T where the examples pass a demonstration.
func ExampleNew() {
	t := &demonstration{}
	defer t.end()

	disk := map[string]bool{"draft": true}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addDelete(s, disk) }, nil)

	asked := b.As(writer).Call("delete", deleteArgs{"draft"})
	fmt.Println(asked.Asked("sure").Message, asked.Status())

	b.Restart() // the client has its half of the tally, the store the other

	fmt.Println(asked.Confirm("sure").Status(), len(disk), "files left")
	// Output:
	// Delete draft? input_required
	// completed 0 files left
}

func ExampleBench_Advance() {
	t := &demonstration{}
	defer t.end()

	disk := map[string]bool{"draft": true}
	b := tallysticktest.New(t, func(s *tallystick.Server) { addDelete(s, disk) }, nil)

	asked := b.As(writer).Call("delete", deleteArgs{"draft"})
	b.Advance(2 * time.Hour)
	fmt.Println(asked.Confirm("sure").Outcome(), len(disk), "files left")
	// Output:
	// expired 1 files left
}

func ExampleCrashEverywhere() {
	t := &demonstration{}
	defer t.end()

	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		disk := map[string]bool{"draft": true} // the far side, which survives
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addDelete(s, disk) },
			Scenario: func(b *tallysticktest.Bench) {
				b.As(writer).Call("delete", deleteArgs{"draft"}).Confirm("sure").Await("completed")
			},
			Check: func(b *tallysticktest.Bench) {
				if len(disk) != 0 {
					t.Errorf("the file is still there")
				}
			},
		}
	})
	// Output:
	// 5 writes; survived 10 crashes
}

// Somebody else decides, out of band.
func ExampleCaller_Approve() {
	t := &demonstration{}
	defer t.end()

	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "publish"}, nil,
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				who := tallystick.Who{Roles: []string{"editor"}, NotRequester: true}
				return nil, nil, call.Confirm(tallystick.Question{Key: "publish", Message: "Publish?", Who: who})
			})
	}, nil)
	editor := tallystick.Identity{Tenant: "acme", Subject: "edna", Roles: []string{"editor"}}

	r := b.As(writer).Call("publish", nil)
	fmt.Println(r.Status())
	err := b.As(writer).Approve(r, "publish", nil)
	fmt.Println("by the requester:", errors.Is(err, tallystick.ErrNoQuestion))
	err = b.As(editor).Approve(r, "publish", nil)
	fmt.Println("by the editor:", err, r.Await("completed").Status())
	// Output:
	// pending
	// by the requester: true
	// by the editor: <nil> completed
}

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
