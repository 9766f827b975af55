package tallystick_test

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

type exportArgs struct {
	Year int `json:"year"`
}

// What is quick is answered at once. What is not becomes a task while it runs,
// for a client that can watch one; any other goes on waiting.
func ExampleToolOptions_taskAfter() {
	t := &demonstration{}
	defer t.end()

	archive := make(chan bool) // answers in its own time
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "export"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 50 * time.Millisecond},
			func(ctx context.Context, call *tallystick.Call, in exportArgs) (*mcp.CallToolResult, any, error) {
				if in.Year < 2020 {
					call.Report("fetching it from the archive", 0, 1)
					<-archive
				}
				return said(fmt.Sprintf("the export of %d", in.Year)), nil, nil
			})
	}, nil)

	watcher := b.As(ann, tallysticktest.Tasks)
	quick := watcher.Call("export", exportArgs{2026})
	fmt.Println(quick.IsTask(), quick.Text())

	slow := watcher.Call("export", exportArgs{2011})
	fmt.Println(slow.IsTask(), slow.Status(), slow.StatusMessage())
	close(archive)
	fmt.Println(slow.Await("completed").Text())
	// Output:
	// false the export of 2026
	// true working fetching it from the archive
	// the export of 2011
}
