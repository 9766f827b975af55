package conformance

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/tallystick/tallystick/internal/child"
)

func TestServerConforms(t *testing.T) {
	suite := installSuite(t)
	explained, err := readExplained("explained.json")
	if err != nil {
		t.Fatal(err)
	}
	url := startServer(t, child.Build(t, "./server"), t.TempDir())

	t.Run("revision", func(t *testing.T) {
		expected := maps.Clone(scored)
		maps.Copy(expected, unscored)
		maps.Copy(expected, tasks)
		out := t.TempDir()
		log := suite.run(t, "server", "--url", url, "--requirements", revision, "-o", out)
		report(t, out, log, expected, explained)
	})
	// A scenario of an extension runs otherwise when asked for by name: off the
	// revision's timeline, and scored.
	for _, scenario := range slices.Sorted(maps.Keys(tasks)) {
		t.Run(scenario, func(t *testing.T) {
			out := t.TempDir()
			log := suite.run(t, "server", "--url", url, "--scenario", scenario, "-o", out)
			others := func(e explanation) bool { return e.Scenario != scenario }
			report(t, out, log, map[string]int{scenario: tasks[scenario]}, slices.DeleteFunc(slices.Clone(explained), others))
		})
	}
}

// report judges the results in dir and fails the test with every complaint.
func report(t *testing.T, dir, log string, expected map[string]int, explained []explanation) {
	t.Helper()
	results, err := readResults(dir)
	if err != nil {
		t.Error(err)
	}
	for _, complaint := range judge(results, expected, explained) {
		t.Error(complaint)
	}
	if t.Failed() {
		t.Logf("the suite printed (its end):\n%s", log[max(0, len(log)-4000):])
	}
}

func TestTheTableOfScenariosIsTheSuitesOwn(t *testing.T) {
	listed := installSuite(t).run(t, "list", "--requirements", revision)
	got := make(map[string]bool)
	section := "" // required scenarios stand under their side, the others name it
	for _, m := range regexp.MustCompile(`(?m)^(Server|Client) scenarios|^\s*- (\S+)(?: \[(server|client)\])?$`).FindAllStringSubmatch(listed, -1) {
		switch {
		case m[1] != "":
			section = m[1]
		case m[3] == "server", m[3] == "" && section == "Server":
			got[m[2]] = true
		}
	}
	want := make(map[string]bool)
	for _, table := range []map[string]int{scored, unscored, tasks} {
		for scenario := range table {
			want[scenario] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the suite lists\n%q\nthe table has\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
