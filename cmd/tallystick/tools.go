package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

func toolsCommand() *cobra.Command {
	var c common
	var r reaching
	cmd := &cobra.Command{
		Use:   "tools SERVER [TOOL]",
		Short: "List a server's tools, or show what one takes",
		Long: `Lists the tools of a server with what they say of themselves, which nobody has
checked; or shows one with the schema of its arguments. A server that is a command
goes to the end, after "--".`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, r, func(a *app) error { return a.tools(cmd.ArgsLenAtDash(), args) })
		},
		ValidArgsFunction: completeServers,
	}
	c.add(cmd)
	r.add(cmd)
	return cmd
}

func (a *app) tools(dash int, args []string) error {
	t, rest, err := a.targetOf(dash, args)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usage("write: tools SERVER [TOOL]")
	}
	cl, err := a.reachedBy(t, nil, nil)
	if err != nil {
		return err
	}
	defer cl.Close()
	all, err := a.toolsOf(cl)
	if err != nil {
		return a.fail(failure{}, t.name, err)
	}
	if len(rest) == 1 {
		var one []*mcp.Tool
		for _, tool := range all {
			if tool.Name == rest[0] {
				one = append(one, tool)
			}
		}
		if all = one; len(all) == 0 {
			return usage("%s has no tool %s", safetext.Line(t.name), quoted(rest[0]))
		}
	}
	if a.json {
		return a.printTools(t.name, all)
	}
	for _, tool := range all {
		if err := a.text("%s%s", safetext.Line(tool.Name), hints(tool.Annotations)); err != nil {
			return err
		}
		if tool.Description != "" {
			if err := a.text("%s", safetext.Frame{Mark: "    "}.Block(tool.Description)); err != nil {
				return err
			}
		}
		if len(rest) == 1 {
			schema, err := json.Marshal(tool.InputSchema)
			if err != nil {
				return err
			}
			if err := a.text("%s", safetext.Frame{Mark: "    "}.JSON(schema)); err != nil {
				return err
			}
		}
	}
	return nil
}

// toolsOf lists the tools. It ends with a signal, and after the timeout or,
// without one, as long as a server that cannot be reached is tried.
func (a *app) toolsOf(cl *client.Client) ([]*mcp.Tool, error) {
	stopped, stop := signal.NotifyContext(a.ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	wait, flag := a.Timeout, "TALLYSTICK_TIMEOUT"
	if wait == 0 {
		wait, flag = a.outage, "--outage"
	}
	ctx, cancel := context.WithTimeout(stopped, wait)
	defer cancel()
	_, err := cl.Session(ctx)
	if err != nil {
		err = a.notReached(err)
	}
	var all []*mcp.Tool
	if err == nil {
		all, err = cl.Tools(ctx)
	}
	switch {
	case err == nil:
		return all, nil
	case stopped.Err() != nil:
		return nil, &client.Error{Kind: client.ErrCancelled, Reason: "the list was not waited for"}
	case ctx.Err() != nil:
		return nil, &client.Error{Kind: client.ErrUnreachable, Reason: fmt.Sprintf("it gave no list within %v: try again, or wait longer with %s", wait, flag)}
	}
	return nil, err
}

// notReached makes of an error in connecting what it would be for a call.
func (a *app) notReached(err error) error {
	var known *client.Error
	switch status := a.status.Load(); {
	case errors.As(err, &known):
		return err
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &client.Error{Kind: client.ErrUnauthorized, Reason: "give other credentials", Err: err}
	}
	return &client.Error{Kind: client.ErrUnreachable, Err: err}
}

func (a *app) printTools(server string, all []*mcp.Tool) error {
	doc := struct {
		Server string           `json:"server"`
		Tools  []jsontext.Value `json:"tools"`
	}{server, []jsontext.Value{}}
	for _, tool := range all {
		b, err := json.Marshal(tool)
		if err != nil {
			return err
		}
		doc.Tools = append(doc.Tools, b)
	}
	return a.print(doc)
}

// hints are what a tool says of itself.
func hints(n *mcp.ToolAnnotations) string {
	if n == nil {
		return ""
	}
	var said []string
	if n.ReadOnlyHint {
		said = append(said, "read-only")
	}
	if !n.ReadOnlyHint && n.DestructiveHint != nil && *n.DestructiveHint {
		said = append(said, "destructive")
	}
	if n.IdempotentHint {
		said = append(said, "idempotent")
	}
	if len(said) == 0 {
		return ""
	}
	return "  (says: " + strings.Join(said, ", ") + ")"
}
