package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// DeleteArgs are the tool's arguments.
type DeleteArgs struct {
	Note string `json:"note" jsonschema:"the note's file name"`
}

// Deleted is the tool's output.
type Deleted struct {
	Bytes int `json:"bytes"`
}

// Add adds the tool delete_note to s, for notes that are files of a folder. No
// name leads out of it.
func Add(s *tallystick.Server, notes *os.Root) {
	deleteNote := func(ctx context.Context, call *tallystick.Call, in DeleteArgs) (*mcp.CallToolResult, Deleted, error) {
		text, err := notes.ReadFile(in.Note)
		// A run after the deletion does not find the note any more, which is as it
		// should be: what was answered on it stands. Only a call to which nothing
		// was answered yet is told that there is no such note.
		gone := errors.Is(err, fs.ErrNotExist)
		if err != nil && (!gone || len(call.Answers("sure")) == 0) {
			return nil, Deleted{}, fmt.Errorf("reading the note: %w", err)
		}
		sum := sha256.Sum256(text)
		if err := call.Confirm(tallystick.Question{
			Key: "sure", Message: fmt.Sprintf("Delete %s (%d bytes)?", in.Note, len(text)), Facts: hex.EncodeToString(sum[:]),
		}); err != nil {
			return nil, Deleted{}, err
		}
		// Once per call, and no Subject: a note of that name may be written, and
		// deleted, again. Repeatable: to delete what is gone changes nothing.
		n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "delete", Repeatable: true},
			func(context.Context, string) (int, error) {
				if err := notes.Remove(in.Note); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return 0, err
				}
				return len(text), nil
			})
		return nil, Deleted{Bytes: n}, err
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "delete_note", Description: "Deletes a note."}, nil, deleteNote)
}
