package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/spec.md is a table of what the specification states. A row is
//
//	| M1 | MUST | the statement | server | `TestName`, `folder.TestName` |
//
// and its last cell names tests, or begins with a dash and says why there is
// none. Numbers run from 1 for each letter, without a gap.

// A statement is one row.
type statement struct {
	line         int
	number       string // letter and number
	level, binds string
	words        string
	tests        []string // folder.TestName, or TestName for the root package
	reason       string   // why there is no test
}

var (
	rowNumber = regexp.MustCompile(`^([A-Z])([1-9][0-9]*)$`)
	testName  = regexp.MustCompile("`((?:[a-z0-9/]+\\.)?Test[A-Za-z0-9_]+)(?:/[^`]*)?`")
)

var (
	levels = []string{"MUST", "MUST NOT", "REQUIRED", "SHOULD", "SHOULD NOT", "RECOMMENDED", "MAY", "says"}
	bound  = []string{"server", "client", "both"}
)

// readStatements reads the rows of docs/spec.md, and complains of what is not
// in their form. Rows of other tables have no number and are passed over.
func readStatements(text string) (rows []statement, complaints []string) {
	last := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		m := rowNumber.FindStringSubmatch(strings.TrimSpace(cells[0]))
		if !strings.HasPrefix(strings.TrimSpace(line), "|") || m == nil {
			continue
		}
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		complain := func(format string, args ...any) {
			complaints = append(complaints, fmt.Sprintf("line %d, %s: %s", i+1, m[0], fmt.Sprintf(format, args...)))
		}
		if len(cells) != 5 {
			complain("%d cells, not 5", len(cells))
			continue
		}
		if n, _ := strconv.Atoi(m[2]); n != last[m[1]]+1 {
			complain("comes after %s%d", m[1], last[m[1]])
		} else {
			last[m[1]] = n
		}
		s := statement{line: i + 1, number: m[0], level: cells[1], words: cells[2], binds: cells[3]}
		if !slices.Contains(levels, s.level) {
			complain("the level is %q", s.level)
		}
		if !slices.Contains(bound, s.binds) {
			complain("it binds %q", s.binds)
		}
		if len(s.words) < 10 {
			complain("it does not say what is stated")
		}
		reason, isReason := strings.CutPrefix(cells[4], "— ")
		for _, t := range testName.FindAllStringSubmatch(cells[4], -1) {
			s.tests = append(s.tests, t[1])
		}
		switch {
		case isReason && len(strings.Fields(reason)) >= 2:
			s.reason = reason
		case len(s.tests) == 0:
			complain("neither a test nor a reason")
		}
		rows = append(rows, s)
	}
	return rows, complaints
}

// testsIn are the names of a folder's top-level tests.
func testsIn(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}
	return names, nil
}

// missingTests names the tests of rows that do not exist.
func missingTests(rows []statement, in func(folder string) (map[string]bool, error)) []string {
	var missing []string
	for _, s := range rows {
		for _, t := range s.tests {
			folder, name := ".", t
			if i := strings.LastIndexByte(t, '.'); i >= 0 {
				folder, name = t[:i], t[i+1:]
			}
			names, err := in(folder)
			if err != nil {
				missing = append(missing, fmt.Sprintf("line %d, %s: %s: %v", s.line, s.number, t, err))
			} else if !names[name] {
				missing = append(missing, fmt.Sprintf("line %d, %s: there is no test %s in %s", s.line, s.number, name, folder))
			}
		}
	}
	return missing
}

func TestEveryStatementOfTheSpecificationIsShown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, complaints := readStatements(string(text))
	cache := map[string]map[string]bool{}
	missing := missingTests(rows, func(folder string) (map[string]bool, error) {
		names, ok := cache[folder]
		if !ok {
			var err error
			if names, err = testsIn(filepath.Join(root, filepath.FromSlash(folder))); err != nil {
				return nil, err
			}
			cache[folder] = names
		}
		return names, nil
	})
	for _, c := range append(complaints, missing...) {
		t.Errorf("docs/spec.md: %s", c)
	}
	counts := map[byte]int{}
	for _, s := range rows {
		counts[s.number[0]]++
	}
	for letter, least := range map[byte]int{'M': 30, 'T': 70, 'S': 10} {
		if counts[letter] < least {
			t.Errorf("docs/spec.md has %d rows %c, of at least %d that the specification states", counts[letter], letter, least)
		}
	}
}

func TestARowOfTheSpecificationThatIsWrongIsSeen(t *testing.T) {
	good := "| M1 | MUST | something is so | server | `TestA`, `internal/wire.TestB/part`: both |\n"
	for what, c := range map[string]struct {
		text    string
		want    int // complaints
		missing int // tests
	}{
		"right":                      {good, 0, 0},
		"other tables":               {good + "| a | b |\n|---|---|\n| Mx | MUST |\n", 0, 0},
		"a reason":                   {good + "| M2 | MUST NOT | something is not so | client | — a client's duty |\n", 0, 0},
		"each letter for itself":     {good + "| T1 | MAY | something is so | both | `TestA` |\n", 0, 0},
		"a gap":                      {good + "| M3 | MUST | something is so | server | `TestA` |\n", 1, 0},
		"a number twice":             {good + good, 1, 0},
		"not from 1":                 {"| M2 | MUST | something is so | server | `TestA` |\n", 1, 0},
		"a cell less":                {"| M1 | MUST | something is so | `TestA` |\n", 1, 0},
		"an unknown level":           {"| M1 | CAN | something is so | server | `TestA` |\n", 1, 0},
		"nobody":                     {"| M1 | MUST | something is so |  | `TestA` |\n", 1, 0},
		"nothing stated":             {"| M1 | MUST |  | server | `TestA` |\n", 1, 0},
		"neither test nor reason":    {"| M1 | MUST | something is so | server | to do |\n", 1, 0},
		"an empty reason":            {"| M1 | MUST | something is so | server | — |\n", 1, 0},
		"a test in words":            {"| M1 | MUST | something is so | server | TestA |\n", 1, 0},
		"no such test":               {"| M1 | MUST | something is so | server | `TestC` |\n", 0, 1},
		"a test of another folder":   {"| M1 | MUST | something is so | server | `TestB` |\n", 0, 1},
		"no such folder":             {"| M1 | MUST | something is so | server | `nowhere.TestA` |\n", 0, 1},
		"one of two tests":           {"| M1 | MUST | something is so | server | `TestA`, `TestC` |\n", 0, 1},
		"a test in a reason, absent": {"| M1 | MUST | something is so | client | — a client's, but see `TestC` |\n", 0, 1},
	} {
		rows, complaints := readStatements(c.text)
		missing := missingTests(rows, func(folder string) (map[string]bool, error) {
			names, ok := map[string]map[string]bool{".": {"TestA": true}, "internal/wire": {"TestB": true}}[folder]
			if !ok {
				return nil, os.ErrNotExist
			}
			return names, nil
		})
		if len(complaints) != c.want || len(missing) != c.missing {
			t.Errorf("%s: complaints %q, missing %q", what, complaints, missing)
		}
	}
}

func TestTestsAreFoundByTheirDeclaration(t *testing.T) {
	dir := t.TempDir()
	src := "package x\n// func TestComment(t *testing.T) {}\nfunc TestReal(t *testing.T) {}\nfunc (a b) TestMethod(t *testing.T) {}\nvar s = `func TestText(t *testing.T) {}`\n"
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "y.go"), []byte("package x\nfunc TestNoTest() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := testsIn(dir)
	if err != nil || len(names) != 1 || !names["TestReal"] {
		t.Errorf("%v, %v", names, err)
	}
}

// Documents name tests by `TestName`, or by a beginning and an ellipsis.
var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9_]+)(…)?")

func TestTestsThatDocumentsNameExist(t *testing.T) {
	all := map[string]bool{}
	for _, f := range readSource(t, root) {
		names, err := testsIn(filepath.Join(root, filepath.FromSlash(f.path)))
		if err != nil {
			t.Fatal(err)
		}
		for name := range names {
			all[name] = true
		}
	}
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatal(err)
	}
	for _, path := range append(documents, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
			found := all[m[1]]
			for name := range all {
				found = found || m[2] != "" && strings.HasPrefix(name, m[1])
			}
			if !found {
				t.Errorf("%s names a test that does not exist: %s", filepath.Base(path), m[0])
			}
		}
	}
}
