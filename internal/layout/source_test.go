package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/tallystick/tallystick"
	root   = "../.." // the module's folder, from here
)

// A folder is one folder with Go files, whatever build constraints they carry.
type folder struct {
	path     string // slash-separated from the module's root, which is "."
	packages []string
	doc      string // the package comment, of files that are not tests
	files    []file
}

// A file is one Go file.
type file struct {
	path    string // slash-separated from the module's root
	lines   int
	test    bool
	imports []string
}

// readSource parses the module's Go files down to their imports. It reads them
// itself, where 'go list' would be shorter, so that the test cache knows what
// the result depends on.
func readSource(t *testing.T, dir string) []*folder {
	t.Helper()
	var folders []*folder
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name := entry.Name()
		if p != dir && (name == "testdata" || name == "node_modules" || name[0] == '.' || name[0] == '_') {
			return fs.SkipDir // the go command does not build these either
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		f, err := readFolder(p, filepath.ToSlash(rel))
		if err == nil && len(f.files) > 0 {
			folders = append(folders, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

func readFolder(dir, rel string) (*folder, error) {
	f := &folder{path: rel}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		if err := f.add(entry.Name(), src); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *folder) add(name string, src []byte) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), path.Join(f.path, name), src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	one := file{
		path:  path.Join(f.path, name),
		lines: bytes.Count(src, []byte("\n")),
		test:  strings.HasSuffix(name, "_test.go"),
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", one.path, err)
		}
		one.imports = append(one.imports, imported)
	}
	f.files = append(f.files, one)
	if !one.test {
		f.doc += docText(parsed.Doc)
	}
	if !slices.Contains(f.packages, parsed.Name.Name) {
		f.packages = append(f.packages, parsed.Name.Name)
	}
	return nil
}

func docText(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	return doc.Text()
}

// own returns the folder of ours that an import path names, and whether it is
// one of ours at all.
func own(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}
