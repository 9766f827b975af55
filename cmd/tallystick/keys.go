package main

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/seal"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "The key file of a server: make it, and replace its key",
		Long: `Looks after the file of keys with which a tallystick server seals its states. A key is
replaced in three steps, each of which has to reach all processes of the server before
the next: add a key, which opens; promote it, so that it seals; and when the last state
of the old key has expired, disable that.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		keyCommand("new FILE", "Make a key file with one key", 1, newKeys),
		keyCommand("list FILE", "List the keys of a file", 1, listedKeys),
		keyCommand("add FILE", "Add a key, which opens and does not seal yet", 1, changeKeys(func(k *seal.Keyset, _ uint32) error {
			_, err := k.Add()
			return err
		})),
		keyCommand("promote FILE ID", "Have a key seal from now on", 2, changeKeys((*seal.Keyset).Promote)),
		keyCommand("disable FILE ID", "Have a key open nothing any more", 2, changeKeys((*seal.Keyset).Disable)),
	)
	return cmd
}

// keyCommand is a command on a key file. It prints the keys as they are then.
func keyCommand(use, short string, args int, f func(args []string) (*seal.Keyset, error)) *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, reaching{}, func(a *app) error { return a.keys(args, f) })
		},
	}
	c.add(cmd)
	return cmd
}

func (a *app) keys(args []string, f func(args []string) (*seal.Keyset, error)) error {
	k, err := f(args)
	var wrong *settings.Problem
	switch {
	case errors.As(err, &wrong):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return usage("%s. Make one with: tallystick keys new %s", safetext.Line(err.Error()), quoted(args[0]))
	case err != nil:
		return usage("%s", safetext.Line(err.Error()))
	}
	return a.listKeys(args[0], k)
}

func listedKeys(args []string) (*seal.Keyset, error) { return seal.LoadFile(args[0]) }

func newKeys(args []string) (*seal.Keyset, error) {
	switch _, err := seal.LoadFile(args[0]); {
	case err == nil:
		return nil, usage("%s is there already", quoted(args[0]))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if _, err := os.Lstat(args[0]); err == nil {
		return nil, usage("%s is there already, and leads nowhere", quoted(args[0]))
	}
	return seal.OpenOrCreateFile(args[0])
}

// changeKeys changes the keys in a file, while nobody else does.
func changeKeys(change func(*seal.Keyset, uint32) error) func(args []string) (*seal.Keyset, error) {
	return func(args []string) (*seal.Keyset, error) {
		var id uint64
		if len(args) > 1 {
			var err error
			if id, err = strconv.ParseUint(args[1], 10, 32); err != nil {
				return nil, usage("%s is no id of a key: see tallystick keys list", quoted(args[1]))
			}
		}
		return seal.ChangeFile(args[0], func(k *seal.Keyset) error { return change(k, uint32(id)) })
	}
}

// keyInfo is a key in --json.
type keyInfo struct {
	ID      uint32 `json:"id"`
	Primary bool   `json:"primary"` // seals
	Enabled bool   `json:"enabled"` // opens
}

func (a *app) listKeys(file string, k *seal.Keyset) error {
	doc := struct {
		File string    `json:"file"`
		Keys []keyInfo `json:"keys"`
	}{File: file}
	for _, info := range k.List() {
		doc.Keys = append(doc.Keys, keyInfo{info.ID, info.Primary, info.Enabled})
	}
	if a.json {
		return a.print(doc)
	}
	for _, info := range doc.Keys {
		does := "opens"
		switch {
		case info.Primary:
			does = "seals and opens"
		case !info.Enabled:
			does = "disabled"
		}
		if err := a.text("%10d  %s", info.ID, does); err != nil {
			return err
		}
	}
	return nil
}
