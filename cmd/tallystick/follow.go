package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// cancelWait is how long the end of a call that is to be cancelled is waited
// for once the command has no time left.
const cancelWait = 10 * time.Second

// A follower follows calls of one client until they end, or are let go of.
type follower struct {
	*app
	answers *respondent
	signals chan os.Signal
	changed chan struct{}   // capacity 1: some status has changed
	over    <-chan struct{} // closed when the command has no time left; nil: it has
	stop    func()
	answer  bool // the command is there to answer

	current    atomic.Pointer[client.Handle] // the call that is driven; nil: none
	interrupts atomic.Int32                  // how often it was interrupted
	ending     atomic.Bool                   // the command was told to end: it begins nothing more
	word       atomic.Pointer[string]        // what is said of a form that is taken away; nil: the form's own
}

// follow begins to listen to signals, and makes who answers.
func (a *app) follow(g answering, ask bool) (*follower, error) {
	f := &follower{app: a, signals: make(chan os.Signal, 4), changed: make(chan struct{}, 1)}
	var err error
	f.answers, err = a.answerer(g, ask, f.interrupted, f.gone)
	if err != nil {
		return nil, err
	}
	signal.Notify(f.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	f.stop = func() { signal.Stop(f.signals) }
	if f.Timeout > 0 {
		timed, stop := context.WithTimeout(f.ctx, f.Timeout)
		f.over, f.stop = timed.Done(), func() { stop(); signal.Stop(f.signals) }
	}
	return f, nil
}

// interrupted is told of Ctrl-C in a form, which is no signal there. It cancels
// the call before the form returns without an answer, since that would be the
// end of a call that waits for nothing else.
func (f *follower) interrupted() {
	f.ending.Store(true)
	if h := f.current.Load(); h != nil && f.interrupts.Add(1) == 1 {
		f.cancel(h)
		return
	}
	select {
	case f.signals <- os.Interrupt:
	default:
	}
}

// toEnd is why the command begins nothing more, be it since just now; empty if
// it may.
func (f *follower) toEnd() string {
	select {
	case <-f.signals:
		f.ending.Store(true)
	default:
	}
	if f.ending.Load() {
		return toldToEnd
	}
	select {
	case <-f.over:
		return noTime
	default:
		return ""
	}
}

// notify is client.Options.Notify.
func (f *follower) notify(client.Status) {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// client makes a client whose calls can be followed.
func (f *follower) client(t target) (*client.Client, error) {
	return f.reachedBy(t, f.answers, f.notify)
}

// until follows a call until enough says so, or it ends. The first Ctrl-C
// cancels it, the second lets go of it, as SIGTERM does and the end of the
// time that the command has. each, if not nil, is told of each status.
func (f *follower) until(h *client.Handle, enough func(client.Status) bool, each func(client.Status) error) end {
	pace := 500 * time.Millisecond
	if f.screen.Terminal() {
		pace = 100 * time.Millisecond // of the spinner
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	defer f.screen.Clear()
	f.interrupts.Store(0)
	f.word.Store(nil)
	f.current.Store(h)
	defer f.current.Store(nil)
	for {
		st := h.Status()
		if !f.Quiet {
			f.screen.Show(st, time.Now())
		}
		if each != nil {
			if err := each(st); err != nil {
				return f.letGo(h, err.Error())
			}
		}
		if enough != nil && enough(st) {
			h.Detach()
			return end{}
		}
		select {
		case <-h.Done():
			if !f.Quiet {
				f.screen.Show(h.Status(), time.Now())
			}
			return f.ended(h)
		case <-f.changed:
		case <-tick.C:
		case <-f.over:
			return f.letGo(h, noTime)
		case s := <-f.signals:
			f.ending.Store(true)
			if s != os.Interrupt {
				return f.letGo(h, toldToEnd)
			}
			if f.interrupts.Add(1) > 1 {
				return f.letGo(h, "let go of it")
			}
			f.cancel(h)
		}
	}
}

// cancel asks for the end of a call.
func (f *follower) cancel(h *client.Handle) {
	ctx, stop := context.WithTimeout(f.ctx, cancelWait)
	defer stop()
	if err := h.Cancel(ctx); err != nil {
		f.say("cancelling failed: %s", textOf(err))
		return
	}
	f.say("cancelling %s; Ctrl-C again lets go of it", h.ID())
}

// Why a call is let go of.
const (
	toldToEnd = "the command was told to end"
	noTime    = "the time of --timeout is over"
)

// gone is what is said of a form that is taken away.
func (f *follower) gone(client.Question) string {
	if word := f.word.Load(); word != nil {
		return *word
	}
	return ""
}

// staysOpen has that say that the call was let go of.
func (f *follower) staysOpen(id, why string) {
	word := "The question is not answered, and stays open: " + why + ". Come back with\n  tallystick answer " + id + f.given
	f.word.Store(&word)
}

// letGo ends the driving, not the call, unless that has ended meanwhile.
func (f *follower) letGo(h *client.Handle, why string) end {
	why = safetext.Line(why)
	f.staysOpen(h.ID(), why)
	h.Detach()
	if f.answers.person != nil {
		f.answers.person.Idle() // its word first
	}
	e := f.ended(h)
	if e.code == exit.Detached && errors.Is(e.err, client.ErrDetached) {
		e.text = why + ": the call is on disk (" + h.ID() + ")"
	}
	return e
}

// ended is the end of a call that nobody drives any more.
func (f *follower) ended(h *client.Handle) end {
	r, err := h.Wait(f.ctx)
	e := endOf(h.Status().Method, r, err)
	if wrong := f.answers.mistake(); wrong != nil && e.code == exit.NeedsInput {
		e.code, e.text = exit.Usage, textOf(wrong)
	}
	return e
}

// report prints how a call has ended, and returns the command's error.
func (f *follower) report(st client.Status, e end, event string) error {
	unused := f.answers.unused()
	if f.answer && st.State.Final() && len(unused) > 0 {
		text := "the call has ended (" + string(st.State) + "), and not by what was to be answered here: " + strings.Join(unused, "; ")
		e.code, e.text, e.err, unused = exit.Usage, text, usage("%s", text), nil
	}
	if err := f.show(st, e, event); err != nil {
		return err
	}
	if st.State.Final() || e.code == exit.NeedsInput {
		for _, flag := range unused {
			f.say("%s", flag)
		}
	}
	if e.code != exit.Completed {
		return &told{e.code}
	}
	return nil
}
