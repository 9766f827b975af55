package terminal

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/form"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// A sheet is a form being filled in. What was typed stays when it is shown again.
type sheet struct {
	form    *form.Form
	entries []entry
}

// An entry is what was typed or chosen in a field.
type entry struct {
	typed  string
	chosen int // of YesNo and One; none is -1
	many   []int
}

// none is the choice that is no choice. It is where the cursor begins, whatever
// the server suggests.
const none = -1

func newSheet(f *form.Form) *sheet {
	s := &sheet{form: f, entries: make([]entry, len(f.Fields))}
	for i := range f.Fields {
		s.entries[i] = entry{typed: f.Fields[i].Prefill(), chosen: none}
	}
	return s
}

// Limits of the texts within a form, which is redrawn with every key: what is
// cut here is shown in full before the form.
const (
	mostTitle       = 120
	mostDescription = 300
	mostRows        = 10   // of choices; there is more above and below
	mostBefore      = 1000 // of the choices of a field together, before the form
)

// long is what of the fields does not fit into the form.
func (s *sheet) long(width int) string {
	frame := safetext.Frame{Mark: mark, Width: width, Limit: mostMessage}
	var b strings.Builder
	tell := func(what, text string, limit int) {
		if len([]rune(text)) > limit {
			b.WriteString(what + ":\n" + frame.Block(text) + "\n")
		}
	}
	for _, f := range s.form.Fields {
		about := "Field " + safetext.Short(f.Name, mostTitle)
		tell(about, f.Description, mostDescription)
		if len(f.Choices) == 0 {
			tell(about+", suggested", string(f.Default), mostDescription)
		}
		before := 0
		for _, c := range f.Choices {
			if n := len([]rune(label(&f, c))); n > mostTitle {
				before += n
			}
		}
		if before > mostBefore { // it would push away what is asked
			b.WriteString(ansi.Wrap(about+" has choices that are cut here. What you choose is shown in full before it is sent.", width, "") + "\n")
			continue
		}
		for _, c := range f.Choices {
			tell(about+", a choice", label(&f, c), mostTitle)
		}
	}
	return b.String()
}

// cut are the choices taken that the form has shown in part.
func (s *sheet) cut(width int) string {
	var b strings.Builder
	for i, f := range s.form.Fields {
		for _, chosen := range append(picked(s.entries[i].chosen), s.entries[i].many...) {
			if text := label(&f, f.Choices[chosen]); len([]rune(text)) > mostTitle {
				b.WriteString("Chosen as " + safetext.Short(f.Name, mostTitle) + ":\n" +
					safetext.Frame{Mark: mark, Width: width, Limit: mostMessage}.Block(text) + "\n")
			}
		}
	}
	return b.String()
}

// page is the sheet as a page. Each field checks what is entered.
func (s *sheet) page(width int) *page {
	var fields []huh.Field
	for i := range s.form.Fields {
		f, e := &s.form.Fields[i], &s.entries[i]
		switch f.Kind {
		case form.Text, form.Number, form.Integer:
			echo := huh.EchoModeNormal
			if f.Secret {
				echo = huh.EchoModePassword
			}
			fields = append(fields, huh.NewInput().Title(title(f)).Description(description(f)).Value(&e.typed).EchoMode(echo).
				Validate(func(typed string) error { _, err := f.Read(typed); return err }))
		case form.YesNo, form.One:
			fields = append(fields, pickOne(f, e, width))
		case form.Many:
			fields = append(fields, pickMany(f, e, width))
		}
	}
	return newPage(fields...)
}

func pickOne(f *form.Field, e *entry, width int) huh.Field {
	first := "— choose —"
	if !f.Required {
		first = "— leave out —"
	}
	field := huh.NewSelect[int]().Title(title(f)).Description(description(f)).Value(&e.chosen).
		Validate(func(chosen int) error { _, err := f.Pick(picked(chosen)...); return err })
	show := func(choices []huh.Option[int]) {
		field.Options(append([]huh.Option[int]{huh.NewOption(first, none)}, choices...)...)
	}
	if len(f.Choices) < mostRows {
		choices, _ := found(f, "", nil)
		show(choices)
		return field
	}
	find := func(typed string) bool {
		choices, say := found(f, typed, picked(e.chosen))
		if choices == nil {
			return false
		}
		field.Description(lines(description(f), say))
		show(choices)
		return true
	}
	find("")
	field.Height(height(f, width, mostRows) + 1)
	return &finder{Field: field, spaces: true, find: func(typed string) bool {
		was := e.chosen
		e.chosen = none // the cursor has not been moved to what is found
		if find(typed) {
			return true
		}
		e.chosen = was
		return false
	}}
}

// height is that of a field with so many rows of choices.
func height(f *form.Field, width, choices int) int {
	const bar = 4 // what huh has beside the text
	text := lines(title(f), description(f))
	return strings.Count(ansi.Wrap(text, max(width-bar, 1), ""), "\n") + 1 + choices
}

func pickMany(f *form.Field, e *entry, width int) huh.Field {
	field := huh.NewMultiSelect[int]().Title(title(f)).Description(description(f)).Filterable(false).Value(&e.many).
		Validate(func(chosen []int) error { _, err := f.Pick(chosen...); return err })
	if len(f.Choices) <= mostRows {
		choices, _ := found(f, "", nil)
		return field.Options(choices...).Height(height(f, width, len(choices)))
	}
	find := func(typed string) bool {
		choices, say := found(f, typed, e.many)
		if choices == nil {
			return false
		}
		field.Description(lines(description(f), say+"; the space bar chooses")).Options(choices...)
		return true
	}
	find("")
	field.Height(height(f, width, mostRows) + 1)
	return &finder{Field: field, find: func(typed string) bool {
		if !find(typed) {
			return false
		}
		field.Update(tea.KeyPressMsg{Code: tea.KeyHome}) // the cursor may be beyond the last
		return true
	}}
}

// lines are the texts that there are, each on a line of its own.
func lines(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

func picked(chosen int) []int {
	if chosen == none {
		return nil
	}
	return []int{chosen}
}

// content is what accepting would send.
func (s *sheet) content() (jsontext.Value, error) {
	values := map[string]jsontext.Value{}
	for i := range s.form.Fields {
		f, e := &s.form.Fields[i], &s.entries[i]
		var v jsontext.Value
		var err error
		switch f.Kind {
		case form.Text, form.Number, form.Integer:
			v, err = f.Read(e.typed)
		case form.YesNo, form.One:
			v, err = f.Pick(picked(e.chosen)...)
		case form.Many:
			v, err = f.Pick(e.many...)
		}
		if err != nil {
			return nil, err
		}
		values[f.Name] = v
	}
	return s.form.Content(values)
}

// leftOut names the fields that are not sent though the server has a default
// for them, which it may then take.
func (s *sheet) leftOut(content jsontext.Value, width int) string {
	var b strings.Builder
	for _, f := range s.form.Fields {
		if f.Default != nil && !f.Given(content) {
			b.WriteString("Left out, so that the server may take its own default: " + safetext.Short(f.Name, mostTitle) + "\n" +
				safetext.Frame{Mark: mark, Width: width, Limit: mostMessage}.JSON(f.Default) + "\n")
		}
	}
	return b.String()
}

// title is a field's title, and its name if that is another.
func title(f *form.Field) string {
	name := safetext.Short(f.Name, mostTitle)
	if f.Title == "" || f.Title == f.Name {
		return name
	}
	return safetext.Short(f.Title, mostTitle) + " (" + name + ")"
}

// description says what the server says of the field, what it suggests, and
// what is expected.
func description(f *form.Field) string {
	var rows []string
	if f.Description != "" {
		rows = append(rows, safetext.Short(f.Description, mostDescription))
	}
	if f.Default != nil && len(f.Choices) == 0 {
		rows = append(rows, "suggested: "+safetext.Short(string(f.Default), mostDescription))
	}
	if hint := f.Hint(); hint != "" {
		rows = append(rows, hint)
	}
	return strings.Join(rows, "\n")
}

// spaces are those that look like another, which a value may have instead.
var spaces = strings.NewReplacer("\u00a0", `\u00a0`, "\u202f", `\u202f`, "\u3000", `\u3000`)

// label is a choice's title, and its value if that is another: a title may say
// what it likes, but for Yes and No, which are ours.
func label(f *form.Field, c form.Choice) string {
	value := spaces.Replace(c.Text())
	if strings.TrimSpace(value) != value || value == "" {
		value = `"` + value + `"`
	}
	s := value
	if c.Title != "" && c.Title != c.Text() {
		s = c.Title
		if f.Kind != form.YesNo {
			s += " (" + value + ")"
		}
	}
	if c.Suggested {
		s += ", suggested by the server"
	}
	return s
}
