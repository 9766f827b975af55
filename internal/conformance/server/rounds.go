//lint:file-ignore SA1019 sampling, roots and logging are deprecated with revision 2026-07-28, and in its suite

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// The forms that the suite fills in.
type (
	nameForm struct {
		Name string `json:"name"`
	}
	colorForm struct {
		Color string `json:"color"`
	}
	okForm struct {
		OK bool `json:"ok"`
	}
	contextForm struct {
		Context string `json:"context"`
	}
)

// addRounds adds the tools that ask in rounds. Those that only read carry their
// journal in the request state; the others keep it in the store.
func addRounds(s *tallystick.Server) {
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	add := func(name, description string, a *mcp.ToolAnnotations, opts *tallystick.ToolOptions, h func(*tallystick.Call) (string, error)) {
		tallystick.AddTool(s, &mcp.Tool{Name: name, Description: description, Annotations: a}, opts,
			func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				said, err := h(call)
				if err != nil {
					return nil, nil, err
				}
				return result(text(said)), nil, nil
			})
	}
	// The suite sends this one answers in its first request, which was never
	// asked: what binds an answer to a question is given up for it alone.
	add("test_input_required_result_elicitation", "Asks for a name.", reads, &tallystick.ToolOptions{AcceptUnaskedAnswers: true}, askName)
	add("test_input_required_result_sampling", "Asks the model.", reads, nil, askModel)
	add("test_input_required_result_list_roots", "Asks for the roots.", reads, nil, askRoots)
	add("test_input_required_result_request_state", "Asks to confirm.", nil, nil, askOK)
	add("test_input_required_result_multiple_inputs", "Asks three things at once.", nil, nil, askAll)
	add("test_input_required_result_multi_round", "Asks one thing after another.", nil, nil, askTwice)
	add("test_input_required_result_tampered_state", "Asks to confirm, and takes no forged state.", reads, nil, askOK)
	add("test_input_required_result_capabilities", "Asks the model alone.", reads, nil, askModel)
	add("test_missing_capability", "Asks the model.", nil, nil, askModel)
	add("test_streaming_elicitation", "Asks for a name.", nil, nil, askName)
	add("test_tool_with_progress", "Reports how far it is.", nil, nil, countUp)
	addRegion(s)
	tallystick.AddPrompt(s, &mcp.Prompt{Name: "test_input_required_result_prompt", Description: "A prompt that asks for its context."}, askContext)
}

func askName(call *tallystick.Call) (string, error) {
	form, err := tallystick.Ask[nameForm](call, tallystick.Question{Key: "user_name", Message: "What is your name?"})
	return "Hello, " + form.Name + "!", err
}

func askContext(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
	form, err := tallystick.Ask[contextForm](call, tallystick.Question{Key: "user_context", Message: "What is the context?"})
	if err != nil {
		return nil, err
	}
	return prompt(text("The context is: " + form.Context)), nil
}

func askModel(call *tallystick.Call) (string, error) {
	got, err := sampled(call, "capital_question", "What is the capital of France?")
	return "The model says: " + got, err
}

func askRoots(call *tallystick.Call) (string, error) {
	n, err := rootCount(call)
	return fmt.Sprintf("The client has %d roots.", n), err
}

func askOK(call *tallystick.Call) (string, error) {
	form, err := tallystick.Ask[okForm](call, tallystick.Question{Key: "confirm", Message: "Is this all right?"})
	return fmt.Sprintf("state-ok: the answer is %t", form.OK), err
}

// askAll asks everything before it looks at any answer, so that all three
// questions go out together.
func askAll(call *tallystick.Call) (string, error) {
	form, nameErr := tallystick.Ask[nameForm](call, tallystick.Question{Key: "user_name", Message: "What is your name?"})
	greeting, modelErr := sampled(call, "greeting", "Write a greeting.")
	n, rootsErr := rootCount(call)
	return fmt.Sprintf("%s %s: %d roots", greeting, form.Name, n), errors.Join(nameErr, modelErr, rootsErr)
}

// askTwice needs the first answer before it can ask for the second. The suite
// sends each once, so the first must be remembered.
func askTwice(call *tallystick.Call) (string, error) {
	who, err := tallystick.Ask[nameForm](call, tallystick.Question{Key: "step1", Message: "What is your name?"})
	if err != nil {
		return "", err
	}
	what, err := tallystick.Ask[colorForm](call, tallystick.Question{Key: "step2", Message: "What is your favourite colour, " + who.Name + "?"})
	return who.Name + " likes " + what.Color, err
}

// sampled asks the client's model and returns the text it wrote.
func sampled(call *tallystick.Call, key, ask string) (string, error) {
	got, err := call.Input(tallystick.Question{Key: key}, &mcp.CreateMessageParams{
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: text(ask)}},
		MaxTokens: 100,
	})
	if err != nil {
		return "", err
	}
	message, ok := got.(*mcp.CreateMessageWithToolsResult)
	if !ok {
		return "", fmt.Errorf("the model's answer is a %T", got)
	}
	var said strings.Builder
	for _, c := range message.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			said.WriteString(t.Text)
		}
	}
	return said.String(), nil
}

// rootCount asks the client for its roots.
func rootCount(call *tallystick.Call) (int, error) {
	got, err := call.Input(tallystick.Question{Key: "client_roots"}, &mcp.ListRootsParams{})
	if err != nil {
		return 0, err
	}
	roots, ok := got.(*mcp.ListRootsResult)
	if !ok {
		return 0, fmt.Errorf("the answer about roots is a %T", got)
	}
	return len(roots.Roots), nil
}

func countUp(call *tallystick.Call) (string, error) {
	for _, done := range []float64{0, 50, 100} {
		call.Report(fmt.Sprintf("%.0f of 100", done), done, 100)
		time.Sleep(50 * time.Millisecond)
	}
	return "Done.", nil
}

// addRegion adds the tool whose argument must equal the header Mcp-Param-Region.
func addRegion(s *tallystick.Server) {
	tallystick.AddTool(s, &mcp.Tool{
		Name: "test_x_mcp_header", Description: "Takes an argument that is also a header.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"region": {"type": "string", "description": "Also the header Mcp-Param-Region.", "x-mcp-header": "Region"},
				"level": {"type": "integer", "description": "No header."}
			}
		}`),
	}, nil, func(_ context.Context, _ *tallystick.Call, in map[string]any) (*mcp.CallToolResult, any, error) {
		return result(text(fmt.Sprintf("The region is %v.", in["region"]))), nil, nil
	})
}
