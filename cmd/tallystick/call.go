package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
)

// calling flags, of commands that make a call.
type calling struct {
	common
	reaching
	answering
	prompt, resource bool
}

func (c *calling) add(cmd *cobra.Command) {
	c.common.add(cmd)
	c.reaching.add(cmd)
	c.answering.add(cmd)
	cmd.Flags().BoolVar(&c.prompt, "prompt", false, "NAME is a prompt")
	cmd.Flags().BoolVar(&c.resource, "resource", false, "NAME is the URI of a resource")
	cmd.MarkFlagsMutuallyExclusive("prompt", "resource")
	cmd.Flags().Duration("deadline", 0, "how long the call may take, people's time included (default 24h)")
	cmd.Flags().Duration("timeout", 0, "how long this command waits; the call goes on (default: until it ends)")
	cmd.ValidArgsFunction = completeServers
}

const callArguments = `SERVER is a name of the settings, or a URL. A command that speaks MCP on its
standard input and output goes to the end instead, after "--". The arguments are one
JSON object; "-" reads it from standard input.`

func callCommand() *cobra.Command {
	var c calling
	cmd := &cobra.Command{
		Use:   "call SERVER NAME [JSON]",
		Short: "Call a tool and see it through",
		Long: `Calls a tool, or gets a prompt or reads a resource, and sees it through: asks you
what the server asks, watches the task if it becomes one, and prints the result.
The first Ctrl-C cancels the call, the second lets go of it: it can be resumed.

Where there is no terminal nobody is asked: a question that --answer, --yes,
--decline and --dismiss do not answer, by its key, ends the command at once. It is
kept, and "tallystick answer" goes on from there.

` + callArguments,
		Example: `  tallystick call desk refund '{"orderId":"A-1001"}'
  tallystick call desk refund '{"orderId":"A-1001"}' --yes approve --json
  tallystick call notes '{"title":"Milk"}' -- ./notes --stdio`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c.common, c.reaching, func(a *app) error {
				return a.call(c, false, cmd.ArgsLenAtDash(), args)
			})
		},
	}
	c.add(cmd)
	return cmd
}

func startCommand() *cobra.Command {
	var c calling
	cmd := &cobra.Command{
		Use:   "start SERVER NAME [JSON]",
		Short: "Call a tool and come back for the rest later",
		Long: `Calls a tool and returns as soon as the rest can be had later: the call has
become a task, questions are open, or it has ended. It asks nobody: see
"tallystick answer". Its id is on standard output.

A tool that is neither a task nor asks anything works for as long as this command
waits; "start" waits for it.

` + callArguments,
		Example: `  id=$(tallystick start desk export '{"month":"2026-07"}')
  tallystick watch $id`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c.common, c.reaching, func(a *app) error {
				return a.call(c, true, cmd.ArgsLenAtDash(), args)
			})
		},
	}
	c.add(cmd)
	return cmd
}

// call makes a call, and sees it through or comes back for it later.
func (a *app) call(c calling, later bool, dash int, args []string) error {
	t, rest, err := a.targetOf(dash, args)
	if err != nil {
		return err
	}
	if len(rest) == 0 || len(rest) > 2 {
		return usage("write: SERVER NAME [JSON], or NAME [JSON] -- COMMAND [ARGUMENT...]")
	}
	arguments, err := a.arguments(rest[1:])
	if err != nil {
		return err
	}
	f, err := a.follow(c.answering, !later)
	if err != nil {
		return err
	}
	defer f.stop()
	cl, err := f.client(t)
	if err != nil {
		return err
	}
	defer cl.Close()
	h, err := f.begin(cl, c, rest[0], arguments)
	if err != nil {
		return err
	}
	if !later {
		e := f.until(h, nil, nil)
		return f.report(h.Status(), e, "")
	}
	e := f.until(h, func(st client.Status) bool { return st.Task != "" && !st.State.Final() }, nil)
	if !a.json {
		if err := a.text("%s", h.ID()); err != nil {
			return a.notWritten(h.Status(), err)
		}
	}
	return f.report(h.Status(), e, "")
}

// begin makes the call.
func (f *follower) begin(cl *client.Client, c calling, name string, arguments json.RawMessage) (*client.Handle, error) {
	switch {
	case c.prompt:
		var given map[string]*string // nil: null, which is no string
		if err := json.Unmarshal(arguments, &given); err != nil || slices.Contains(slices.Collect(maps.Values(given)), nil) {
			return nil, usage("the arguments of a prompt are an object of strings")
		}
		args := make(map[string]string, len(given))
		for name, value := range given {
			args[name] = *value
		}
		return cl.StartPrompt(f.ctx, name, args)
	case c.resource:
		if string(arguments) != "{}" {
			return nil, usage("a resource takes no arguments")
		}
		return cl.StartResource(f.ctx, name)
	}
	return cl.Start(f.ctx, name, arguments)
}

// targetOf takes the server out of the arguments: the first, or what follows
// "--", which is at dash.
func (a *app) targetOf(dash int, args []string) (t target, rest []string, err error) {
	switch {
	case dash >= 0 && dash == len(args):
		return t, nil, usage(`there is no command after "--"`)
	case dash >= 0:
		t, err = a.target("", args[dash:])
		return t, args[:dash], err
	case len(args) == 0:
		return t, nil, usage("name a server: one of the settings, a URL, or a command after --")
	}
	t, err = a.target(args[0], nil)
	return t, args[1:], err
}

// mostArguments bounds what is read from standard input, in bytes.
const mostArguments = 16 << 20

// arguments are those of a call.
func (a *app) arguments(args []string) (json.RawMessage, error) {
	text := "{}"
	if len(args) > 0 {
		text = args[0]
	}
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(a.in, mostArguments+1))
		if err != nil {
			return nil, err
		}
		if len(b) > mostArguments {
			return nil, usage("the arguments are over 16 MiB")
		}
		text = string(b)
		if a.in, err = os.Open(os.DevNull); err != nil { // nobody can be asked there any more
			return nil, err
		}
	}
	if v := jsontext.Value(text); v.Kind() != '{' || !v.IsValid() {
		return nil, usage("the arguments are not one JSON object in which no name comes twice; in a shell, put it in single quotes")
	}
	return json.RawMessage(text), nil
}
