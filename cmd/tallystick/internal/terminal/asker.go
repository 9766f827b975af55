package terminal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"charm.land/huh/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/link"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// Options say where an Asker asks.
type Options struct {
	Screen *Screen   // a terminal
	In     io.Reader // of the same terminal: its keys
	// Where is the URL or command of a server by its name, for people to see; nil
	// or an empty result: not known.
	Where func(server string) string
	// Open shows an address in a browser; nil: [OpenBrowser]. It is called when
	// the person says so, and at no other time.
	Open func(address string) error
	// Interrupt is called when Ctrl-C is pressed in a form, which is no SIGINT
	// there. The form is gone then and the question not answered. It must not wait
	// for the Asker. May be nil.
	Interrupt func()
	Now       func() time.Time // nil: time.Now
	// Keep, if not nil, takes an answer before the person is told that it was
	// given. Its error is told instead, and returned with the answer.
	Keep func(context.Context, client.Question, client.Answer) error
	// Gone is what to say of a question that is taken from the screen; nil or an
	// empty result: that somebody else has answered it, or its call has ended.
	Gone func(client.Question) string
}

// An Asker puts questions to the person at a terminal, one at a time. It is a
// [client.Answerer] for forms and addresses.
type Asker struct {
	Options
	turn chan struct{} // held while a question is on the screen
	show func(context.Context, *page) error
}

var _ client.Answerer = (*Asker)(nil)

// New returns an Asker.
func New(o Options) *Asker {
	if o.Where == nil {
		o.Where = func(string) string { return "" }
	}
	if o.Open == nil {
		o.Open = OpenBrowser
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Asker{Options: o, turn: make(chan struct{}, 1)}
	a.show = func(ctx context.Context, p *page) error { return show(ctx, p, a.In, a.Screen.out) }
	return a
}

// Kinds implements [client.Answerer]: form and URL.
func (a *Asker) Kinds() []client.Kind { return []client.Kind{client.Form, client.URL} }

// Answer implements [client.Answerer]. The question waits its turn, if another
// is on the screen. After Ctrl-C, and for a kind that it does not have, the
// error is [client.ErrNoAnswer].
func (a *Asker) Answer(ctx context.Context, q client.Question) (client.Answer, error) {
	if q.Kind != client.Form && q.Kind != client.URL {
		return client.Answer{}, client.ErrNoAnswer
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return client.Answer{}, context.Cause(ctx)
	}
	release := a.Screen.hold()
	defer release()
	width := a.Screen.columns()
	card := Card(q, CardOptions{Where: a.Where(q.Server), Now: a.Now(), Width: width})
	io.WriteString(a.Screen, card)
	asking := &asking{Asker: a, ctx: ctx, q: q, width: width, card: card}
	answer, err := asking.ask()
	if err == nil && a.Keep != nil {
		if err := a.Keep(ctx, q, answer); err != nil {
			a.Screen.Say("The answer was not taken: %s.", safetext.Short(err.Error(), 500))
			return answer, err
		}
	}
	return answer, asking.tell(answer, err)
}

// Idle waits until no question is on the screen.
func (a *Asker) Idle() {
	a.turn <- struct{}{}
	<-a.turn
}

// An asking is one question on the screen.
type asking struct {
	*Asker
	ctx   context.Context
	q     client.Question
	width int
	card  string // with what else is to be seen beside the form
}

var (
	errInterrupted = errors.New("interrupted")
	errGone        = errors.New("gone")
)

// tell prints what became of the question, and turns the error into one for the
// client.
func (a *asking) tell(answer client.Answer, err error) error {
	switch {
	case errors.Is(err, errGone):
		why := ""
		if a.Gone != nil {
			why = a.Gone(a.q)
		}
		a.Screen.Say("%s", cmp.Or(why, "The question is gone: it was answered elsewhere, or its call has ended."))
		return context.Cause(a.ctx)
	case errors.Is(err, errInterrupted):
		a.Screen.Say("Ctrl-C: the question is not answered.")
		if a.Interrupt != nil {
			a.Interrupt()
		}
		return client.ErrNoAnswer
	case err != nil:
		return err
	}
	a.Screen.Say("%s", map[string]string{"accept": "Accepted.", "decline": "Declined.", "cancel": "Dismissed."}[answer.Action])
	return nil
}

func (a *asking) ask() (client.Answer, error) {
	if a.q.Kind == client.URL {
		return a.address()
	}
	f, err := form.Parse(a.q.Schema)
	if err != nil {
		return a.unshowable(err)
	}
	sheet := newSheet(f)
	long := sheet.long(a.width)
	io.WriteString(a.Screen, long)
	a.card += long
	for {
		if len(f.Fields) > 0 {
			back, answer, err := a.fill(sheet.page(a.width))
			if back {
				continue
			}
			if err != nil || answer.Action != "" {
				return answer, err
			}
		}
		content, err := sheet.content()
		if err != nil {
			a.Screen.Say("This does not fit yet: %s.", err)
			if len(f.Fields) == 0 {
				return a.unshowable(err)
			}
			continue
		}
		answer, again, err := a.send(content, sheet.cut(a.width)+sheet.leftOut(content, a.width), len(f.Fields) > 0)
		if !again {
			return answer, err
		}
	}
}

// Choices that are offered.
const (
	sendIt  = "Accept: send this"
	accept  = "Accept"
	change  = "Change it"
	decline = "Decline: an explicit no"
	dismiss = "Dismiss: close it without a choice"
	back    = "Back to the form"
	haveIt  = "Accept: I have done it, or go there by myself"
	typeIt  = "Write the answer as JSON"
)

// fill shows a page to be filled in. Without an answer, an error or back it has
// been.
func (a *asking) fill(p *page) (goBack bool, answer client.Answer, err error) {
	end, err := a.leave(p)
	if err != nil || end == done {
		return false, answer, err
	}
	chosen, err := a.choose("Leave the form?", back, decline, dismiss)
	answer = given(chosen)
	return chosen == back, answer, err
}

// given is the answer of a choice that needs no content.
func given(chosen string) client.Answer {
	switch chosen {
	case decline:
		return client.Decline()
	case dismiss:
		return client.Dismiss()
	}
	return client.Answer{}
}

// send shows what accepting means, secrets masked, and asks for the choice.
func (a *asking) send(content jsontext.Value, more string, filled bool) (answer client.Answer, again bool, err error) {
	choices := []string{accept, decline, dismiss}
	if filled {
		choices = []string{sendIt, change, decline, dismiss}
		a.Screen.Say("Accepting sends:\n%s", safetext.Frame{Mark: mark, Width: a.width, Limit: mostArguments}.JSON(form.FindSecrets(a.q.Schema).Mask(content)))
		io.WriteString(a.Screen, more)
	} else {
		a.Screen.Say("It asks for nothing but a choice.")
	}
	chosen, err := a.choose("Your answer?", choices...)
	switch {
	case err != nil:
		return answer, false, err
	case chosen == change:
		return answer, true, nil
	case chosen == sendIt, chosen == accept:
		return client.Answer{Action: "accept", Content: json.RawMessage(content)}, false, nil
	}
	return given(chosen), false, nil
}

// unshowable is for a schema that is no form: whoever knows better can write
// the content.
func (a *asking) unshowable(why error) (client.Answer, error) {
	a.Screen.Say("This question cannot be shown as a form: %s.", why)
	schema := safetext.Frame{Mark: mark, Width: a.width, Limit: mostArguments}.JSON(a.q.Schema)
	a.Screen.Say("Its schema:\n%s", schema)
	if few := 10; strings.Count(schema, "\n") > few { // it has pushed away what is asked
		io.WriteString(a.Screen, a.card)
	}
	for {
		chosen, err := a.choose("Your answer?", typeIt, decline, dismiss)
		if err != nil || chosen != typeIt {
			return given(chosen), err
		}
		var typed string
		input := huh.NewInput().Title("The content, as a JSON object").Value(&typed).Validate(isObject)
		if form.FindSecrets(a.q.Schema).Any() {
			input.EchoMode(huh.EchoModePassword)
		}
		goBack, answer, err := a.fill(newPage(input))
		if goBack {
			continue
		}
		if err != nil || answer.Action != "" {
			return answer, err
		}
		answer, again, err := a.send(jsontext.Value(typed), "", true)
		if !again {
			return answer, err
		}
	}
}

func isObject(s string) error {
	v := jsontext.Value(s)
	if !v.IsValid() || v.Kind() != '{' {
		return errors.New(`this is no JSON object, as {"name": "value"}`)
	}
	return nil
}

// address asks about a URL. What it opens is the address that was judged.
func (a *asking) address() (client.Answer, error) {
	l := link.Judge(a.q.URL)
	openIt := "Open " + theEnd(l.Host, a.width-beside-len("Open ")) + " in a browser"
	choices := []string{openIt, haveIt, decline, dismiss}
	if l.Refused != "" {
		choices = []string{decline, dismiss}
	}
	for {
		chosen, err := a.choose("Your answer?", choices...)
		switch {
		case err != nil:
			return client.Answer{}, err
		case chosen == haveIt:
			return client.Accept(nil)
		case chosen != openIt:
			return given(chosen), nil
		}
		if err := a.Open(l.Opens); err != nil {
			a.Screen.Say("It could not be opened: %s. Open it by hand, or decline.", safetext.Line(err.Error()))
			continue
		}
		a.Screen.Say("Opened %s. If nothing is to be seen, open the address by hand.", l.Host)
	}
}

// choose asks for one of several choices, of which none is taken before the
// person moves to it. Only Enter chooses: Esc goes a step back, and where there
// is none begins anew, as it may be the first byte of another key.
func (a *asking) choose(title string, choices ...string) (string, error) {
	options := []huh.Option[string]{huh.NewOption("— choose —", "")}
	for _, c := range choices {
		options = append(options, huh.NewOption(c, c))
	}
	for {
		var at, chosen string
		p := newPage(huh.NewSelect[string]().Title(a.whose(title)).Options(options...).Value(&at).
			Validate(func(at string) error {
				if at == "" {
					return errors.New("choose one")
				}
				chosen = cmp.Or(chosen, at)
				return nil
			}))
		// Keys that have come with the Enter would still move the cursor.
		p.over = func() bool { return chosen != "" }
		end, err := a.leave(p)
		if err != nil || end != left {
			return chosen, err
		}
		for _, c := range choices {
			if c == back || c == change {
				return c, nil
			}
		}
	}
}

// beside is how many columns huh has beside the text of a choice.
const beside = 4

// whose is the title with the server and the tool, for where the card has left
// the screen.
func (a *asking) whose(title string) string {
	const most, least = 60, 6
	cut := func(s string, columns int) string { return ansi.Truncate(s, columns, "…") }
	server, name := safetext.Line(a.q.Server), safetext.Line(a.q.Name)
	if u, err := url.Parse(a.q.Server); err == nil && u.Host != "" {
		server, cut = safetext.Line(u.Host), theEnd
	}
	room := a.width - beside - len(title+" ()")
	if name != "" {
		room -= len(", ")
		columns := min(most, max(room/2, room-ansi.StringWidth(server), least))
		room -= min(ansi.StringWidth(name), columns)
		name = ", " + ansi.Truncate(name, columns, "…")
	}
	return title + " (" + cut(server, min(most, max(room, least))) + name + ")"
}

// theEnd is a host in so many columns. Whose it is stands at its end.
func theEnd(host string, columns int) string {
	if n := ansi.StringWidth(host) - max(columns, 12); n > 0 {
		return ansi.TruncateLeft(host, n+1, "…")
	}
	return host
}

// leave shows a page until it is done or left. Every other end is an error.
func (a *asking) leave(p *page) (ending, error) {
	p.above = strings.Count(a.card, "\n")
	free := a.Screen.take()
	err := a.show(a.ctx, p)
	free()
	switch {
	case err != nil:
	case p.end == gone:
		err = errGone
	case p.end == interrupted:
		err = errInterrupted
	}
	return p.end, err
}

// OpenBrowser hands an address to what the system opens addresses with. No shell
// sees it. It does not wait for the browser.
func OpenBrowser(address string) error {
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.Command(command[0], append(command[1:], address)...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}
	return cmd.Process.Release()
}
