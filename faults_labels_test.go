package tallystick_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tallystick/tallystick/internal/history"
	"github.com/tallystick/tallystick/record"
)

// shows says by what entry each event of the law shows in a trail.
var shows = map[string]func(e record.Entry) bool{
	"Opened":         func(e record.Entry) bool { return e.Event == "opened" },
	"Taken":          func(e record.Entry) bool { return e.Event == "taken" },
	"Stopped":        func(e record.Entry) bool { return e.Event == "stopped" && e.Note != "held" },
	"Asked":          func(e record.Entry) bool { return e.Event == "asked" },
	"Voided":         func(e record.Entry) bool { return e.Event == "voided" },
	"Paused":         func(e record.Entry) bool { return e.Event == "round closed" },
	"Announced":      func(e record.Entry) bool { return e.Event == "announced" },
	"Responded":      func(e record.Entry) bool { return e.Event == "answered" },
	"EffectBegan":    func(e record.Entry) bool { return e.Event == "effect started" },
	"EffectEnded":    func(e record.Entry) bool { return e.Event == "effect ended" },
	"EffectResolved": func(e record.Entry) bool { return e.Event == "effect resolved" },
	"EffectUnfit": func(e record.Entry) bool {
		return e.Event == "effect held" && strings.HasPrefix(e.Note, "it happened, but the result that was given")
	},
	"Observed":    func(e record.Entry) bool { return e.Event == "evidence" },
	"Reported":    func(e record.Entry) bool { return e.Event == "reported" },
	"Finished":    func(e record.Entry) bool { return e.Event == "ended" && e.By.Channel == record.ChannelRun },
	"Abandoned":   func(e record.Entry) bool { return e.Event == "ended" && e.Reason == record.ReasonNotAllowed },
	"CancelAsked": func(e record.Entry) bool { return e.Event == "cancel asked" },
	"TimePassed":  func(e record.Entry) bool { return e.Event == "purged" },
	"Refused":     func(e record.Entry) bool { return e.Event == "refused" && e.Reason == "state_of_another_principal" },
}

// The history touches every event and label of the law and every state that its
// types have, as they stand in its source.
func TestTheHistoryTouchesEveryTransition(t *testing.T) {
	law := readLaw(t)
	seen := map[string]bool{}
	for _, c := range history.Chapters {
		synctest.Test(t, func(t *testing.T) {
			_, _, tap := playFaulty(t, faultKind{}, 0, c)
			for _, w := range tap.Writes() {
				if w.Err == nil {
					touch(seen, w.Change)
				}
			}
		})
	}
	if len(law) < 50 {
		t.Errorf("the law has %d things to touch: they are not read from its source", len(law))
	}
	for _, what := range law {
		if !seen[what] {
			t.Errorf("no chapter touches %s", what)
		}
	}
	t.Logf("%d things of the law are touched", len(law))
}

func touch(seen map[string]bool, c record.Change) {
	for _, e := range c.Audit {
		seen["label "+e.Event] = true
		for event, is := range shows {
			if is(e) {
				seen["event "+event] = true
			}
		}
		seen[fmt.Sprintf("%s %s", e.Event, e.Note)] = true
		seen[fmt.Sprintf("%s %s", e.Event, e.Outcome)] = true
		seen["channel "+string(e.By.Channel)] = true
	}
	for _, m := range c.Marks {
		if m.Set != nil {
			seen["mark "+string(m.Kind)] = true
		}
	}
	if c.After == nil {
		return
	}
	seen["state "+string(c.After.State)] = true
	for _, q := range c.After.Questions {
		seen["question "+string(q.State)] = true
	}
	for _, f := range c.After.Effects {
		seen["effect "+string(f.State)] = true
	}
}

// readLaw lists what package record has, from its source.
func readLaw(t *testing.T) []string {
	t.Helper()
	var law []string
	files, err := filepath.Glob("record/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // d.note("label", …), d.entry("label")
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 && (s.Sel.Name == "note" || s.Sel.Name == "entry") {
					if label, ok := literal(n.Args[0]); ok {
						law = append(law, "label "+label)
					}
				}
			case *ast.FuncDecl: // func (e Event) apply(d *decision) error
				if n.Name.Name == "apply" && n.Recv != nil {
					event := n.Recv.List[0].Type.(*ast.Ident).Name
					if law = append(law, "event "+event); shows[event] == nil {
						t.Errorf("say by what entry the event %s shows", event)
					}
				}
			case *ast.ValueSpec:
				kind, _ := n.Type.(*ast.Ident)
				for _, v := range n.Values {
					if value, ok := literal(v); ok && kind != nil {
						law = append(law, ofKind(kind.Name, value)...)
					}
				}
			}
			return true
		})
	}
	slices.Sort(law)
	return slices.Compact(law)
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

// ofKind is where a constant of that type of the law must have shown.
func ofKind(kind, value string) []string {
	switch kind {
	case "State":
		return []string{"state " + value}
	case "QuestionState":
		return []string{"question " + value}
	case "MarkKind":
		return []string{"mark " + value}
	case "Why":
		return []string{"stopped " + value}
	case "AnswerAction":
		return []string{"answered " + value}
	case "Outcome":
		if record.Outcome(value).Terminal() {
			return []string{"ended " + value}
		}
	case "EffectState":
		all := []string{"effect " + value}
		if s := record.EffectState(value); s == record.EffectDone || s == record.EffectUndone {
			all = append(all, "effect ended "+value, "effect resolved "+value)
		}
		return all
	case "Channel":
		if record.Channel(value) != record.ChannelLive { // of the 2025 era
			return []string{"channel " + value}
		}
	}
	return nil
}
