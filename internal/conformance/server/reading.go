package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addPlainResources adds the resources, none of which asks anything.
func addPlainResources(s *mcp.Server) {
	for _, r := range []struct {
		name, description string
		contents          mcp.ResourceContents
	}{
		{"static-text", "Some text.", mcp.ResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "The content of a text resource."}},
		{"static-binary", "A picture.", mcp.ResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: decode(pixelPNG)}},
	} {
		s.AddResource(&mcp.Resource{Name: r.name, Description: r.description, URI: r.contents.URI, MIMEType: r.contents.MIMEType},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&r.contents}}, nil
			})
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "template", Description: "Data about an id.", URITemplate: "test://template/{id}/data", MIMEType: "application/json",
	}, readTemplate)
}

func readTemplate(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
	data, err := json.Marshal(map[string]string{"id": id, "data": "Data about " + id})
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: req.Params.URI, MIMEType: "application/json", Text: string(data)},
	}}, nil
}

// addPlainPrompts adds the prompts that ask nothing.
func addPlainPrompts(s *mcp.Server) {
	s.AddPrompt(&mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt without arguments."}, says("A simple prompt, for testing."))
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_arguments", Description: "A prompt with two arguments.",
		Arguments: []*mcp.PromptArgument{
			{Name: "arg1", Description: "The first.", Required: true},
			{Name: "arg2", Description: "The second.", Required: true},
		},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(text(fmt.Sprintf("The arguments are %q and %q.", req.Params.Arguments["arg1"], req.Params.Arguments["arg2"]))), nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_embedded_resource", Description: "A prompt with a resource inside.",
		Arguments: []*mcp.PromptArgument{{Name: "resourceUri", Description: "Which resource.", Required: true}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(inside(req.Params.Arguments["resourceUri"], "An embedded resource."), text("Please look at the resource.")), nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "test_prompt_with_image", Description: "A prompt with an image."},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return prompt(image(), text("Please look at the image.")), nil
		})
}

// says is a prompt's handler that says one thing.
func says(s string) mcp.PromptHandler {
	return func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(text(s)), nil
	}
}

func prompt(content ...mcp.Content) *mcp.GetPromptResult {
	r := &mcp.GetPromptResult{}
	for _, c := range content {
		r.Messages = append(r.Messages, &mcp.PromptMessage{Role: "user", Content: c})
	}
	return r
}

// complete proposes values for arg1 of test_prompt_with_arguments.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	if ref := req.Params.Ref; ref != nil && ref.Name == "test_prompt_with_arguments" && req.Params.Argument.Name == "arg1" {
		for _, value := range []string{"paris", "park", "party"} {
			if strings.HasPrefix(value, req.Params.Argument.Value) {
				values = append(values, value)
			}
		}
		slices.Sort(values)
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}
