//go:build unix

// Command crashtest kills a real server process at random moments, and at the
// worst ones, while a crowd of clients uses it over HTTP; then it compares what
// the clients were told, what is on record and what happened outside.
//
//	go run ./internal/crashtest              300 kills, about five minutes
//	go run ./internal/crashtest -kills 20    a short look
//	go run ./internal/crashtest -seed 7      the same choices again, if not the same moments
//
// The server is this program again, as a process of its own, on a folder. The
// clients and the far side with its ledger are in this process, which lives on.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// A plan is what to do.
type plan struct {
	kills   int
	seed    uint64
	clients int
	folder  string
	verbose bool
	self    string // the program that is the server
	out     io.Writer
}

func main() {
	p := plan{out: os.Stdout}
	serves, far := flag.String("serve", "", "be the server, from this `folder`"), flag.String("far", "", "`address` of the far side")
	flag.IntVar(&p.kills, "kills", 300, "how often the server is killed")
	flag.Uint64Var(&p.seed, "seed", 0, "of what is done; 0: a random one")
	flag.IntVar(&p.clients, "clients", 8, "how many clients there are at a time")
	flag.StringVar(&p.folder, "folder", "", "an empty `folder` to keep everything in; without it a temporary one, kept if something is wrong")
	flag.BoolVar(&p.verbose, "v", false, "a line for each kill")
	flag.Parse()
	if *serves != "" {
		if err := serve(*serves, *far); err != nil {
			fmt.Fprintln(os.Stderr, "crashtest server:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err == nil {
		p.self = self
		err = p.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crashtest:", err)
		stop()
		os.Exit(1)
	}
}

// run does it. The error says that something is wrong; the findings are printed.
func (p plan) run(ctx context.Context) error {
	p.seed = cmp.Or(p.seed, rand.Uint64N(1<<40))
	folder, temporary := p.folder, p.folder == ""
	if temporary {
		var err error
		if folder, err = os.MkdirTemp("", "tallystick-crashtest"); err != nil {
			return err
		}
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	switch found, err := os.ReadDir(folder); {
	case err != nil:
		return err
	case len(found) > 0:
		return fmt.Errorf("%s is not empty", folder)
	}
	fmt.Fprintf(p.out, "seed %d, folder %s\n", p.seed, folder)
	k := newKeeper(p, folder)
	err = k.work(ctx)
	k.report()
	if wrong := k.crowd.Wrong(); len(wrong) > 0 {
		for _, w := range wrong {
			fmt.Fprintln(p.out, "finding:", w)
		}
		err = fmt.Errorf("%d findings, at most twenty of which are kept; %w", len(wrong), cmp.Or(err, errFindings))
	}
	if err != nil {
		return fmt.Errorf("seed %d, see %s: %w", p.seed, folder, err)
	}
	if temporary {
		return os.RemoveAll(folder)
	}
	return nil
}
