// Command tallystick shows what the library does: "tallystick demo" runs a
// refund desk and walks through it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/tour"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "tallystick: interrupted; the server is stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "tallystick:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "tallystick",
		Short:         "Safe multi-step calls for MCP servers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(demoCommand(), deskCommand())
	return root
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
			if d.serve {
				return d.leaveRunning(cmd.Context(), cmd.OutOrStdout())
			}
			if cmd.Flags().Changed("addr") {
				return errors.New("--addr is for --serve; the walk takes a free port")
			}
			if d.metrics {
				return errors.New("--metrics is for --serve")
			}
			return tour.Run(cmd.Context(), d.tour())
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
