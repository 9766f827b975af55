// Command tallystick makes MCP calls that take more than one round trip, from a
// terminal or a script, and remembers them. "tallystick demo" runs a refund
// desk to try it on.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/plainjson"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/tour"
)

func main() {
	// A pipe that nobody reads any more is an error in writing, which is told or
	// does not matter. Ignoring the signal would reach the servers begun here.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	root, understood := command()
	os.Exit(run(root, understood))
}

// run returns the exit code.
func run(root *cobra.Command, understood *bool) int {
	err := root.ExecuteContext(context.Background())
	var told *told
	switch {
	case err == nil:
		return int(exit.Completed)
	case errors.As(err, &told):
		return int(told.code)
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "tallystick: interrupted; the server is stopped")
		return 130
	}
	code := exit.Failed
	var problem *settings.Problem
	if !*understood || errors.As(err, &problem) {
		code = exit.Usage
	}
	fmt.Fprintln(os.Stderr, "tallystick:", err)
	if asksForJSON(os.Args[1:]) {
		e := end{code: code, text: textOf(err), err: err}
		if line, err := plainjson.Line(failure{Outcome: code.Name(), Exit: code, Error: e.document()}); err == nil {
			fmt.Println(line)
		}
	}
	return int(code)
}

// asksForJSON is for what was not understood as flags. What follows "--" is the
// command of a server.
func asksForJSON(args []string) (asked bool) {
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return asked
		case name != "--json":
		case !given:
			asked = true
		default:
			asked, _ = strconv.ParseBool(value) // what is neither is refused
		}
	}
	return asked
}

// command returns all commands, and where it is noted that one was understood
// and has begun.
func command() (*cobra.Command, *bool) {
	understood := false
	root := &cobra.Command{
		Use:   "tallystick",
		Short: "Safe multi-step MCP calls: make them, answer what they ask, come back to them",
		Long: `Makes MCP calls (revision 2026-07-28, and servers of 2025) and drives them to
their end: it asks you what the server asks, watches tasks, and remembers every
call on disk, so that nothing is lost when this process ends.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			// Cobra looks at these only after this.
			if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
				return err
			}
			understood = true
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// A command that is not known has no flags that are: the command is what is
	// wrong.
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return cobra.NoArgs(cmd, words)
		}
		return err
	})
	root.AddGroup(
		&cobra.Group{ID: groupCalls, Title: "Calls:"},
		&cobra.Group{ID: groupServers, Title: "Servers:"},
		&cobra.Group{ID: groupOwn, Title: "Your own server:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupCalls:   {callCommand(), startCommand(), tasksCommand(), watchCommand(), answerCommand(), cancelCommand(), resumeCommand(), forgetCommand()},
		groupServers: {serversCommand(), toolsCommand()},
		groupOwn:     {keysCommand(), demoCommand()},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(deskCommand())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE = root.RunE // refuses a shell that it does not know
		}
	}
	root.SetHelpCommand(helpCommand())
	return root, &understood
}

// helpCommand is cobra's, but for a command that is not known, of which that
// says nothing.
func helpCommand() *cobra.Command {
	find := func(cmd *cobra.Command, args []string) (*cobra.Command, error) {
		of, rest, err := cmd.Root().Find(args)
		if err == nil {
			err = cobra.NoArgs(of, rest)
		}
		return of, err
	}
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := find(cmd, args)
			if err != nil {
				return usage("%v", err)
			}
			of.InitDefaultHelpFlag() // so that it is shown
			return of.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if of, err := find(cmd, args); err == nil {
				for _, c := range of.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, c.Name()+"\t"+c.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

const (
	groupCalls   = "calls"
	groupServers = "servers"
	groupOwn     = "own"
)

// errInterrupted ends the demo on Ctrl-C or SIGTERM.
var errInterrupted = errors.New("interrupted")

// interruptible runs f with a context that ends on Ctrl-C or SIGTERM.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func demoCommand() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a refund desk and walk through it",
		Long: `Starts a refund desk, an MCP server of revision 2026-07-28, as a process of
its own on 127.0.0.1, and walks through it with a real client: approvals,
retries, stolen states, a second person, a long job whose server is killed,
and the audit trail of it all. It checks what it shows; the exit code says
whether all of it was so.`,
		Example: `  tallystick demo            answer the questions yourself
  tallystick demo --yes      under a minute, without questions
  tallystick demo --serve    leave the desk running for your own client`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error {
				if d.serve {
					return d.leaveRunning(ctx, cmd.OutOrStdout())
				}
				if cmd.Flags().Changed("addr") {
					return usage("--addr is for --serve; the walk takes a free port")
				}
				if d.metrics {
					return usage("--metrics is for --serve")
				}
				return tour.Run(ctx, d.tour())
			})
		},
	}
	cmd.Flags().BoolVar(&d.yes, "yes", false, "answer every question with yes")
	cmd.Flags().BoolVar(&d.serve, "serve", false, "no walk: serve until Ctrl-C")
	cmd.Flags().StringVar(&d.addr, "addr", "127.0.0.1:0", "with --serve: `HOST:PORT` to listen on; port 0 takes a free one")
	cmd.Flags().BoolVar(&d.metrics, "metrics", false, "with --serve: Prometheus metrics on /metrics, without a token")
	cmd.Flags().StringVar(&d.data, "data", "", "`FOLDER` for state, keys and orders, which is kept (default: a temporary one)")
	cmd.MarkFlagsMutuallyExclusive("yes", "serve")
	return cmd
}
