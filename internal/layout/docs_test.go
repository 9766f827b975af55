package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Go code in the documentation is one of two things. A block under the comment
//
//	<!-- from: path/file.go#name -->
//
// repeats, word for word but for indentation, what stands in that file between
// "// region name" and "// endregion"; the file is part of the module, so it
// compiles and is tested. Any other block is a whole file, begins with its
// package clause, and compiles as it stands.

// A block is one ```go block of a Markdown file.
type block struct {
	path string // of the Markdown file, from the module's root
	line int    // of its fence
	from string // path#name, or empty
	code string // with a final newline
}

func (b block) String() string { return b.path + ":" + strconv.Itoa(b.line) }

var (
	fence  = regexp.MustCompile("^(\\s*)(```+|~~~+)\\s*(\\S*)")
	source = regexp.MustCompile(`^\s*<!--\s*from:\s*(\S+)\s*-->\s*$`)
)

// goBlocks finds the Go blocks of a Markdown file.
func goBlocks(path, text string) []block {
	var blocks []block
	var open []string // the open fence's submatches; nil outside
	var b block
	from := "" // of the line before, blank lines apart
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, b = m, block{path: path, line: i + 1, from: from}
			from = ""
		case open == nil:
			if s := source.FindStringSubmatch(line); s != nil {
				from = s[1]
			} else if strings.TrimSpace(line) != "" {
				from = ""
			}
		case m != nil && strings.HasPrefix(m[2], open[2]) && m[3] == "":
			if open[3] == "go" {
				blocks = append(blocks, b)
			}
			open = nil
		default:
			b.code += strings.TrimPrefix(line, open[1]) + "\n"
		}
	}
	return blocks
}

// region returns what stands between a region's two marks, without the
// indentation that its lines share.
func region(src, name string) (string, error) {
	var lines []string
	inside, found := false, false
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, "\r\n")
		switch mark := strings.TrimSpace(line); {
		case mark == "// region "+name && found:
			return "", fmt.Errorf("there are two regions named %s", name)
		case mark == "// region "+name:
			inside, found = true, true
		case mark == "// endregion":
			inside = false
		case inside:
			lines = append(lines, line)
		}
	}
	if !found {
		return "", fmt.Errorf("there is no region named %s", name)
	}
	if inside {
		return "", fmt.Errorf("region %s has no end", name)
	}
	return outdent(lines), nil
}

// outdent joins lines after removing the leading tabs they share.
func outdent(lines []string) string {
	shared := -1
	for _, line := range lines {
		if tabs := len(line) - len(strings.TrimLeft(line, "\t")); strings.TrimSpace(line) != "" && (shared < 0 || tabs < shared) {
			shared = tabs
		}
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(line[min(max(shared, 0), len(line)):] + "\n")
	}
	return out.String()
}

// notFromSource says why a block with a source does not repeat it.
func notFromSource(dir string, b block) error {
	path, name, ok := strings.Cut(b.from, "#")
	if !ok || !strings.HasSuffix(path, ".go") || !filepath.IsLocal(path) || strings.Contains(path, "testdata/") {
		return fmt.Errorf("%s: %q is not path/file.go#region of a compiled file", b, b.from)
	}
	src, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	want, err := region(string(src), name)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", b, path, err)
	}
	if strings.Trim(b.code, "\n") != strings.Trim(want, "\n") {
		return fmt.Errorf("%s differs from %s, which has\n%s", b, b.from, want)
	}
	return nil
}

// compile checks blocks that are whole files, each as a package of its own
// that lies, for the go command alone, in the module.
func compile(t *testing.T, blocks []block) error {
	t.Helper()
	abs, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	temp := t.TempDir()
	var code, tests []string // the packages, by how the go command compiles them
	for i, b := range blocks {
		name := fmt.Sprintf("docblock%d", i)
		kept := filepath.Join(temp, name+".go")
		// The comment makes the compiler name the Markdown file and its line.
		if err := os.WriteFile(kept, fmt.Appendf(nil, "//line %s:%d\n%s", b.path, b.line+1, b.code), 0o644); err != nil {
			return err
		}
		if strings.Contains(b.code, "\"testing\"") {
			overlay.Replace[filepath.Join(abs, name, "code_test.go")] = kept
			tests = append(tests, "./"+name)
		} else {
			overlay.Replace[filepath.Join(abs, name, "code.go")] = kept
			code = append(code, "./"+name)
		}
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(overlayFile, data, 0o644); err != nil {
		return err
	}
	run := func(packages []string, args ...string) error {
		if len(packages) == 0 {
			return nil
		}
		args = append(args, "-overlay", overlayFile)
		cmd := exec.CommandContext(t.Context(), "go", append(args, packages...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	return errors.Join(
		run(code, "build", "-o", os.DevNull),
		run(tests, "test", "-c", "-vet=off", "-o", temp+string(filepath.Separator)),
	)
}

// checkBlocks returns what is wrong with the Go code of the documentation.
func checkBlocks(t *testing.T, dir string, blocks []block) []error {
	t.Helper()
	var errs []error
	var whole []block
	for _, b := range blocks {
		switch {
		case b.from != "":
			if err := notFromSource(dir, b); err != nil {
				errs = append(errs, err)
			}
		case strings.Contains(b.code, module+"/internal/"):
			errs = append(errs, fmt.Errorf("%s imports what a reader cannot", b))
		case strings.HasPrefix(b.code, "package "):
			whole = append(whole, b)
		default:
			errs = append(errs, fmt.Errorf("%s has neither a '<!-- from: path/file.go#region -->' above it nor a package clause", b))
		}
	}
	if len(whole) > 0 {
		if err := compile(t, whole); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func TestGoCodeInTheDocumentationCompiles(t *testing.T) {
	var paths []string
	for _, start := range []string{"README.md", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, start), func(p string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(entry.Name(), ".md") {
				rel, _ := filepath.Rel(root, p)
				paths = append(paths, filepath.ToSlash(rel))
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	readSource(t, root) // what compiling depends on, for the test cache
	var blocks []block
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		blocks = append(blocks, goBlocks(path, string(text))...)
	}
	for _, err := range checkBlocks(t, root, blocks) {
		t.Error(err)
	}
}

func TestWrongGoCodeInTheDocumentationIsSeen(t *testing.T) {
	const src = "package p\n\nfunc f() {\n\t// region one\n\ta := 1\n\tif a > 0 {\n\t\ta++\n\t}\n\t// endregion\n}\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	const good = "a := 1\nif a > 0 {\n\ta++\n}\n"
	tests := []struct {
		name, text string
		complaint  string // empty: none
	}{
		{"no Go", "text\n```sh\nls\n```\n", ""},
		{"a region", "<!-- from: p.go#one -->\n```go\n" + good + "```\n", ""},
		{"a region, in a list", "* x\n\n  <!-- from: p.go#one -->\n\n  ```go\n  a := 1\n  if a > 0 {\n  \ta++\n  }\n  ```\n", ""},
		{"another text", "<!-- from: p.go#one -->\n```go\na := 2\n```\n", "differs from p.go#one"},
		{"no such region", "<!-- from: p.go#two -->\n```go\n" + good + "```\n", "no region named two"},
		{"no such file", "<!-- from: q.go#one -->\n```go\n" + good + "```\n", "no such file"},
		{"a file outside", "<!-- from: ../p.go#one -->\n```go\n" + good + "```\n", "not path/file.go#region"},
		{"a source of another block", "<!-- from: p.go#one -->\ntext\n```go\n" + good + "```\n", "neither"},
		{"a fragment", "```go\n" + good + "```\n", "neither"},
		{"a whole file", "```go\npackage p\n\nimport \"fmt\"\n\nfunc F() { fmt.Println() }\n```\n", ""},
		{"a test", "~~~go\npackage p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {}\n~~~\n", ""},
		{"a whole file that does not compile", "\n```go\npackage p\n\nvar x int = \"\"\n```\n", "doc.md:5"},
		{"an internal package", "```go\npackage p\n\nimport _ \"" + module + "/internal/wire\"\n```\n", "a reader cannot"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var complaints []string
			for _, err := range checkBlocks(t, dir, goBlocks("doc.md", tt.text)) {
				complaints = append(complaints, err.Error())
			}
			all := strings.Join(complaints, "\n")
			if tt.complaint == "" && all != "" || !strings.Contains(all, tt.complaint) {
				t.Errorf("complaints are %q; want one with %q", all, tt.complaint)
			}
		})
	}
	if n := len(goBlocks("doc.md", "```go\nx\n```\n````md\n```go\ny\n```\n````\n")); n != 1 {
		t.Errorf("a fence within a longer fence counts: %d blocks", n)
	}
	if _, err := region("// region a\n", "a"); err == nil {
		t.Error("a region without an end was accepted")
	}
}
