package terminal

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tallystick/tallystick/client"
)

// A person presses keys, page by page, as soon as a page is on the screen.
type person struct {
	t      *testing.T
	pages  [][]string // keys; a word of several letters that is no key is typed
	seen   []string   // each page, as it was before it was left
	out    strings.Builder
	opened []string
	ctrlC  int
}

func (p *person) asker() *Asker {
	a := New(Options{
		Screen:    &Screen{out: &p.out, width: func() int { return 101 }},
		Where:     func(string) string { return "https://desk.example/mcp" },
		Open:      func(address string) error { p.opened = append(p.opened, address); return nil },
		Interrupt: func() { p.ctrlC++ },
		Now:       func() time.Time { return noon },
	})
	a.show = func(ctx context.Context, pg *page) error {
		if len(p.pages) == 0 {
			<-ctx.Done() // the person has gone for lunch
			pg.Update(goneMsg{})
			return nil
		}
		keys := p.pages[0]
		p.pages = p.pages[1:]
		follow(pg, pg.Init())
		_, cmd := pg.Update(tea.WindowSizeMsg{Width: 100, Height: 60})
		follow(pg, cmd)
		last := ""
		for _, k := range keys {
			for _, msg := range pressed(k) {
				last = ansi.Strip(pg.View().Content)
				_, cmd := pg.Update(msg)
				follow(pg, cmd)
			}
		}
		if pg.end == open {
			return fmt.Errorf("the page is still there:\n%s", ansi.Strip(pg.View().Content))
		}
		p.seen = append(p.seen, last)
		return nil
	}
	return a
}

// follow does what a page wants done, but for blinking.
func follow(pg *page, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	msg := cmd()
	if v := reflect.ValueOf(msg); v.IsValid() && v.Kind() == reflect.Slice && v.Type().Elem() == reflect.TypeFor[tea.Cmd]() {
		for i := range v.Len() {
			follow(pg, v.Index(i).Interface().(tea.Cmd))
		}
		return
	}
	if strings.HasPrefix(fmt.Sprintf("%T", msg), "cursor.") {
		return
	}
	_, cmd = pg.Update(msg)
	follow(pg, cmd)
}

func pressed(k string) (msgs []tea.Msg) {
	named := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp},
		"back": {Code: tea.KeyBackspace}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	if msg, ok := named[k]; ok {
		return []tea.Msg{msg}
	}
	for _, r := range k {
		msgs = append(msgs, tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	return msgs
}

func formOf(properties string) client.Question {
	return client.Question{Server: "desk", Method: "tools/call", Name: "refund", Key: "approve", Kind: client.Form, Message: "Refund?",
		Schema: fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":["delete_all"]}`, properties)}
}

const (
	yesNo = `"delete_all":{"type":"boolean","default":true}`
	more  = yesNo + `,"n":{"type":"integer","maximum":9007199254740993,"default":7},"s":{"type":"string","minLength":2},
		"c":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}],"default":"g"},
		"m":{"type":"array","items":{"type":"string","enum":["a","b","c"]},"minItems":1}`
)

var keysOf = struct{ send, change, decline, dismiss []string }{
	[]string{"down", "enter"}, []string{"down", "down", "enter"}, []string{"down", "down", "down", "enter"}, []string{"up", "enter"},
}

func TestAFormIsFilledInAndAnswered(t *testing.T) {
	yes := []string{"down", "enter"}
	tests := []struct {
		name       string
		properties string
		pages      [][]string
		want       string
	}{
		{"yes", yesNo, [][]string{yes, keysOf.send}, `accept {"delete_all":true}`},
		{"no", yesNo, [][]string{{"down", "down", "enter"}, keysOf.send}, `accept {"delete_all":false}`},
		{"declined at the end", yesNo, [][]string{yes, keysOf.decline}, `decline `},
		{"dismissed at the end", yesNo, [][]string{yes, keysOf.dismiss}, `cancel `},
		{"Esc at the end is back to the form", yesNo, [][]string{yes, {"esc"}, {"down", "enter"}, keysOf.send}, `accept {"delete_all":false}`},
		{"declined without filling it in", yesNo, [][]string{{"esc"}, {"down", "down", "enter"}}, `decline `},
		{"dismissed without filling it in", yesNo, [][]string{{"esc"}, {"up", "enter"}}, `cancel `},
		{"Esc twice is back to the form", yesNo, [][]string{{"esc"}, {"esc"}, yes, keysOf.send}, `accept {"delete_all":true}`},
		{"an arrow that comes in two pieces", yesNo, [][]string{yes, {"up", "esc"}, {"[A", "enter"}, keysOf.send}, `accept {"delete_all":true}`},
		{"back to the form, and on", yesNo, [][]string{{"esc"}, yes, yes, keysOf.send}, `accept {"delete_all":true}`},
		{"changed", yesNo, [][]string{yes, keysOf.change, {"down", "enter"}, keysOf.send}, `accept {"delete_all":false}`},
		{"all that is suggested is seen, and the rest left out", more, [][]string{{"down", "enter", "enter", "enter", "enter", "enter"}, keysOf.send}, `accept {"delete_all":true,"n":7}`},
		{"digits are kept", more, [][]string{{"down", "enter", "back", "9007199254740993", "enter", "xy", "enter", "down", "enter", "x", "down", "down", "x", "enter"}, keysOf.send},
			`accept {"delete_all":true,"n":9007199254740993,"s":"xy","c":"r","m":["a","c"]}`},
		{"what does not fit stays until it does", more, [][]string{{"down", "enter", "back", "9007199254740994", "enter", "back", "3", "enter", "x", "enter", "y", "enter", "enter", "enter"}, keysOf.send},
			`accept {"delete_all":true,"n":9007199254740993,"s":"xy"}`},
		{"a suggestion is deleted", more, [][]string{{"down", "enter", "back", "enter", "enter", "enter", "enter"}, keysOf.send}, `accept {"delete_all":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &person{t: t, pages: tt.pages}
				a, err := p.asker().Answer(t.Context(), formOf(tt.properties))
				if got := a.Action + " " + string(a.Content); err != nil || got != tt.want || len(p.pages) > 0 {
					t.Errorf("%s, %v, want %s; %d pages left\n%s", got, err, tt.want, len(p.pages), p.out.String())
				}
			})
		})
	}
}

// case S47
func TestAYesIsNeverPreset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &person{t: t, pages: [][]string{{"enter", "enter", "enter", "enter", "esc"}, {"enter", "enter", "up", "enter"}}}
		a, err := p.asker().Answer(t.Context(), formOf(yesNo))
		if err != nil || a.Action != "cancel" {
			t.Fatalf("Enter alone answers: %+v, %v", a, err)
		}
		compare(t, trimmed(p.seen[0]), `
┃ delete_all *
┃ > — choose —
┃   Yes, suggested by the server
┃   No

 * this is required: choose one
`)
		p = &person{t: t, pages: [][]string{{"down", "enter"}, {"enter", "enter", "enter", "down", "enter"}}}
		if a, err = p.asker().Answer(t.Context(), formOf(yesNo)); err != nil || string(a.Content) != `{"delete_all":true}` {
			t.Fatalf("%+v, %v", a, err)
		}
		if said := p.out.String(); !strings.Contains(said, "Accepting sends:\n  │ {\n  │   \"delete_all\": true\n  │ }\nAccepted.\n") {
			t.Errorf("what is sent is not shown before: %s", said)
		}
	})
}

// A key held down from before is none that the person means the page with, and
// Ctrl-C always is.
func TestAPageIsShownOnceNoKeyComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var chosen int
		p := newPage(huh.NewSelect[int]().Options(huh.NewOption("none", 0), huh.NewOption("one", 1)).Value(&chosen))
		p.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
		started, last := p.wait()(), tea.Cmd(nil)
		for _, msg := range []tea.Msg{tea.PasteMsg{Content: "j"}, pressed("down")[0], pressed("esc")[0], pressed("enter")[0]} {
			_, last = p.Update(msg)
			p.Update(started)
		}
		if p.shown || p.end != open || p.View().Content != "" {
			t.Errorf("shown %t, ended %d:\n%s", p.shown, p.end, p.View().Content)
		}
		p.Update(last())
		if !strings.Contains(ansi.Strip(p.View().Content), "> none") {
			t.Errorf("the page:\n%s", p.View().Content)
		}
		p.Update(pressed("down")[0])
		if p.Update(started); chosen != 1 {
			t.Error("keys do not count later")
		}
		p = newPage(huh.NewInput())
		if p.Update(pressed("ctrl+c")[0]); p.end != interrupted {
			t.Errorf("Ctrl-C before it is shown: %d", p.end)
		}
	})
}

func TestAKeyThatComesWithTheEnterChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asker := (&person{t: t}).asker()
		asker.show = func(_ context.Context, p *page) error {
			follow(p, p.Init())
			p.Update(tea.WindowSizeMsg{Width: 100, Height: 60})
			var then []tea.Cmd
			for _, key := range []string{"down", "down", "enter", "up", "enter"} {
				_, cmd := p.Update(pressed(key)[0])
				then = append(then, cmd)
			}
			for _, cmd := range then {
				follow(p, cmd)
			}
			return nil
		}
		q := formOf("")
		q.Schema = []byte(`{"type":"object"}`)
		if a, err := asker.Answer(t.Context(), q); err != nil || a.Action != "decline" {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// trimmed is a page without what it fills rows up with.
func trimmed(page string) string {
	var rows []string
	for row := range strings.SplitSeq(page, "\n") {
		rows = append(rows, strings.TrimRight(row, " "))
	}
	return strings.Trim(strings.Join(rows, "\n"), "\n")
}

// case S48
func TestAnEmptyFormIsAChoice(t *testing.T) {
	for keys, want := range map[string]string{"down enter": "accept {}", "down down enter": "decline ", "up enter": "cancel ", "esc / enter up enter": "cancel "} {
		synctest.Test(t, func(t *testing.T) {
			q := formOf("")
			q.Schema = []byte(`{"type":"object","properties":{}}`)
			p := &person{t: t}
			for page := range strings.SplitSeq(keys, " / ") {
				p.pages = append(p.pages, strings.Fields(page))
			}
			a, err := p.asker().Answer(t.Context(), q)
			if got := a.Action + " " + string(a.Content); err != nil || got != want {
				t.Errorf("%s: %s, %v, want %s", keys, got, err, want)
			}
		})
	}
}

func TestWhatIsNoFormIsSaidAndCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := formOf(`"delete_all":{"type":"object"}`)
		p := &person{t: t, pages: [][]string{{"down", "enter"}, {"[]", "enter", "back", "back", `{"delete_all":{"x":1e400}}`, "enter"}, keysOf.send}}
		a, err := p.asker().Answer(t.Context(), q)
		if err != nil || string(a.Content) != `{"delete_all":{"x":1e400}}` {
			t.Errorf("%s, %v", a.Content, err)
		}
		if !strings.Contains(p.out.String(), `This question cannot be shown as a form: property "delete_all": values of type "object" cannot be filled in.`) {
			t.Error(p.out.String())
		}
		p = &person{t: t, pages: [][]string{{"down", "down", "enter"}}}
		if a, err = p.asker().Answer(t.Context(), q); err != nil || a.Action != "decline" {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// case S61: nothing is opened without a keypress, and only what was judged.
func TestAnAddressIsOpenedWhenThePersonSaysSo(t *testing.T) {
	q := client.Question{Server: "desk", Method: "tools/call", Name: "pay", Key: "k", Kind: client.URL, Message: "Pay", URL: "HTTPS://Pay.example/a"}
	tests := []struct {
		name, address, want string
		pages               [][]string
		opened              int
	}{
		{"accepted without opening", q.URL, "accept", [][]string{{"enter", "down", "down", "enter"}}, 0},
		{"opened twice, then accepted", q.URL, "accept", [][]string{{"down", "enter"}, {"down", "enter"}, {"down", "down", "enter"}}, 2},
		{"declined", q.URL, "decline", [][]string{{"down", "down", "down", "enter"}}, 0},
		{"dismissed", q.URL, "cancel", [][]string{{"esc"}, {"enter", "up", "enter"}}, 0},
		{"refused", "javascript:alert(1)", "decline", [][]string{{"down", "enter"}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q.URL = tt.address
				p := &person{t: t, pages: tt.pages}
				a, err := p.asker().Answer(t.Context(), q)
				if err != nil || a.Action != tt.want || len(p.opened) != tt.opened || a.Content != nil {
					t.Errorf("%+v, %v, opened %q", a, err, p.opened)
				}
				for _, address := range p.opened {
					if address != "https://Pay.example/a" && address != "https://pay.example/a" {
						t.Errorf("opened %s", address)
					}
				}
				for _, choice := range []string{"Open pay.example in a browser", "Accept"} {
					if offered := strings.Contains(p.seen[0], choice); offered != (tt.address == "HTTPS://Pay.example/a") {
						t.Errorf("%s is offered: %t\n%s", choice, offered, p.seen[0])
					}
				}
			})
		})
	}
}

func TestAnAnswerIsSaidToBeAcceptedOnceItIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, full := range []error{nil, errors.New("the disk is\x1b full")} {
			p := &person{t: t, pages: [][]string{{"down", "enter"}, keysOf.send}}
			asker := p.asker()
			asker.Keep = func(_ context.Context, q client.Question, a client.Answer) error {
				if said := p.out.String(); q.Key != "approve" || string(a.Content) != `{"delete_all":true}` || strings.Contains(said, "Accepted.") {
					t.Errorf("kept %s %s; it has said\n%s", q.Key, a.Content, said)
				}
				return full
			}
			_, err := asker.Answer(t.Context(), formOf(yesNo))
			said := p.out.String()
			if err != full || strings.Contains(said, "Accepted.") != (full == nil) || strings.Contains(said, `The answer was not taken: the disk is\x1b full.`) != (full != nil) {
				t.Errorf("%v; it said\n%s", err, said)
			}
		}
	})
}

func TestAQuestionThatIsGoneIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("answered elsewhere")
		ctx, cancel := context.WithCancelCause(t.Context())
		p := &person{t: t}
		asker := p.asker()
		answered := make(chan error)
		for range 2 { // one on the screen, one in the queue
			go func() {
				_, err := asker.Answer(ctx, formOf(yesNo))
				answered <- err
			}()
		}
		synctest.Wait()
		if shown := strings.Count(p.out.String(), "Server:"); shown != 1 {
			t.Errorf("%d questions are on the screen at once", shown)
		}
		cancel(why)
		for range 2 {
			if err := <-answered; !errors.Is(err, why) {
				t.Errorf("error %v", err)
			}
		}
		if said := p.out.String(); strings.Count(said, "The question is gone: it was answered elsewhere, or its call has ended.") != 1 {
			t.Error(said)
		}
		p.pages = [][]string{{"down", "enter"}, keysOf.send}
		if a, err := asker.Answer(t.Context(), formOf(yesNo)); err != nil || a.Action != "accept" {
			t.Errorf("the next question: %+v, %v", a, err)
		}
	})
}

func TestCtrlCLeavesTheQuestionOpen(t *testing.T) {
	for _, pages := range [][][]string{{{"ctrl+c"}}, {{"esc"}, {"ctrl+c"}}, {{"down", "enter"}, {"down", "ctrl+c"}}} {
		synctest.Test(t, func(t *testing.T) {
			p := &person{t: t, pages: pages}
			a, err := p.asker().Answer(t.Context(), formOf(yesNo))
			if !errors.Is(err, client.ErrNoAnswer) || a.Action != "" || p.ctrlC != 1 {
				t.Errorf("%+v, %v, told %d times", a, err, p.ctrlC)
			}
		})
	}
}

func TestSamplingAndRootsAreNotAnswered(t *testing.T) {
	p := &person{t: t}
	asker := p.asker()
	if got := fmt.Sprint(asker.Kinds()); got != "[form url]" {
		t.Error(got)
	}
	for _, k := range []client.Kind{client.Sampling, client.Roots} {
		if _, err := asker.Answer(t.Context(), client.Question{Kind: k}); !errors.Is(err, client.ErrNoAnswer) || p.out.Len() > 0 {
			t.Errorf("%s: %v, %q", k, err, p.out.String())
		}
	}
}

func TestLongTextsOfAFormAreShownBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("so long ", 100) + "END"
		p := &person{t: t, pages: [][]string{{"down", "enter", "enter"}, keysOf.send}}
		a, err := p.asker().Answer(t.Context(), formOf(`"delete_all":{"type":"boolean","description":"`+long+`"},"s":{"type":"string","default":"`+long+`"}`))
		if err != nil || string(a.Content) != `{"delete_all":true}` {
			t.Errorf("a default that cannot be seen whole is sent: %s, %v", a.Content, err)
		}
		said := strings.ReplaceAll(p.out.String(), "\n"+mark, "")
		for _, want := range []string{"Field delete_all:" + long, "Field s, suggested:\"" + long, "Left out, so that the server may take its own default: s\"" + long} {
			if !strings.Contains(said, want) {
				t.Errorf("%.40s… is not shown:\n%s", want, p.out.String())
			}
		}
		if !strings.Contains(p.seen[0], "803 characters, sha256") {
			t.Errorf("it is cut in the form without a word:\n%s", p.seen[0])
		}
	})
}

func TestATitleHidesNoValueButYesAndNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &person{t: t, pages: [][]string{{"down", "enter", "down", "enter"}, keysOf.send}}
		a, err := p.asker().Answer(t.Context(), formOf(`"delete_all":{"type":"string","oneOf":[{"const":"true","title":"No, do not pay"}]},"b":{"type":"boolean"}`))
		if err != nil || string(a.Content) != `{"delete_all":"true","b":true}` {
			t.Fatalf("%s, %v", a.Content, err)
		}
		if !strings.Contains(p.seen[0], "No, do not pay (true)") || strings.Contains(p.seen[0], "Yes (true)") {
			t.Errorf("the page:\n%s", p.seen[0])
		}
	})
}

func TestChoicesThatDifferInASpaceAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, many := range []int{0, 20} {
			values := `"a b","a\u00a0b","a\u202fb","a\u3000b","a\u2003b","a\u200bb"," a","a ",""`
			for i := range many {
				values += fmt.Sprintf(`,"more %d"`, i)
			}
			p := &person{t: t, pages: [][]string{{"down", "down", "enter"}, keysOf.send}}
			a, err := p.asker().Answer(t.Context(), formOf(`"delete_all":{"type":"string","enum":[`+values+`]}`))
			if err != nil || string(a.Content) != `{"delete_all":"a\u00a0b"}` {
				t.Fatalf("%s, %v", a.Content, err)
			}
			for _, want := range []string{"  a b ", `> a\u00a0b `, `  a\u202fb `, `  a\u3000b `, `  a\u2003b `, `  a\u200bb `, `  " a" `, `  "a " `, `  "" `} {
				if !strings.Contains(p.seen[0], want) {
					t.Errorf("no %q:\n%s", want, p.seen[0])
				}
			}
		}
	})
}

func TestASecretIsNotShown(t *testing.T) {
	for _, mark := range []string{`"format":"password"`, `"writeOnly":true`} {
		synctest.Test(t, func(t *testing.T) {
			p := &person{t: t, pages: [][]string{{"hunter2", "enter", "kim", "enter"}, keysOf.send}}
			a, err := p.asker().Answer(t.Context(), formOf(`"delete_all":{"type":"string",`+mark+`},"who":{"type":"string"}`))
			if err != nil || string(a.Content) != `{"delete_all":"hunter2","who":"kim"}` {
				t.Fatalf("%s, %v", a.Content, err)
			}
			if all := p.out.String() + strings.Join(p.seen, ""); strings.Contains(all, "hunter") || !strings.Contains(all, "***(9 bytes)") || !strings.Contains(all, `"who": "kim"`) {
				t.Error(all)
			}
		})
	}
}

func TestASecretWrittenAsJSONIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &person{t: t, pages: [][]string{{"down", "enter"}, {`{"delete_all":{},"pin":"hunter2"}`, "enter"}, keysOf.send}}
		a, err := p.asker().Answer(t.Context(), formOf(`"delete_all":{"type":"object"},"pin":{"type":"string","format":"password"}`))
		if err != nil || string(a.Content) != `{"delete_all":{},"pin":"hunter2"}` {
			t.Fatalf("%s, %v", a.Content, err)
		}
		if all := p.out.String() + strings.Join(p.seen, ""); strings.Contains(all, "hunter") || !strings.Contains(all, "***(9 bytes)") || !strings.Contains(all, `"delete_all": {}`) {
			t.Error(all)
		}
	})
}
