// Command client does what the official conformance suite wants of a client, by
// means of package client alone. The suite names the scenario in the
// environment and appends the URL of its server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if len(os.Args) < 2 {
		log.Fatal("usage: client URL, with MCP_CONFORMANCE_SCENARIO in the environment")
	}
	if err := run(ctx, os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[len(os.Args)-1]); err != nil {
		log.Fatal(err)
	}
}

// scenarios are what the suite's scenarios want to see.
var scenarios = map[string]func(context.Context, *stand) error{
	"tools_call":                          addNumbers,
	"request-metadata":                    list,
	"json-schema-ref-no-deref":            list,
	"sep-2322-client-request-state":       rounds,
	"http-standard-headers":               everyKind,
	"http-custom-headers":                 calls,
	"http-invalid-tool-headers":           everyTool,
	"json-schema-2020-12-preservation":    echoSchema,
	"elicitation-sep1034-client-defaults": func(ctx context.Context, s *stand) error { return s.call(ctx, "test_client_elicitation_defaults", nil) },
}

// A stand is the client and what it is asked.
type stand struct {
	*client.Client
	between func(context.Context) error // once, before the first answer
}

func run(ctx context.Context, scenario, url string) error {
	do := scenarios[scenario]
	if do == nil {
		return fmt.Errorf("no such scenario: %q", scenario)
	}
	folder, err := os.MkdirTemp("", "conformance-client-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	memory, err := client.OpenMemory(ctx, client.MemoryOptions{Path: filepath.Join(folder, "calls.db")})
	if err != nil {
		return err
	}
	s := new(stand)
	s.Client, err = client.New(client.Options{
		Memory: memory, Server: url, Answerer: s,
		Info: &mcp.Implementation{Name: "tallystick-conformance", Version: "1"},
		Transport: func() (mcp.Transport, error) {
			return &mcp.StreamableClientTransport{Endpoint: url}, nil
		},
	})
	if err != nil {
		return errors.Join(err, memory.Close())
	}
	return errors.Join(do(ctx, s), s.Close(), memory.Close())
}

func (*stand) Kinds() []client.Kind { return []client.Kind{client.Form} }

// Answer plays a person who takes the form's suggestions, and says yes to the
// rest.
func (s *stand) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	if f := s.between; f != nil {
		s.between = nil
		if err := f(ctx); err != nil {
			return client.Answer{}, err
		}
	}
	var form struct {
		Properties map[string]struct {
			Type    string          `json:"type"`
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(q.Schema, &form); err != nil {
		return client.Answer{}, err
	}
	content := map[string]any{}
	for name, p := range form.Properties {
		switch {
		case p.Default != nil:
			content[name] = p.Default
		case p.Type == "boolean":
			content[name] = true
		case p.Type == "string":
			content[name] = "test"
		}
	}
	return client.Accept(content)
}

func (s *stand) call(ctx context.Context, tool string, args any) error {
	_, err := s.Call(ctx, tool, args)
	return err
}

func list(ctx context.Context, s *stand) error {
	_, err := s.Tools(ctx)
	return err
}

func addNumbers(ctx context.Context, s *stand) error {
	return errors.Join(list(ctx, s), s.call(ctx, "add_numbers", map[string]int{"a": 5, "b": 3}))
}

// rounds calls another tool between the rounds of the first.
func rounds(ctx context.Context, s *stand) error {
	s.between = func(ctx context.Context) error { return s.call(ctx, "test_mrtr_unrelated", nil) }
	return errors.Join(
		list(ctx, s),
		s.call(ctx, "test_mrtr_echo_state", nil),
		s.call(ctx, "test_mrtr_no_state", nil),
		s.call(ctx, "test_mrtr_no_result_type", nil),
	)
}

func everyKind(ctx context.Context, s *stand) error {
	session, err := s.Session(ctx)
	if err != nil {
		return err
	}
	_, resources := session.ListResources(ctx, nil)
	_, prompts := session.ListPrompts(ctx, nil)
	_, file := s.ReadResource(ctx, "file:///path/to/file%20name.txt")
	_, page := s.ReadResource(ctx, "https://example.com/resource?id=123")
	_, prompt := s.GetPrompt(ctx, "test_prompt", nil)
	return errors.Join(list(ctx, s), resources, prompts, file, page, prompt,
		s.call(ctx, "test_headers", nil), s.call(ctx, "my-hyphenated-tool", nil))
}

// calls makes the calls that the suite names, which tell the tools' headers.
func calls(ctx context.Context, s *stand) error {
	var wanted struct {
		Calls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &wanted); err != nil {
		return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	err := list(ctx, s)
	for _, c := range wanted.Calls {
		err = errors.Join(err, s.call(ctx, c.Name, c.Arguments))
	}
	return err
}

// everyTool calls each tool that is fit to be called.
func everyTool(ctx context.Context, s *stand) error {
	tools, err := s.Tools(ctx)
	for _, t := range tools {
		err = errors.Join(err, s.call(ctx, t.Name, map[string]string{"region": "eu"}))
	}
	return err
}

func echoSchema(ctx context.Context, s *stand) error {
	tools, err := s.Tools(ctx)
	for _, t := range tools {
		if t.Name == "json_schema_2020_12_tool" {
			return s.call(ctx, "json_schema_echo", map[string]any{"schema": t.InputSchema})
		}
	}
	return errors.Join(err, errors.New("no tool json_schema_2020_12_tool"))
}
