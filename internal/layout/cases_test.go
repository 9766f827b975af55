package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/cases.md is a table of cases from the field. A row is
//
//	| S01 | what went wrong | what happens here | `TestName`, `folder.TestName` |
//
// Each test that it names says so in its comments, as `// case S01`, and every
// such comment is of a test that the number's row names.

// theCases are the numbers that must have a row. More may have one.
const theCases = `S01-S18 S20 S21 S26 S29 S30 S33-S38 S45 S46 S49-S54 S57-S60 S62-S67 S69-S73 S77 S79-S82 S85-S89 S93 S97-S99
	S101-S106 S108 S110-S112`

// numbersOf writes out a list with spans.
func numbersOf(list string) (all []string) {
	for _, span := range strings.Fields(list) {
		first, last, isSpan := strings.Cut(span, "-")
		var from, to int
		fmt.Sscanf(first, "S%d", &from)
		if to = from; isSpan {
			fmt.Sscanf(last, "S%d", &to)
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("S%02d", n))
		}
	}
	return all
}

var caseNumber = regexp.MustCompile(`^S([0-9]{2}|[1-9][0-9]{2})$`)

// readCases reads the rows of docs/cases.md: by number, the tests. It complains
// of rows that are not in their form.
func readCases(text string) (rows map[string][]string, complaints []string) {
	rows = map[string][]string{}
	last := 0
	for i, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "|") || !caseNumber.MatchString(cells[0]) {
			continue
		}
		complain := func(format string, args ...any) {
			complaints = append(complaints, fmt.Sprintf("line %d, %s: %s", i+1, cells[0], fmt.Sprintf(format, args...)))
		}
		if len(cells) != 4 {
			complain("%d cells, not 4", len(cells))
			continue
		}
		var n int
		fmt.Sscanf(cells[0], "S%d", &n)
		if n <= last {
			complain("comes after S%02d", last)
		}
		last = n
		if len(cells[1]) < 10 || len(cells[2]) < 10 {
			complain("it does not say what went wrong, or what happens here")
		}
		for _, t := range testName.FindAllStringSubmatch(cells[3], -1) {
			rows[cells[0]] = append(rows[cells[0]], t[1])
		}
		if len(rows[cells[0]]) == 0 {
			complain("no test")
		}
	}
	return rows, complaints
}

// caseTags finds the numbers in the comments of a folder's tests, by test. The
// empty test has those that are of none.
func caseTags(dir string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	tags := map[string][]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				rest, ok := strings.CutPrefix(c.Text, "// case ")
				numbers, _, _ := strings.Cut(rest, ":")
				for number := range strings.SplitSeq(numbers, ",") {
					if number = strings.TrimSpace(number); ok && caseNumber.MatchString(number) {
						test := testAt(f, c.Pos())
						tags[test] = append(tags[test], number)
					}
				}
			}
		}
	}
	return tags, nil
}

// testAt is the test that a comment stands in or above.
func testAt(f *ast.File, pos token.Pos) string {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
			continue
		}
		from := fn.Pos()
		if fn.Doc != nil {
			from = fn.Doc.Pos()
		}
		if from <= pos && pos < fn.End() {
			return fn.Name.Name
		}
	}
	return ""
}

// judgeCases holds the rows against the comments: by test, as rows name it.
func judgeCases(rows, tagged map[string][]string, required []string) (complaints []string) {
	for _, n := range required {
		if len(rows[n]) == 0 {
			complaints = append(complaints, n+" has no row")
		}
	}
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		for _, test := range rows[n] {
			if !slices.Contains(tagged[test], n) {
				complaints = append(complaints, fmt.Sprintf("%s: there is no %s with the comment `// case %s`", n, test, n))
			}
		}
	}
	for _, test := range slices.Sorted(maps.Keys(tagged)) {
		for _, n := range tagged[test] {
			if !slices.Contains(rows[n], test) {
				complaints = append(complaints, fmt.Sprintf("the row of %s does not name %q, which says that it is of it", n, test))
			}
		}
	}
	return complaints
}

func TestEveryCaseHasItsTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, complaints := readCases(string(text))
	tagged := map[string][]string{}
	for _, f := range readSource(t, root) {
		tags, err := caseTags(filepath.Join(root, filepath.FromSlash(f.path)))
		if err != nil {
			t.Fatal(err)
		}
		for test, numbers := range tags {
			if test == "" {
				t.Errorf("%s: a comment says case %v above no test", f.path, numbers)
				continue
			}
			if f.path != "." && f.path != "" {
				test = path.Clean(f.path) + "." + test
			}
			tagged[test] = append(tagged[test], numbers...)
		}
	}
	for _, c := range append(complaints, judgeCases(rows, tagged, numbersOf(theCases))...) {
		t.Errorf("docs/cases.md: %s", c)
	}
}

func TestACaseWithoutItsTestIsSeen(t *testing.T) {
	row := func(n, tests string) string {
		return "| " + n + " | something went wrong | something happens | " + tests + " |\n"
	}
	tagged := map[string][]string{"TestA": {"S01"}, "seal.TestB": {"S02", "S103"}}
	right := row("S01", "`TestA`") + row("S02", "`seal.TestB`") + row("S103", "`seal.TestB`")
	for what, c := range map[string]struct {
		text string
		want int
	}{
		"right":                      {right, 0},
		"other tables":               {right + "| a | b |\n|---|---|\n", 0},
		"a row is missing":           {row("S01", "`TestA`") + row("S103", "`seal.TestB`"), 2}, // the number, and the comment
		"a comment is not in a row":  {row("S01", "`TestA`") + row("S02", "`seal.TestB`"), 1},
		"no such test":               {row("S01", "`TestA`, `TestC`") + row("S02", "`seal.TestB`") + row("S103", "`seal.TestB`"), 1},
		"a test without the comment": {row("S01", "`TestA`") + row("S02", "`seal.TestB`, `TestA`") + row("S103", "`seal.TestB`"), 1},
		"a test of another folder":   {row("S01", "`TestA`") + row("S02", "`seal.TestB`, `TestB`") + row("S103", "`seal.TestB`"), 1},
		"no test":                    {row("S01", "`TestA`") + row("S02", "`seal.TestB`") + row("S03", "later") + row("S103", "`seal.TestB`"), 1},
		"out of order":               {row("S02", "`seal.TestB`") + row("S01", "`TestA`") + row("S103", "`seal.TestB`"), 1},
		"a number twice":             {right + row("S103", "`seal.TestB`"), 1},
		"a cell less":                {right + "| S104 | something went wrong | `TestA` |\n", 1},
		"nothing said":               {row("S01", "`TestA`") + "| S02 |  |  | `seal.TestB` |\n" + row("S103", "`seal.TestB`"), 1},
	} {
		rows, complaints := readCases(c.text)
		if all := append(complaints, judgeCases(rows, tagged, []string{"S01", "S02"})...); len(all) != c.want {
			t.Errorf("%s: %q", what, all)
		}
	}
	if got := fmt.Sprint(numbersOf("S08-S10 S21\n\tS101-S102")); got != "[S08 S09 S10 S21 S101 S102]" {
		t.Errorf("numbers: %s", got)
	}
}

func TestCommentsOfCasesAreFound(t *testing.T) {
	dir := t.TempDir()
	src := "package x\n\n// Words.\n// case S01, S102: more words, S03\nfunc TestA(t *testing.T) {\n\t// case S04\n\tf() // case S05\n}\n\n" +
		"// case S06\nfunc helper() {}\n\n// In case S07.\nfunc TestB(t *testing.T) {}\n"
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	tags, err := caseTags(dir)
	if want := "map[:[S06] TestA:[S01 S102 S04 S05]]"; err != nil || fmt.Sprint(tags) != want {
		t.Errorf("%v, %v, want %s", tags, err, want)
	}
}
