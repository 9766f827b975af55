package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/tour"
)

// deskName is the hidden subcommand that the walk runs as its server process.
const deskName = "desk"

// demo has the flags of the demo command.
type demo struct {
	yes, serve, metrics bool
	addr, data          string
}

func (d demo) tour() tour.Options {
	return tour.Options{
		Data: d.data, Command: []string{os.Args[0], deskName}, Yes: d.yes, In: os.Stdin, Out: os.Stdout,
		Color: isatty.IsTerminal(os.Stdout.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Pause: isatty.IsTerminal(os.Stdin.Fd()) && isatty.IsTerminal(os.Stdout.Fd()),
	}
}

// leaveRunning serves the desk in this process until ctx ends.
func (d demo) leaveRunning(ctx context.Context, out io.Writer) error {
	data := d.data
	if data == "" {
		var err error
		if data, err = os.MkdirTemp("", "tallystick-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(data)
	}
	return desk.Serve(ctx, desk.Options{
		Data: data, Addr: d.addr, Metrics: d.metrics, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func(url string) { welcome(ctx, out, url, data) },
	})
}

// welcome tells the reader what is there and how to use it.
func welcome(ctx context.Context, out io.Writer, url, data string) {
	people, err := desk.LoadPeople(data)
	if err != nil {
		fmt.Fprintln(out, "reading the tokens failed:", err)
		return
	}
	fmt.Fprintf(out, "The refund desk serves MCP (revision 2026-07-28) on %s/mcp\n", url)
	fmt.Fprintf(out, "What waits for a person is on %s/\n\nTokens:\n", url)
	for _, q := range people {
		fmt.Fprintf(out, "  %-4s %-9s %s\n", q.Name, q.Role, q.Token)
	}
	shop, err := desk.OpenShop(data)
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	defer shop.Close()
	orders, err := shop.Orders(ctx)
	if err == nil && len(orders) == 0 {
		orders, err = shop.Stock(ctx)
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	fmt.Fprintln(out, "\nOrders:")
	for _, o := range orders {
		fmt.Fprintf(out, "  %s  %10s  %s, %s\n", o.ID, o.Total(), o.Customer, o.Item)
	}
	fmt.Fprintf(out, hint, url, people.Named("ann").Token, orders[0].ID)
}

// hint is a first request, and what a client's settings look like.
const hint = `
Try it, in another terminal:

tallystick call %[1]s/mcp refund '{"orderId":"%[3]s"}' --header 'Authorization: Bearer %[2]s'

A client of yours: Streamable HTTP, URL %[1]s/mcp, header "Authorization: Bearer %[2]s".
Tools: refund, voucher, export, payout (finance), call_status. Or by hand:

curl -s %[1]s/mcp \
  -H 'Authorization: Bearer %[2]s' \
  -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
  -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: refund' \
  -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund","arguments":{"orderId":"%[3]s"},
       "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}'

Ctrl-C ends it.
`

// deskCommand is the walk's server process. It drains on SIGTERM, on Ctrl-C,
// and when its input closes: however the walk ends, it does not stay behind.
func deskCommand() *cobra.Command {
	o := desk.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cmd := &cobra.Command{
		Use:    deskName,
		Short:  "The demo's server process",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error {
				ctx, end := context.WithCancel(ctx)
				defer end()
				go func() {
					_, _ = io.Copy(io.Discard, cmd.InOrStdin())
					end()
				}()
				o.Ready = func(url string) { fmt.Fprintln(cmd.OutOrStdout(), "listening on", url) }
				return desk.Serve(ctx, o)
			})
		},
	}
	cmd.Flags().StringVar(&o.Data, "data", "", "folder")
	cmd.Flags().StringVar(&o.Addr, "addr", "127.0.0.1:0", "address")
	_ = cmd.MarkFlagRequired("data")
	return cmd
}
