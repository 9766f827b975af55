package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// addBackground adds the tools of the Tasks scenarios.
func addBackground(s *tallystick.Server) {
	required := &tallystick.ToolOptions{Task: tallystick.TaskRequired}

	tallystick.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greets somebody, at once.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil, greet)
	tallystick.AddTool(s, &mcp.Tool{Name: "slow_compute", Description: "Takes as long as it is told to."},
		&tallystick.ToolOptions{Task: tallystick.TaskOptional}, slowCompute)
	tallystick.AddTool(s, &mcp.Tool{Name: "failing_job", Description: "A task whose result is an error."}, required, failingJob)
	tallystick.AddTool(s, &mcp.Tool{Name: "protocol_error_job", Description: "A task that fails with a JSON-RPC error."}, required, protocolErrorJob)
	tallystick.AddTool(s, &mcp.Tool{Name: "confirm_delete", Description: "A task that asks before it deletes a file."}, required, confirmDelete)
	tallystick.AddTool(s, &mcp.Tool{Name: "multi_input", Description: "A task that asks two things at once."}, required, multiInput)
	tallystick.AddTool(s, &mcp.Tool{Name: "test_tool_with_task", Description: "Asks for a name, then is a task."},
		&tallystick.ToolOptions{Task: tallystick.TaskRequired, AskFirst: true}, greetLater)
}

func greet(_ context.Context, _ *tallystick.Call, in nameForm) (*mcp.CallToolResult, any, error) {
	return result(text("Hello, " + in.Name + "!")), nil, nil
}

type slowArgs struct {
	Seconds int    `json:"seconds"`
	Label   string `json:"label,omitempty"`
}

func slowCompute(ctx context.Context, call *tallystick.Call, in slowArgs) (*mcp.CallToolResult, any, error) {
	for done := range in.Seconds {
		call.Report("computing "+in.Label, float64(done), float64(in.Seconds))
		if err := pause(ctx, time.Second); err != nil {
			return nil, nil, err
		}
	}
	return result(text(fmt.Sprintf("Computed %s in %d s.", in.Label, in.Seconds))), nil, nil
}

func failingJob(ctx context.Context, _ *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	if err := pause(ctx, time.Second); err != nil {
		return nil, nil, err
	}
	r := result(text("The job failed, as it always does."))
	r.IsError = true
	return r, nil, nil
}

func protocolErrorJob(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
	return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke the protocol, as it always does"}
}

type deleteArgs struct {
	Filename string `json:"filename"`
}

func confirmDelete(ctx context.Context, call *tallystick.Call, in deleteArgs) (*mcp.CallToolResult, any, error) {
	if err := call.Confirm(tallystick.Question{Key: "confirm", Message: "Delete " + in.Filename + "?"}); err != nil {
		return nil, nil, err
	}
	// The same file may be made and deleted again, so the effect has no Subject.
	said, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "delete"}, func(context.Context, string) (string, error) {
		return "Deleted " + in.Filename + ".", nil
	})
	if err != nil {
		return nil, nil, err
	}
	return result(text(said)), nil, nil
}

// multiInput asks both questions before it looks at either answer.
func multiInput(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	who, nameErr := tallystick.Ask[nameForm](call, tallystick.Question{Key: "name", Message: "What is your name?"})
	sureErr := call.Confirm(tallystick.Question{Key: "confirm", Message: "Are you sure?"})
	if err := errors.Join(nameErr, sureErr); err != nil {
		return nil, nil, err
	}
	return result(text(who.Name + " is sure.")), nil, nil
}

func greetLater(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	said, err := askName(call)
	if err != nil {
		return nil, nil, err
	}
	call.Report("greeting", 0, 1)
	return result(text(said)), nil, nil
}

// pause waits, or returns why the run must end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
