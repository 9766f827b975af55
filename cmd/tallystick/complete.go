package main

import (
	"context"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
)

// completeServers completes the first argument to a server's name.
func completeServers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := settings.Load(cmd.Flags())
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(s.Servers)), cobra.ShellCompDirectiveNoFileComp
}

// completeCalls completes to the id of a call. It makes no memory where there
// is none.
func completeCalls(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	s, err := settings.Load(cmd.Flags())
	if err != nil || !isThere(s.Memory) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	m, err := client.OpenMemory(context.Background(), client.MemoryOptions{Path: s.Memory})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer m.Close()
	all, err := m.List(context.Background())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, st := range all {
		ids = append(ids, st.ID+"\t"+safetext.Short(string(st.State)+" "+st.Server+" "+st.Name, 60))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
