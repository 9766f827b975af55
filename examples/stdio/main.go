// Command stdio is a server that a client starts as its child and talks to over
// standard input and output. It has one tool, which deletes a note (a file of
// the folder -notes) once its user has confirmed it.
//
// For a client's list of servers:
//
//	{"command": "go", "args": ["run", "./examples/stdio", "-notes", "notes"]}
//
// The folder -data is locked: start one server per folder.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/embedded"
)

func main() {
	notes := flag.String("notes", "notes", "`folder` with the notes")
	data := flag.String("data", "stdio-data", "`folder` for calls and keys, kept over restarts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *notes, *data); err != nil {
		log.Fatal(err) // to standard error: standard output is the protocol's
	}
}

func run(ctx context.Context, notes, data string) error {
	root, err := os.OpenRoot(notes)
	if err != nil {
		return err
	}
	defer root.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: "stdio", Version: "1"}, nil)
	s, err := embedded.Open(data, server, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	Add(s.Server, root)

	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(working) }()

	// The client's end of the connection is the end of the server. It drains
	// after that, so that what was begun is finished or handed back.
	err = server.Run(ctx, s.Transport(&mcp.StdioTransport{}))
	if ctx.Err() != nil {
		err = nil // told to stop
	}
	stop()
	return errors.Join(err, <-ran)
}
