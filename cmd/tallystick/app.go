package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/plainjson"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/reach"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
)

// told is an error that the user has been told of.
type told struct{ code exit.Code }

func (t *told) Error() string { return t.code.Name() }

// usage is an error of whoever wrote the command.
func usage(format string, args ...any) error {
	return &settings.Problem{Text: fmt.Sprintf(format, args...)}
}

// local makes an error of files that are here, of which no server knows, one of
// whoever wrote the command.
func local(err error) error {
	var problem *settings.Problem
	var told *told
	if err == nil || errors.As(err, &problem) || errors.As(err, &told) {
		return err
	}
	return usage("%s", textOf(err))
}

// common flags, of every command that is not the demo.
type common struct {
	json   bool
	begins bool // no flag: the command makes the settings file if there is none
}

func (c *common) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON for programs (docs/cli.md), and ask nothing")
	cmd.Flags().String("config", "", "settings `FILE` (TALLYSTICK_CONFIG)")
	cmd.Flags().String("memory", "", "`FILE` in which calls are remembered (TALLYSTICK_MEMORY)")
	cmd.Flags().Bool("quiet", false, "no progress and no hints on standard error")
}

// reaching flags, of commands that reach a server.
type reaching struct {
	trace   bool
	headers []string
	env     []string
	outage  time.Duration
}

func (r *reaching) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.trace, "trace", false, "print what goes over the wire to standard error, secrets masked")
	cmd.Flags().StringArrayVar(&r.headers, "header", nil, "`'NAME: VALUE'` to send to a server given by its URL; ${VAR} in it is an environment variable")
	cmd.Flags().StringArrayVar(&r.env, "env", nil, "`NAME=VALUE` for a server given by its command")
	cmd.Flags().DurationVar(&r.outage, "outage", 20*time.Second, "how long a server that cannot be reached is tried")
}

// An app is one command at work.
type app struct {
	ctx context.Context
	common
	reaching
	*settings.Settings
	given  string // the flags that name files, as a suggested command repeats them
	in     *os.File
	out    io.Writer
	screen *terminal.Screen // standard error

	opened *client.Memory
	status atomic.Int32 // of the latest HTTP response
}

// do runs f as the command, reports its error, and makes the exit code of it.
func do(cmd *cobra.Command, c common, r reaching, f func(*app) error) error {
	a := &app{ctx: cmd.Context(), common: c, reaching: r, in: os.Stdin, out: os.Stdout, screen: terminal.NewScreen(os.Stderr)}
	for _, name := range []string{"config", "memory"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			a.given += " --" + name + " " + quoted(flag.Value.String())
		}
	}
	load := settings.Load
	if c.begins {
		load = settings.LoadOrBegin
	}
	var err error
	if a.Settings, err = load(cmd.Flags()); err == nil {
		err = f(a)
	} else {
		err = &settings.Problem{Text: err.Error()}
	}
	a.screen.Clear()
	if a.opened != nil {
		err = errors.Join(err, a.opened.Close())
	}
	var told *told
	if err == nil || errors.As(err, &told) {
		return err
	}
	return a.fail(failure{}, "", err)
}

// fail tells of an error, and returns its exit code. f has what there is to say
// beside it.
func (a *app) fail(f failure, server string, err error) error {
	e := endOf("", nil, err)
	if err := a.failed(f, e, server); err != nil {
		a.say("tallystick: %s", textOf(err))
	}
	return &told{e.code}
}

// failed prints an end of which there is no call to show.
func (a *app) failed(f failure, e end, server string) error {
	a.say("tallystick: %s", e.text)
	next := a.next(e, server)
	for _, s := range next {
		a.say("  %s", s)
	}
	if !a.json {
		return nil
	}
	f.Outcome, f.Exit, f.Error, f.Next = e.code.Name(), e.code, e.document(), commands(next)
	return a.print(f)
}

// failure is what --json prints of a command that came to nothing.
type failure struct {
	Event     string      `json:"event,omitzero"`      // "end", of resume
	ID        string      `json:"id,omitzero"`         // of resume: as it was written
	Added     *serverInfo `json:"added,omitzero"`      // of servers add: it is, all the same
	Forgotten []string    `json:"forgotten,omitempty"` // of forget: these are, all the same
	Outcome   string      `json:"outcome"`
	Exit      exit.Code   `json:"exit"`
	Error     *errorInfo  `json:"error"`
	Next      []string    `json:"next,omitzero"`
}

// say prints a line to standard error. What is foreign in it is escaped before.
func (a *app) say(format string, args ...any) { a.screen.Say(format, args...) }

// hint is say, unless --quiet.
func (a *app) hint(format string, args ...any) {
	if !a.Quiet {
		a.say(format, args...)
	}
}

// print writes one JSON document, on one line.
func (a *app) print(document any) error {
	line, err := plainjson.Line(document)
	if err != nil {
		return err
	}
	a.screen.Clear()
	return a.write(line)
}

// text writes lines to standard output.
func (a *app) text(format string, args ...any) error {
	a.screen.Clear()
	return a.write(fmt.Sprintf(format, args...))
}

// write writes a text and the end of its line to standard output.
func (a *app) write(text string) error {
	if _, err := fmt.Fprintln(a.out, text); err != nil {
		return &unwritten{err}
	}
	return nil
}

// unwritten is an error of standard output.
type unwritten struct{ err error }

func (u *unwritten) Error() string {
	return "what there is to print could not be written: " + u.err.Error()
}

func (u *unwritten) Unwrap() error { return u.err }

// notWritten makes of an error in printing how a call stands one that says how
// to see it.
func (a *app) notWritten(st client.Status, err error) error {
	var u *unwritten
	if !errors.As(err, &u) {
		return err
	}
	a.say("tallystick: the call %s is %s, and this could not be written: %s (exit %d, %s)", st.ID, st.State, textOf(u.err), exit.NotWritten, exit.NotWritten.Name())
	a.say("  tallystick watch %s%s", st.ID, a.given)
	return &told{exit.NotWritten}
}

// interactive reports whether there is a person to be asked.
func (a *app) interactive() bool {
	return !a.NoInput && !a.json && isatty.IsTerminal(a.in.Fd()) && a.screen.Terminal()
}

// memory opens the memory.
func (a *app) memory() (*client.Memory, error) {
	if a.opened != nil {
		return a.opened, nil
	}
	m, err := client.OpenMemory(a.ctx, client.MemoryOptions{Path: a.Settings.Memory})
	if err != nil {
		return nil, usage("the memory %s cannot be used: %s. Nothing was sent; put it right, or name another with --memory", quoted(a.Settings.Memory), textOf(err))
	}
	a.opened = m
	return m, nil
}

// A target is a server as a command line names it.
type target struct {
	name   string // under which calls are remembered
	server settings.Server
}

// target finds the server of a command line: of arg, or, if that is empty, of
// the command after "--".
func (a *app) target(arg string, command []string) (target, error) {
	if arg == "" {
		arg = settings.CommandName(command)
	}
	name, server, err := a.Find(arg)
	var missing *settings.NoServer
	if errors.As(err, &missing) {
		name := "NAME"
		if settings.IsName(arg) {
			name = arg
		}
		return target{}, usage("%v. Add it with: tallystick servers add %s URL%s, or write its URL", err, name, a.given)
	}
	if err != nil {
		return target{}, err
	}
	known := a.Servers[name].URL != "" || len(a.Servers[name].Command) > 0
	if known && len(a.headers)+len(a.env) > 0 {
		return target{}, usage("--header and --env are for servers that are not in the settings: those of %s are there", name)
	}
	if server.Headers, err = pairs(a.headers, ":", "--header", server.Headers); err != nil {
		return target{}, err
	}
	if server.Env, err = pairs(a.env, "=", "--env", server.Env); err != nil {
		return target{}, err
	}
	return target{name, server}, nil
}

// pairs reads flags like "NAME: VALUE" over what is there.
func pairs(flags []string, between, flag string, over map[string]string) (map[string]string, error) {
	if len(flags) == 0 {
		return over, nil
	}
	m := map[string]string{}
	for i, text := range flags {
		name, value, ok := strings.Cut(text, between)
		if !ok {
			return nil, usage("%s number %d has no %q: write NAME%sVALUE", flag, i+1, between, between) // it may be a secret
		}
		m[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return m, nil
}

// where is how a server is reached, for people.
func (a *app) where(name string) string {
	_, s, err := a.Find(name)
	if err != nil {
		return ""
	}
	if s.URL != "" {
		return s.URL
	}
	return strings.Join(s.Command, " ")
}

// reachedBy makes a client for a target. answers and notify may be nil.
func (a *app) reachedBy(t target, answers *respondent, notify func(client.Status)) (*client.Client, error) {
	m, err := a.memory()
	if err != nil {
		return nil, err
	}
	server, err := t.server.Expanded()
	if err != nil {
		return nil, err
	}
	o := reach.Options{Server: server, Tokens: signin.File(a.Settings.Memory, t.name)}
	if a.trace {
		o.Trace = a.screen
	}
	o.Answered = func(status int) { a.status.Store(int32(status)) }
	o.Said = func(line string) { a.hint("%s: %s", safetext.Line(t.name), safetext.Line(line)) }
	transport, err := reach.Transport(o)
	if err != nil {
		return nil, err
	}
	options := client.Options{
		Memory: m, Server: t.name, Transport: transport, Notify: notify,
		Info:   &mcp.Implementation{Name: "tallystick", Version: "1"},
		Limits: client.Limits{Deadline: a.Deadline, Outage: a.outage},
	}
	var flags []*reply
	if answers != nil {
		options.Answerer, flags = answers, answers.replies
	}
	policy, of := a.rules(flags)
	options.Policy, options.Ruled = policy, a.ruled(of)
	c, err := client.New(options)
	if err != nil { // of the policy, or of a flag
		return nil, usage("%s", textOf(err))
	}
	return c, nil
}
