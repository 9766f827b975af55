//lint:file-ignore SA1019 sampling, roots and logging are deprecated with revision 2026-07-28, and in its suite

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The smallest PNG (one red pixel) and WAV (one silent sample) there are.
const (
	pixelPNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	blipWAV  = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func decode(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err) // of a constant above
	}
	return data
}

func image() *mcp.ImageContent {
	return &mcp.ImageContent{Data: decode(pixelPNG), MIMEType: "image/png"}
}

func audio() *mcp.AudioContent {
	return &mcp.AudioContent{Data: decode(blipWAV), MIMEType: "audio/wav"}
}

func text(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

// inside puts a text resource into an answer.
func inside(uri, s string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: s}}
}

func result(content ...mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: content} }

// addPlainTools adds the tools that need nothing of Tallystick.
func addPlainTools(s *mcp.Server) {
	for _, tool := range []struct {
		name, description string
		content           []mcp.Content
	}{
		// The suite calls the first tool of the list, which the SDK sorts by
		// name, without arguments: that must not be one that needs a task.
		{"about", "Says what this server is.", []mcp.Content{text("The fixtures of the MCP conformance suite, on Tallystick.")}},
		{"test_simple_text", "Answers with text.", []mcp.Content{text("Plain text, for testing.")}},
		{"test_image_content", "Answers with an image.", []mcp.Content{image()}},
		{"test_audio_content", "Answers with a sound.", []mcp.Content{audio()}},
		{"test_embedded_resource", "Answers with a resource inside.", []mcp.Content{inside("test://embedded", "An embedded resource.")}},
		{"test_multiple_content_types", "Answers with text, an image and a resource.", []mcp.Content{
			text("Text, and more."), image(), inside("test://embedded-too", "Another embedded resource."),
		}},
	} {
		mcp.AddTool(s, &mcp.Tool{Name: tool.name, Description: tool.description},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return result(tool.content...), nil, nil
			})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_error_handling", Description: "Always fails."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("this tool always fails")
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_logging_tool", Description: "Logs, if the request asks for logs."}, logged)
	mcp.AddTool(s, &mcp.Tool{
		Name: "json_schema_2020_12_tool", Description: "Takes arguments described with much of JSON Schema 2020-12.",
		InputSchema: json.RawMessage(contactSchema),
	}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return result(text("The arguments fit the schema.")), nil, nil
	})
	addListChanges(s)
}

// logged logs through the session, which drops what the request's logLevel
// does not ask for.
func logged(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "the tool ran"})
	return result(text("Ran.")), nil, err
}

// addListChanges adds the tools that change a list under a listening client.
// Adding anew what is there already counts as a change.
func addListChanges(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "test_trigger_tool_change", Description: "Changes the list of tools."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(s, &mcp.Tool{Name: "test_triggered_tool", Description: "Came with a change of the list."},
				func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
					return result(text("Here.")), nil, nil
				})
			return result(text("The list of tools has changed.")), nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_trigger_prompt_change", Description: "Changes the list of prompts."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			s.AddPrompt(&mcp.Prompt{Name: "test_triggered_prompt", Description: "Came with a change of the list."}, says("Here."))
			return result(text("The list of prompts has changed.")), nil, nil
		})
}

// contactSchema must reach the client word for word.
const contactSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {
		"address": {
			"$anchor": "addressDef",
			"type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}
		}
	},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`
