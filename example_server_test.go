package tallystick_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/tallysticktest"
)

// A server over HTTP that drains when it is told to stop.
func ExampleServer_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	s, err := embedded.Open("data", mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	tallystick.AddTool(s.Server, &mcp.Tool{Name: "export"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
		func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})

	web := &http.Server{Addr: "127.0.0.1:8080", Handler: s.Handler(nil), ReadHeaderTimeout: 10 * time.Second}
	go web.ListenAndServe()
	if err := s.Run(ctx); err != nil { // returns when it has drained
		log.Print(err)
	}
	web.Shutdown(context.Background())
}

// A server over standard input and output.
func ExampleServer_Transport() {
	ctx := context.Background()
	plain := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	s, err := embedded.Open("data", plain, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	ctx, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	if err := plain.Run(ctx, s.Transport(&mcp.StdioTransport{})); err != nil {
		log.Print(err) // the client is gone
	}
	stop()
	<-done
}

// A long job runs as a task, for clients that know tasks.
func ExampleCall_Report() {
	t := &demonstration{}
	defer t.end()

	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "export"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
			func(ctx context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				for i := range 3 {
					call.Report(fmt.Sprintf("part %d of 3", i+1), float64(i+1), 3)
				}
				return said("exported"), nil, nil
			})
	}, nil)

	r := b.As(ann).Call("export", nil)
	fmt.Println(r.Await("completed").Text())
	// Output:
	// exported
}

// Middleware sees every request of this package's tools.
func ExampleServer_Use() {
	t := &demonstration{}
	defer t.end()

	b := tallysticktest.New(t, func(s *tallystick.Server) {
		s.Use(func(next tallystick.RequestHandler) tallystick.RequestHandler {
			return func(ctx context.Context, r *tallystick.Request) (json.RawMessage, error) {
				fmt.Println("before", r.Method, r.Name)
				res, err := next(ctx, r)
				fmt.Println("after", err)
				return res, err
			}
		})
		tallystick.AddTool(s, &mcp.Tool{Name: "ping"}, nil,
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return said("pong"), nil, nil
			})
	}, nil)
	fmt.Println(b.As(ann).Call("ping", nil).Text())
	// Output:
	// before tools/call ping
	// after <nil>
	// pong
}
