package terminal

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"
	"github.com/charmbracelet/x/term"
)

// An ending is how a page was left.
type ending int

const (
	open        ending = iota
	done               // filled in
	left               // Esc
	interrupted        // Ctrl-C
	gone               // its context ended: nobody needs it any more
)

// A page is a form on the screen until it is left. It leaves nothing behind:
// what is worth keeping is printed by whoever shows it.
type page struct {
	form  *huh.Form
	end   ending
	above int  // rows that are best left on the screen
	sized bool // the size of the screen is known
	shown bool // keys count: before, nobody can mean the page with them
	early int  // keys that did not count
	in    io.Reader
	over  func() bool // ends the page; nil: the form does, once it is filled in
}

func newPage(fields ...huh.Field) *page {
	keys := huh.NewDefaultKeyMap()
	keys.Quit.SetEnabled(false) // the page tells Esc from Ctrl-C
	keys.Select.Filter.SetEnabled(false)
	keys.Input.AcceptSuggestion.SetEnabled(false)
	form := huh.NewForm(huh.NewGroup(fields...)).
		WithAccessible(false). // huh's line mode takes the end of the input for an answer
		WithTheme(huh.ThemeFunc(huh.ThemeBase16)).
		WithKeyMap(keys)
	form.SubmitCmd = tea.Quit
	return &page{form: form}
}

// goneMsg takes the page away.
type goneMsg struct{}

// quietMsg is that no key has come for a while, if there were no more than so
// many before.
type quietMsg int

// quiet is how long no key comes before a page is shown. It is longer than a key
// held down takes to come again, and than the way of what was typed earlier from
// the terminal to here.
const quiet = 100 * time.Millisecond

func (p *page) wait() tea.Cmd {
	early := quietMsg(p.early)
	return tea.Tick(quiet, func(time.Time) tea.Msg { return early })
}

// Init implements [tea.Model].
func (p *page) Init() tea.Cmd { return tea.Batch(p.form.Init(), p.wait()) }

// Update implements [tea.Model].
func (p *page) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if p.end != open {
		return p, nil
	}
	switch msg := msg.(type) {
	case goneMsg:
		p.end = gone
		return p, tea.Quit
	case quietMsg:
		if !p.shown && int(msg) == p.early {
			if terminal, ok := p.in.(term.File); ok {
				discard(terminal.Fd()) // whoever reads it may be late
			}
			p.shown = true
		}
		return p, nil
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			p.end = interrupted
			return p, tea.Quit
		}
		if !p.shown {
			p.early++
			return p, p.wait()
		}
		if msg.String() == "esc" {
			p.end = left
			return p, tea.Quit
		}
	case tea.PasteMsg:
		if !p.shown {
			p.early++
			return p, p.wait()
		}
	}
	if size, ok := msg.(tea.WindowSizeMsg); ok {
		// huh forgets the empty row above its help, and does not foresee that an
		// error may be longer. What is too high would lose its top, where the title
		// of the field stands.
		const forgotten, least = 3, 10
		rows := max(size.Height-forgotten, 1)
		size.Height = max(rows-p.above, min(rows, least))
		p.sized, msg = true, size
	}
	_, cmd := p.form.Update(msg)
	if p.over != nil && p.over() {
		cmd, p.end = tea.Quit, done
	}
	if p.form.State == huh.StateCompleted {
		p.end = done
	}
	return p, cmd
}

// View implements [tea.Model].
func (p *page) View() tea.View {
	if p.end != open || !p.shown || !p.sized { // at its full height it would push away what is above
		return tea.NewView("")
	}
	return tea.NewView(p.form.View())
}

// show runs a page until it is left or ctx ends.
func show(ctx context.Context, p *page, in io.Reader, out io.Writer) error {
	p.in = in
	program := tea.NewProgram(p, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, func() { program.Send(goneMsg{}) })
	defer stop()
	if _, err := program.Run(); err != nil {
		return fmt.Errorf("the form on the terminal: %w", err)
	}
	if p.end == open {
		return fmt.Errorf("the form on the terminal ended by itself")
	}
	return nil
}
