package exit

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestDocumentationHasTheTable(t *testing.T) {
	raw, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "<!-- exit codes -->\n")
	text, _, _ = strings.Cut(text, "\n\n")
	want := "| code | name | meaning |\n|---|---|---|"
	for _, e := range Table {
		want += fmt.Sprintf("\n| %d | `%s` | %s |", e.Code, e.Name, e.Meaning)
	}
	if text != want {
		t.Errorf("docs/cli.md has\n%s\nwant\n%s", text, want)
	}
}

func TestCodesAreDistinct(t *testing.T) {
	codes, names := map[Code]bool{}, map[string]bool{}
	name := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, e := range Table {
		if codes[e.Code] || names[e.Name] || !name.MatchString(e.Name) || e.Code.Name() != e.Name {
			t.Errorf("%+v", e)
		}
		codes[e.Code], names[e.Name] = true, true
	}
	// Shells give other codes a meaning of their own.
	for c := range codes {
		if c < 0 || c > 63 {
			t.Errorf("code %d", c)
		}
	}
}
