package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABrokenServerIsSeenAsFailing(t *testing.T) {
	const (
		good    = `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"SUCCESS"}]`
		warned  = `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"WARNING","errorMessage":"hm"}]`
		failed  = `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"FAILURE","errorMessage":"no"}]`
		unknown = `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"success"}]`
	)
	explainedB := explanation{Scenario: "one", Check: "b", Status: "WARNING", Why: "because"}
	tests := []struct {
		name      string
		checks    string // of scenario "one"; empty: its folder has no checks.json
		explained []explanation
		complaint string // empty: none
	}{
		{"all well", good, nil, ""},
		{"warning, explained", warned, []explanation{explainedB}, ""},
		{"warning, unexplained", warned, nil, "b: WARNING"},
		{"warning, explained elsewhere", warned, []explanation{{"two", "b", "WARNING", "because"}}, "b: WARNING"},
		{"failure", failed, nil, "b: FAILURE"},
		{"failure, explained as a warning", failed, []explanation{explainedB}, "b: FAILURE"},
		{"failure, explained", failed, []explanation{{"one", "b", "FAILURE", "because"}}, "b: FAILURE"},
		{"a status nobody knows", unknown, nil, "b: success"},
		{"an explanation nothing needs", good, []explanation{explainedB}, "nothing needs"},
		{"fewer checks", `[{"id":"a","status":"SUCCESS"}]`, nil, "made 1 checks, not 2"},
		{"no checks", `[]`, nil, "made 0 checks"},
		{"no checks.json", "", nil, "checks.json"},
		{"half a checks.json", `[{"id":"a"`, nil, "checks.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, "server-one-2026-11-29T18-24-36-927Z")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.checks != "" {
				if err := os.WriteFile(filepath.Join(folder, "checks.json"), []byte(tt.checks), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			results, err := readResults(dir)
			complaints := judge(results, map[string]int{"one": 2}, tt.explained)
			if err != nil {
				complaints = append(complaints, err.Error())
			}
			all := strings.Join(complaints, "\n")
			if tt.complaint == "" && all != "" || !strings.Contains(all, tt.complaint) {
				t.Errorf("complaints are %q; want one with %q", all, tt.complaint)
			}
		})
	}
}

func TestScenariosThatDidNotRunAreMissed(t *testing.T) {
	ok := []check{{ID: "a", Status: "SUCCESS"}}
	got := strings.Join(judge(map[string][]check{"one": ok, "three": ok}, map[string]int{"one": 1, "two": 1}, nil), "\n")
	for _, want := range []string{"two did not run", "three ran and was not expected"} {
		if !strings.Contains(got, want) {
			t.Errorf("complaints %q lack %q", got, want)
		}
	}
}

func TestAFailureCannotBeWrittenIntoExplained(t *testing.T) {
	for _, entry := range []string{
		`[{"scenario":"one","check":"b","status":"FAILURE","why":"because"}]`,
		`[{"scenario":"one","check":"b","status":"WARNING"}]`,
	} {
		path := filepath.Join(t.TempDir(), "explained.json")
		if err := os.WriteFile(path, []byte(entry), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readExplained(path); err == nil {
			t.Errorf("%s was accepted", entry)
		}
	}
}
