package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
)

// watching flags, of commands that go on with a call.
type watching struct {
	common
	reaching
	answering
	again bool
}

func (w *watching) add(cmd *cobra.Command) {
	w.common.add(cmd)
	w.reaching.add(cmd)
	w.answering.add(cmd)
	cmd.Flags().Duration("timeout", 0, "how long this command waits; the call goes on (default: until it ends)")
	cmd.ValidArgsFunction = completeCalls
}

func watchCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Go on with a call until it ends",
		Long: `Goes on with a call where it stands, as "call" does: shows how it gets on, asks
you what the server asks, and prints the result. A call that another process is at
is only looked at. With --json it prints a line for each change, and one for the
end.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, w.common, w.reaching, func(a *app) error { return a.goOn(w, args[0], true) })
		},
	}
	w.add(cmd)
	return cmd
}

func answerCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "answer ID",
		Short: "Answer what a call asks",
		Long: `Answers the open questions of a call, on a terminal or by --answer, --yes,
--decline and --dismiss, and goes on with it. If another process is at the call, it
is that process which sends the answers. Without a terminal and without answers it
shows what is asked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, w.common, w.reaching, func(a *app) error { return a.goOn(w, args[0], false) })
		},
	}
	w.add(cmd)
	return cmd
}

func resumeCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "resume [ID...]",
		Short: "Go on with all calls that have not ended, or with some",
		Long: `Goes on with calls until they end: with those named, or with all that nobody is at
and whose end nobody has been told. It goes through them in turn. With --json it
prints a line for the end of each. The exit code is that of the first that was not
completed. After Ctrl-C or SIGTERM, or when its time is over, it goes on with no other
call.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, w.common, w.reaching, func(a *app) error { return a.resume(w, args) })
		},
	}
	w.add(cmd)
	cmd.Flags().BoolVar(&w.again, "again", false, "send the request of a call of unknown end once more: only if that does no harm")
	return cmd
}

// goOn drives a call, or looks on while another process does.
func (a *app) goOn(w watching, id string, lines bool) error {
	f, err := a.follow(w.answering, true)
	if err != nil {
		return err
	}
	defer f.stop()
	f.answer = !lines
	var each func(client.Status) error
	event := ""
	if lines && a.json {
		each, event = a.eachChange(), "end"
	}
	st, e, err := f.drive(id, each, w.again)
	if err != nil {
		return err
	}
	return f.report(st, e, event)
}

// eachChange prints a line for each status that tells something new.
func (a *app) eachChange() func(client.Status) error {
	var last callInfo
	return func(st client.Status) error {
		now := infoOf(st)
		now.Event = "status"
		if last.ID != "" && same(last, now) {
			return nil
		}
		last = now
		return a.print(now)
	}
}

// same reports whether two lines tell the same, but for when.
func same(a, b callInfo) bool {
	if (a.Progress == nil) != (b.Progress == nil) || a.Progress != nil && *a.Progress != *b.Progress {
		return false
	}
	key := func(q questionInfo) string { return q.ID }
	var left, right []string
	for _, q := range a.Questions {
		left = append(left, key(q))
	}
	for _, q := range b.Questions {
		right = append(right, key(q))
	}
	return a.State == b.State && a.Message == b.Message && a.Task == b.Task && a.Rounds == b.Rounds && a.Driver == b.Driver && slices.Equal(left, right)
}

// drive drives a call to its end. While another process is at it, it looks on,
// and takes over when that has gone.
func (f *follower) drive(id string, each func(client.Status) error, again bool) (client.Status, end, error) {
	m, err := f.memory()
	if err != nil {
		return client.Status{}, end{}, err
	}
	for {
		st, err := m.Status(f.ctx, id)
		if err != nil {
			return st, end{}, err
		}
		if st.Driver != "" && !st.State.Final() {
			if e, over, err := f.lookOn(m, st, each); over || err != nil {
				st, _ = m.Status(f.ctx, id)
				return st, e, err
			}
		}
		if again && st.State != client.Unknown {
			return st, end{}, usage("--again is for calls of unknown end; %s is %s", id, st.State)
		}
		t, err := f.target(st.Server, nil)
		if err != nil {
			return st, end{}, err
		}
		now, e, err := f.attach(t, id, each, again)
		if errors.Is(err, client.ErrBusy) {
			continue
		}
		if err != nil {
			return st, end{}, err
		}
		return now, e, nil
	}
}

// attach drives a call that nobody is at.
func (f *follower) attach(t target, id string, each func(client.Status) error, again bool) (client.Status, end, error) {
	cl, err := f.client(t)
	if err != nil {
		return client.Status{}, end{}, err
	}
	defer cl.Close()
	h, err := cl.Attach(f.ctx, id)
	if err != nil {
		return client.Status{}, end{}, err
	}
	if again {
		if h, err = h.Again(f.ctx); err != nil {
			return client.Status{}, end{}, usage("%s", textOf(err))
		}
	}
	e := f.until(h, nil, each)
	return h.Status(), e, nil
}

// lookOn looks at a call that another process drives, and has it answer what
// is answered here. over is false if that process is gone and the call is not
// at its end.
func (f *follower) lookOn(m *client.Memory, st client.Status, each func(client.Status) error) (e end, over bool, err error) {
	ctx, stop := context.WithCancel(f.ctx)
	var answering sync.WaitGroup // a form has to leave the terminal
	defer answering.Wait()
	defer stop()
	f.word.Store(nil)
	f.hint("%s is at this call; looking on", safetext.Line(st.Driver))
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	defer f.screen.Clear()
	asked, unanswered := map[string]bool{}, make(chan string)
	nobody := map[string]bool{} // here can answer these
	for interrupts := 0; ; {
		if st, err = m.Status(ctx, st.ID); err != nil {
			return end{}, false, err
		}
		if !f.Quiet {
			f.screen.Show(st, time.Now())
		}
		if each != nil {
			if err := each(st); err != nil {
				return f.leave(st.ID, textOf(err)), true, nil
			}
		}
		switch {
		case st.State.Final():
			r, err := m.Result(ctx, st.ID)
			return endOf(st.Method, r, err), true, nil
		case st.Driver == "":
			word := "The question stays open: whoever was at the call has gone. This command goes on with it."
			f.word.Store(&word)
			return end{}, false, nil
		}
		for _, q := range st.Open {
			if !asked[q.ID] {
				asked[q.ID] = true
				answering.Go(func() { f.answerAway(ctx, q, unanswered) })
			}
		}
		if e, stuck := f.stuck(st, nobody); stuck {
			return e, true, nil
		}
		select {
		case <-tick.C:
		case id := <-unanswered:
			nobody[id] = true
		case <-f.over:
			return f.leave(st.ID, noTime), true, nil
		case s := <-f.signals:
			f.ending.Store(true)
			if s != os.Interrupt {
				return f.leave(st.ID, toldToEnd), true, nil
			}
			if interrupts++; interrupts > 1 {
				return f.leave(st.ID, "let go of it"), true, nil
			}
			if err := m.Cancel(ctx, st.ID); err != nil {
				return end{}, false, err
			}
			f.say("cancelling %s; Ctrl-C again stops looking on", st.ID)
		}
	}
}

// stuck is the end of looking on for a command that is there to answer, and
// cannot: its flags make no sense, or nobody here can answer what is asked.
func (f *follower) stuck(st client.Status, nobody map[string]bool) (end, bool) {
	if wrong := f.answers.mistake(); wrong != nil {
		return endOf("", nil, wrong), true
	}
	open := func(q client.Question) bool { return !nobody[q.ID] }
	if !f.answer || f.answers.person != nil || len(st.Open) == 0 || slices.ContainsFunc(st.Open, open) {
		return end{}, false
	}
	return endOf("", nil, &client.Error{ID: st.ID, Kind: client.ErrNeedsInput, Questions: st.Open, Reason: "it is asked, and nobody here can answer it; another process is at the call"}), true
}

// answerAway answers a question of a call that another process drives, or says
// that nobody here does.
func (f *follower) answerAway(ctx context.Context, q client.Question, unanswered chan<- string) {
	if _, err := f.answers.give(ctx, q); err != nil {
		select {
		case unanswered <- q.ID:
		case <-ctx.Done():
		}
	}
}

// leave is the end of looking on.
func (f *follower) leave(id, why string) end {
	f.staysOpen(id, why)
	e := endOf("", nil, &client.Error{ID: id, Kind: client.ErrDetached})
	e.text = why + ": the call goes on (" + id + ")"
	return e
}

// resume goes on with the calls named, or with all.
func (a *app) resume(w watching, ids []string) error {
	m, err := a.memory()
	if err != nil {
		return err
	}
	if w.again && len(ids) == 0 {
		return usage("--again is for calls that are named")
	}
	if len(ids) == 0 {
		all, err := m.List(a.ctx)
		if err != nil && len(all) == 0 {
			return a.unreadable(err)
		}
		if err != nil {
			a.hint("%s", textOf(a.unreadable(err)))
		}
		for _, st := range all {
			if !st.Seen && (st.Driver == "" || st.State.Final()) {
				ids = append(ids, st.ID)
			}
		}
		a.hint("%s to go on with", plural(len(ids), "call"))
	}
	f, err := a.follow(w.answering, true)
	if err != nil {
		return err
	}
	defer f.stop()
	code := exit.Completed
	for _, id := range ids {
		st, e := f.inTurn(m, id, w.again)
		if len(ids) > 1 && !a.json && st.ID != "" {
			_, _ = io.WriteString(a.screen, id+" "+safetext.Line(st.Server)+" "+calledAs(st.Name, st.Arguments)+"\n")
		}
		if st.ID == "" {
			err = a.failed(failure{Event: "end", ID: id}, e, "")
		} else {
			err = a.show(st, e, "end")
		}
		if err != nil { // standard output takes nothing
			return err
		}
		if code == exit.Completed {
			code = e.code
		}
	}
	if code != exit.Completed {
		return &told{code}
	}
	return nil
}

// inTurn goes on with one of several calls, unless the command is to end.
// The status is empty if there is no such call.
func (f *follower) inTurn(m *client.Memory, id string, again bool) (client.Status, end) {
	if why := f.toEnd(); why != "" {
		st, err := m.Status(f.ctx, id)
		if err == nil {
			err = &client.Error{ID: id, Kind: client.ErrDetached, Reason: "not begun, as " + why}
		}
		return st, endOf("", nil, err)
	}
	st, e, err := f.drive(id, nil, again)
	if err != nil {
		e = endOf("", nil, err)
	}
	return st, e
}

// cards shows the open questions of a call.
func (a *app) cards(st client.Status) {
	for _, q := range st.Open {
		_, _ = io.WriteString(a.screen, terminal.Card(q, terminal.CardOptions{Where: a.where(q.Server), Now: time.Now()}))
	}
}
