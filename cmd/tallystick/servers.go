package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/reach"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/terminal"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/trace"
)

func serversCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "servers",
		Short: "The servers that are known by name",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(serversAddCommand(), serversListCommand(), serversLoginCommand(), serversLogoutCommand(), serversRemoveCommand())
	return cmd
}

// adding flags.
type adding struct {
	common
	headers, env     []string
	oauth, machine   bool
	clientID, secret string
	trace            bool
}

func serversAddCommand() *cobra.Command {
	c := adding{common: common{begins: true}}
	cmd := &cobra.Command{
		Use:   "add NAME URL | add NAME -- COMMAND [ARGUMENT...]",
		Short: "Give a server a name",
		Long: `Adds a server to the settings. "${VAR}" in the value of a header, of an environment
variable or of the client secret is replaced by that variable of your environment each
time the server is reached, so that the secret itself is in no file.

With --oauth you sign in: it shows the page, opens it if you say so, and keeps the
tokens, readable by you only, beside the memory. A command gets of your environment
what programs need, and what --env gives it.`,
		Example: `  tallystick servers add desk https://desk.example/mcp --header 'Authorization: Bearer ${DESK_TOKEN}'
  tallystick servers add crm https://crm.example/mcp --oauth
  tallystick servers add notes --env 'NOTES_KEY=${NOTES_KEY}' -- npx notes-server --stdio`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c.common, reaching{trace: c.trace}, func(a *app) error { return a.addServer(c, cmd.ArgsLenAtDash(), args) })
		},
	}
	c.common.add(cmd)
	cmd.Flags().StringArrayVar(&c.headers, "header", nil, "`'NAME: VALUE'` to send with each request")
	cmd.Flags().StringArrayVar(&c.env, "env", nil, "`NAME=VALUE` for the command's environment")
	cmd.Flags().BoolVar(&c.oauth, "oauth", false, "sign in with OAuth")
	cmd.Flags().StringVar(&c.clientID, "client-id", "", "with --oauth: the `ID` of a client that is registered there (default: one is registered)")
	cmd.Flags().StringVar(&c.secret, "client-secret", "", "with --client-id: its secret, best as `'${VAR}'`")
	cmd.Flags().BoolVar(&c.machine, "machine", false, "with --client-secret: the client acts for itself, and nobody signs in")
	cmd.Flags().BoolVar(&c.trace, "trace", false, "print what signing in sends to standard error, secrets masked")
	return cmd
}

func (a *app) addServer(c adding, dash int, args []string) error {
	var s settings.Server
	switch {
	case dash < 0 && len(args) == 2:
		s.URL = args[1]
	case dash == 1 && len(args) > 1:
		s.Command = args[1:]
	default:
		return usage("write: servers add NAME URL, or servers add NAME -- COMMAND [ARGUMENT...]")
	}
	var err error
	if s.Headers, err = pairs(c.headers, ":", "--header", nil); err != nil {
		return err
	}
	if s.Env, err = pairs(c.env, "=", "--env", nil); err != nil {
		return err
	}
	if c.oauth || c.machine || c.clientID != "" || c.secret != "" {
		if !c.oauth {
			return usage("--client-id, --client-secret and --machine are for --oauth")
		}
		s.OAuth = &settings.OAuth{ClientID: c.clientID, ClientSecret: c.secret, Machine: c.machine}
	}
	name := args[0]
	if err := s.Check(); err != nil {
		return usage("%v", err)
	}
	err = settings.Change(a.Path, func(f *settings.File) error {
		if _, there := f.Servers[name]; there {
			return usage("there is a server %s already: remove it first", name)
		}
		if f.Servers == nil {
			f.Servers = map[string]settings.Server{}
		}
		f.Servers[name] = s
		return nil
	})
	if err != nil {
		return local(err)
	}
	if u, err := url.Parse(s.URL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		a.say("warning: %s is not encrypted: others on the way can read and change all of it", safetext.Line(s.URL))
	}
	a.hint("%s is %s", name, safetext.Line(whereIs(s)))
	added := infoOfServer(name, s)
	if s.OAuth != nil && !s.OAuth.Machine {
		return a.login(name, s, failure{Added: &added})
	}
	if a.json {
		return a.print(map[string]serverInfo{"added": added})
	}
	return nil
}

func loopback(host string) bool {
	return host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1"
}

// login signs a person in, whom --json has not: it asks nothing, and so has
// nothing to print but the failure.
func (a *app) login(name string, s settings.Server, f failure) error {
	if !a.interactive() {
		return a.fail(f, name, &client.Error{Kind: client.ErrUnauthorized, Reason: "signing in needs a terminal and a person at it, and no --json", Err: signin.ErrSignIn})
	}
	s, err := s.Expanded()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(a.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	person := terminal.New(terminal.Options{Screen: a.screen, In: a.in, Where: a.where, Interrupt: stop, Gone: func(client.Question) string {
		if ctx.Err() == nil {
			return "" // the browser has come back
		}
		return toldToEnd + "; nobody is signed in"
	}})
	var tracer *trace.Tracer
	if a.trace {
		tracer = trace.New(a.screen)
	}
	err = signin.In(ctx, signin.Options{
		URL: s.URL, OAuth: *s.OAuth, File: signin.File(a.Settings.Memory, name), HTTP: reach.Web(tracer),
		Show: func(ctx context.Context, page string) error {
			answer, err := person.Answer(ctx, client.Question{
				Server: name, Kind: client.URL, URL: page, Key: "sign in",
				Message: "To sign in to " + name + ", open this page in a browser on this machine.",
			})
			if err == nil && answer.Action != "accept" {
				return errors.New("you did not open the page")
			}
			return err
		},
	})
	if err != nil {
		return a.fail(f, name, &client.Error{Kind: client.ErrUnauthorized, Reason: "signing in failed", Err: err})
	}
	a.hint("signed in to %s", name)
	return nil
}

func serversLoginCommand() *cobra.Command {
	var c common
	var traced bool
	cmd := &cobra.Command{
		Use:               "login NAME",
		Short:             "Sign in to a server that was added with --oauth",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, reaching{trace: traced}, func(a *app) error {
				s, ok := a.Servers[args[0]]
				if !ok || s.OAuth == nil || s.OAuth.Machine {
					return usage("%s is no server that was added with --oauth for a person", quoted(args[0]))
				}
				return a.login(args[0], s, failure{})
			})
		},
	}
	c.add(cmd)
	cmd.Flags().BoolVar(&traced, "trace", false, "print what is sent to standard error, secrets masked")
	return cmd
}

func serversLogoutCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use:               "logout NAME",
		Short:             "Forget the tokens for a server",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, reaching{}, func(a *app) error {
				if _, ok := a.Servers[args[0]]; !ok {
					return usage("there is no server %s", quoted(args[0]))
				}
				if err := signin.Out(signin.File(a.Settings.Memory, args[0])); err != nil {
					return local(err)
				}
				if a.json {
					return a.print(map[string]string{"loggedOut": args[0]})
				}
				return nil
			})
		},
	}
	c.add(cmd)
	return cmd
}

// serverInfo is a server in --json. Values that may be secret are left out.
type serverInfo struct {
	Name    string   `json:"name"`
	URL     string   `json:"url,omitzero"`
	Headers []string `json:"headers,omitzero"` // names
	OAuth   bool     `json:"oauth,omitzero"`
	Command []string `json:"command,omitzero"`
	Env     []string `json:"env,omitzero"` // names
}

func infoOfServer(name string, s settings.Server) serverInfo {
	return serverInfo{
		Name: name, URL: s.URL, Headers: slices.Sorted(maps.Keys(s.Headers)), OAuth: s.OAuth != nil,
		Command: s.Command, Env: slices.Sorted(maps.Keys(s.Env)),
	}
}

func whereIs(s settings.Server) string {
	if s.URL != "" {
		return s.URL
	}
	return strings.Join(s.Command, " ")
}

func serversListCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the servers that are known",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return do(cmd, c, reaching{}, (*app).listServers)
		},
	}
	c.add(cmd)
	return cmd
}

func (a *app) listServers() error {
	names := slices.Sorted(maps.Keys(a.Servers))
	if a.json {
		doc := struct {
			Settings string       `json:"settings"`
			Servers  []serverInfo `json:"servers"`
		}{a.Path, []serverInfo{}}
		for _, name := range names {
			doc.Servers = append(doc.Servers, infoOfServer(name, a.Servers[name]))
		}
		return a.print(doc)
	}
	if len(names) == 0 {
		a.hint("no servers in %s: tallystick servers add NAME URL%s", safetext.Line(a.Path), a.given)
		return nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range names {
		s := a.Servers[name]
		with := strings.Join(slices.Sorted(maps.Keys(s.Headers)), ", ")
		if s.OAuth != nil {
			with = strings.TrimPrefix(with+", OAuth", ", ")
		}
		fmt.Fprintln(w, strings.TrimRight(name+"\t"+safetext.Line(whereIs(s))+"\t"+with, "\t"))
	}
	_ = w.Flush() // into a string
	return a.text("%s", strings.TrimSuffix(b.String(), "\n"))
}

func serversRemoveCommand() *cobra.Command {
	var c common
	var force bool
	cmd := &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a server, and its tokens",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, c, reaching{}, func(a *app) error { return a.removeServer(args[0], force) })
		},
	}
	c.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also if calls to it have not ended: nobody can come back to them then")
	return cmd
}

func (a *app) removeServer(name string, force bool) error {
	if _, ok := a.Servers[name]; !ok {
		return usage("there is no server %s", quoted(name))
	}
	open, err := a.openCalls(name)
	if err != nil {
		return err
	}
	if open > 0 && !force {
		return usage("%s to %s that have not ended: see tallystick tasks%s, or use --force", plural(open, "call"), name, a.given)
	}
	err = settings.Change(a.Path, func(f *settings.File) error {
		delete(f.Servers, name)
		return nil
	})
	if err == nil {
		err = signin.Out(signin.File(a.Settings.Memory, name))
	}
	if err != nil {
		return local(err)
	}
	if a.json {
		return a.print(map[string]string{"removed": name})
	}
	return nil
}

// openCalls counts the calls to a server that have not ended. It makes no
// memory where there is none.
func (a *app) openCalls(server string) (n int, err error) {
	if !isThere(a.Settings.Memory) {
		return 0, nil
	}
	m, err := a.memory()
	if err != nil {
		return 0, err
	}
	all, err := m.List(a.ctx)
	for _, st := range all {
		if st.Server == server && !st.State.Final() {
			n++
		}
	}
	return n, err
}
