package layout

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// public is what somebody else's code can use, and so what our own programs
// make do with.
var public = []string{".", "embedded", "store", "store/sqlite", "store/memory", "seal", "tallysticktest", "client"}

// arrows says which packages of ours each folder's code may import, tests
// apart. A folder also covers those below it that have no entry of their own,
// and may import these. A new folder needs a line here: say where it stands.
var arrows = map[string][]string{
	".":              {"internal/engine", "internal/wire", "internal/canon", "internal/observe", "store", "record", "seal"},
	"record":         {"internal/canon"},
	"store":          {"record"},
	"seal":           {},
	"embedded":       {".", "store", "store/sqlite", "seal", "internal/observe"},
	"tallysticktest": {".", "store", "store/memory", "store/faulty", "record", "seal"},
	"client":         {"seal"},

	"store/internal":  {"store", "record"}, // what stores share
	"store/memory":    {"store", "store/internal/row", "record"},
	"store/sqlite":    {"store", "store/internal/row", "record"},
	"store/faulty":    {"store", "record"},
	"store/storetest": {"store", "record"},

	"internal/canon":   {},
	"internal/child":   {},
	"internal/engine":  {"store", "record"},
	"internal/observe": {"store", "record"},
	"internal/wire":    {},
	"internal/layout":  {},
	"internal/npm":     {},
	"internal/serving": {},
	"internal/sim":     {},

	"internal/bazaar":      append([]string{"record"}, public...), // it looks at what was kept
	"internal/conformance": append([]string{"internal/serving"}, public...),
	"internal/crashtest":   append([]string{"internal/bazaar"}, public...),
	"internal/interop":     append([]string{"internal/npm", "internal/child", "internal/serving"}, public...),
	"internal/history":     append([]string{"store/faulty", "record"}, public...),
	"cmd":                  public,
	"examples":             public,
	"bench":                append([]string{"record"}, public...), // it stores a million calls itself
	"docs":                 public,
}

// rule returns the folder's own entry in arrows, or that of the nearest folder
// above it.
func rule(folder string) (string, bool) {
	for at := folder; ; {
		if _, ok := arrows[at]; ok {
			return at, at != "." || folder == "." // the root's entry covers the root alone
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return "", false
		}
		at = at[:i]
	}
}

// againstArrows names the imports that arrows does not have.
func againstArrows(folders []*folder) []string {
	var complaints []string
	for _, f := range folders {
		at, ok := rule(f.path)
		if !ok {
			complaints = append(complaints, fmt.Sprintf("%s has no line in the table of arrows: say what it may import", f.path))
			continue
		}
		for _, one := range f.files {
			if one.test {
				continue
			}
			for _, imported := range one.imports {
				to, ours := own(imported)
				covering, _ := rule(to)
				if ours && covering != at && !slices.Contains(arrows[at], to) {
					complaints = append(complaints, fmt.Sprintf("%s imports %s: %s may import only %q", one.path, imported, at, arrows[at]))
				}
			}
		}
	}
	return complaints
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, complaint := range againstArrows(readSource(t, root)) {
		t.Error(complaint)
	}
}

func TestAnImportAgainstTheArrowsIsSeen(t *testing.T) {
	tests := []struct {
		folder, imported string
		allowed          bool
	}{
		{".", "internal/engine", true},
		{".", "store/sqlite", false},
		{".", "store/memory", false},
		{"record", "store", false},
		{"record", "internal/canon", true},
		{"store", "store/sqlite", false},
		{"store/sqlite", "store", true},
		{"store/sqlite", ".", false},
		{"internal/engine", ".", false},
		{"internal/wire", "record", false},
		{"internal/wire/inner", "internal/wire", true},
		{"cmd/tallystick", "embedded", true},
		{"cmd/tallystick", "internal/engine", false},
		{"cmd/tallystick", "cmd/tallystick/internal/desk", true},
		{"examples/refund", "internal/wire", false},
		{"nowhere", "record", false},
	}
	for _, tt := range tests {
		f := &folder{path: tt.folder}
		imported := strings.TrimSuffix(module+"/"+tt.imported, "/.")
		f.files = []file{{path: tt.folder + "/x.go", imports: []string{"fmt", imported}}}
		if got := len(againstArrows([]*folder{f})) == 0; got != tt.allowed {
			t.Errorf("%s importing %s: allowed is %t, want %t", tt.folder, tt.imported, got, tt.allowed)
		}
	}
}

func TestRootNeedsNoDatabase(t *testing.T) {
	// Reading the source also tells the test cache what 'go list' depends on.
	if !slices.ContainsFunc(readSource(t, root), func(f *folder) bool { return f.path == "." }) {
		t.Log("the root package has no files yet")
		return
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", ".")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	// database/sql/driver is not among them: it only defines interfaces, and
	// the SDK's UUIDs implement one.
	drivers := []string{"database/sql", "modernc.org/sqlite", "github.com/mattn/go-sqlite3", "github.com/jackc/pgx", "github.com/lib/pq", "github.com/pressly/goose"}
	for _, dep := range strings.Fields(string(out)) {
		for _, driver := range drivers {
			if dep == driver || driver != "database/sql" && strings.HasPrefix(dep, driver+"/") {
				t.Errorf("the root package depends on %s: stores come in from outside", dep)
			}
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	const limit = 600
	for _, f := range readSource(t, root) {
		for _, one := range f.files {
			if !one.test && one.lines > limit {
				t.Errorf("%s has %d lines, more than %d: look for the second idea in it", one.path, one.lines, limit)
			}
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "manager", "base", "impl", "misc", "shared"}
	for _, f := range readSource(t, root) {
		for _, name := range f.packages {
			if slices.Contains(empty, strings.TrimSuffix(name, "_test")) {
				t.Errorf("package %s in %s says nothing by its name", name, f.path)
			}
		}
		onlyTests := !slices.ContainsFunc(f.files, func(one file) bool { return !one.test })
		if !onlyTests && strings.TrimSpace(f.doc) == "" {
			t.Errorf("package %s in %s has no package comment", f.packages[0], f.path)
		}
	}
}
