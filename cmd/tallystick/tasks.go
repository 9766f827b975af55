package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

func tasksCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the calls that are remembered",
		Long: `Lists the calls that are remembered here, oldest first, with their state, age and
server: those that have not ended, and those whose end is not forgotten yet. It asks
no server.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return do(cmd, c, reaching{}, (*app).tasks)
		},
	}
	c.add(cmd)
	return cmd
}

func (a *app) tasks() error {
	m, err := a.memory()
	if err != nil {
		return err
	}
	all, unread := m.List(a.ctx) // what can be read is shown whatever else cannot
	if unread != nil && len(all) == 0 {
		return a.unreadable(unread)
	}
	if a.json {
		doc := struct {
			Calls []callInfo `json:"calls"`
		}{[]callInfo{}}
		for _, st := range all {
			doc.Calls = append(doc.Calls, infoOf(st))
		}
		return errors.Join(a.print(doc), a.unreadable(unread))
	}
	if len(all) == 0 {
		a.hint("no calls are remembered in %s", safetext.Line(a.Settings.Memory))
		return nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tAGE\tSERVER\tCALL\tSAYS")
	for _, st := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", st.ID, stateOf(st), age(time.Since(st.Created)),
			safetext.Short(st.Server, 40), safetext.Short(calledAs(st.Name, st.Arguments), 60), safetext.Short(said(st), 60))
	}
	_ = w.Flush() // into a string
	if slices.ContainsFunc(all, driven) {
		defer a.hint("* a process is at it")
	}
	return errors.Join(a.text("%s", strings.TrimSuffix(b.String(), "\n")), a.unreadable(unread))
}

// unreadable says what to do about calls that cannot be read.
func (a *app) unreadable(err error) error {
	if err == nil {
		return nil
	}
	return usage("%v\nput the memory's own key file back, or remove these calls: tallystick forget ID --force%s", err, a.given)
}

// driven reports whether a process is at a call.
func driven(st client.Status) bool { return st.Driver != "" && !st.State.Final() }

func stateOf(st client.Status) string {
	s := string(st.State)
	if driven(st) {
		s += "*"
	}
	return s
}

// said is what there is to say of a call: what it asks, or the server's word.
func said(st client.Status) string {
	if len(st.Open) > 0 {
		q := st.Open[0]
		return q.Key + ": " + q.Message
	}
	return st.Message
}

// age is a length of time in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func cancelCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a call and say how it ended",
		Long: `Cancels a call and waits for its end. A task may complete all the same: its server
decides. The exit code is 0 if the call is cancelled, and 1 if it ended in another
way, be it before. With --json "outcome" and "exit" say just that, and "state",
"result" and "error" how the call ended.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, w.common, w.reaching, func(a *app) error { return a.cancel(args[0]) })
		},
	}
	w.common.add(cmd)
	w.reaching.add(cmd)
	cmd.Flags().Duration("timeout", 0, "how long this command waits for the end (default: until it comes)")
	cmd.ValidArgsFunction = completeCalls
	return cmd
}

func (a *app) cancel(id string) error {
	m, err := a.memory()
	if err != nil {
		return err
	}
	st, err := m.Status(a.ctx, id)
	if err != nil {
		return err
	}
	if st.State.Final() { // by itself, or by another cancel: the same is said of it
		r, err := m.Result(a.ctx, id)
		return a.cancelled(st, endOf(st.Method, r, err))
	}
	// On disk first, so that nothing is sent any more by whoever drives it.
	if err := m.Cancel(a.ctx, id); err != nil {
		return err
	}
	f, err := a.follow(answering{}, false)
	if err != nil {
		return err
	}
	defer f.stop()
	st, e, err := f.drive(id, nil, false)
	if err != nil {
		return err
	}
	if !st.State.Final() {
		return f.report(st, e, "")
	}
	return a.cancelled(st, e)
}

// cancelled tells how a call ended that was to be cancelled.
func (a *app) cancelled(st client.Status, e end) (err error) {
	e.code = exit.Failed
	if st.State == client.Cancelled {
		e.code = exit.Completed
	}
	if a.json {
		err = a.print(a.infoOfEnd(st, e))
	} else {
		err = a.text("%s %s%s", st.ID, st.State, reasonOf(e))
	}
	if err == nil && e.code != exit.Completed {
		return &told{e.code}
	}
	return a.notWritten(st, err)
}

// reasonOf is what there is to say of an end.
func reasonOf(e end) string {
	if e.text == "" {
		return ""
	}
	return ": " + e.text
}

func forgetCommand() *cobra.Command {
	var c common
	var force bool
	cmd := &cobra.Command{
		Use:   "forget ID...",
		Short: "Remove calls from the memory",
		Long: `Removes calls from the memory. What a server does with them does not change: cancel
a call first if it is to stop. One that has not ended is only forgotten with --force:
nobody can come back to it then.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, reaching{}, func(a *app) error { return a.forget(args, force) })
		},
		ValidArgsFunction: completeCalls,
	}
	c.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also calls that have not ended, or cannot be read")
	return cmd
}

func (a *app) forget(ids []string, force bool) error {
	m, err := a.memory()
	if err != nil {
		return err
	}
	var once []string // each of ids
	for _, id := range ids {
		st, err := m.Status(a.ctx, id)
		if err != nil && (!force || errors.Is(err, client.ErrNotFound)) {
			return err
		}
		switch {
		case slices.Contains(once, id):
			continue
		case err == nil && !st.State.Final() && !force:
			return usage("%s has not ended (%s): cancel it, or use --force", id, st.State)
		case err == nil && st.Driver != "":
			return usage("%s is at %s: cancel it, or end that process, first", safetext.Line(st.Driver), id)
		}
		once = append(once, id)
	}
	for i, id := range once {
		if err := m.Forget(a.ctx, id); err != nil {
			return a.fail(failure{Forgotten: once[:i]}, "", notForgotten(once, i, err))
		}
	}
	if a.json {
		return a.print(map[string][]string{"forgotten": once})
	}
	a.hint("%s forgotten", plural(len(once), "call"))
	return nil
}

// notForgotten says which of ids were removed where that of i was not.
func notForgotten(ids []string, i int, err error) error {
	text := "none was forgotten"
	if i > 0 {
		text = "forgotten: " + strings.Join(ids[:i], ", ")
	}
	return usage("%s; not forgotten: %s: %s", text, strings.Join(ids[i:], ", "), textOf(err))
}
