package terminal

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// mostShown is how many choices huh is given at once: it lays out all of them
// with every key.
const mostShown = 100

// A finder is a field with more choices than rows for them. What is typed
// finds those that have it in their label.
type finder struct {
	huh.Field
	spaces bool                    // can be typed; otherwise the key chooses
	find   func(typed string) bool // shows what it finds, if it finds something
	typed  string
}

// WithKeyMap implements [huh.Field]. A letter is none of the keys, nor is one
// in the help.
func (f *finder) WithKeyMap(k *huh.KeyMap) huh.Field {
	keys := *k
	keys.MultiSelect.Toggle.SetKeys("space")
	keys.MultiSelect.Toggle.SetHelp("space", "toggle")
	f.Field.WithKeyMap(&keys)
	return f
}

// Update implements [huh.Model]. What would find nothing is not typed.
func (f *finder) Update(msg tea.Msg) (huh.Model, tea.Cmd) {
	typed := f.typed
	switch msg := msg.(type) {
	case tea.PasteMsg:
		typed += strings.TrimSpace(msg.Content)
	case tea.KeyPressMsg:
		switch {
		case msg.String() == "backspace":
			_, size := utf8.DecodeLastRuneInString(typed)
			typed = typed[:len(typed)-size]
		case msg.Text != "" && (f.spaces || msg.Text != " "):
			typed += msg.Text
		}
	}
	if typed != f.typed { // and no letter is one of huh's keys
		if f.find(typed) {
			f.typed = typed
		}
		return f, nil
	}
	_, cmd := f.Field.Update(msg)
	return f, cmd
}

// found are the choices that have a text in their label, the first of them, after
// those to be kept; and what to say of that, on a line.
func found(f *form.Field, typed string, kept []int) (options []huh.Option[int], say string) {
	show := func(i int) {
		options = append(options, huh.NewOption(safetext.Short(label(f, f.Choices[i]), mostTitle), i))
	}
	for _, i := range kept {
		show(i)
	}
	n, lower := 0, strings.ToLower(typed)
	for i, c := range f.Choices {
		if !strings.Contains(strings.ToLower(label(f, c)), lower) {
			continue
		}
		if n++; n <= mostShown && !slices.Contains(kept, i) {
			show(i)
		}
	}
	if n == 0 {
		return nil, ""
	}
	say = fmt.Sprintf("%d choices: type to find", n)
	if typed != "" {
		say = fmt.Sprintf("%d found with %s", n, safetext.Short(typed, 40))
	}
	if n > mostShown {
		say += fmt.Sprintf(" (the first %d are here)", mostShown)
	}
	return options, say
}
