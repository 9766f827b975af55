package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// A check is one line of a scenario's checks.json.
type check struct {
	ID      string          `json:"id"`
	Status  string          `json:"status"`
	Message string          `json:"errorMessage"`
	Details json.RawMessage `json:"details"`
}

// An explanation accepts a status that is neither SUCCESS nor FAILURE.
type explanation struct {
	Scenario string `json:"scenario"`
	Check    string `json:"check"`
	Status   string `json:"status"`
	Why      string `json:"why"`
}

func readExplained(path string) ([]explanation, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []explanation
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, e := range all {
		if e.Scenario == "" || e.Check == "" || e.Why == "" {
			return nil, fmt.Errorf("%s: %+v needs a scenario, a check and a reason", path, e)
		}
		switch e.Status {
		case "WARNING", "INFO", "SKIPPED":
		default:
			return nil, fmt.Errorf("%s: %+v: status %q cannot be explained away", path, e, e.Status)
		}
	}
	return all, nil
}

// isLog reports whether a line is no check: some client scenarios log there
// what they send and receive.
func isLog(c check) bool {
	return c.Status == "INFO" && (c.ID == "incoming-request" || c.ID == "outgoing-response")
}

// resultFolder is how the suite names a scenario's folder of results: those of
// servers say so.
var resultFolder = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// readResults reads what the suite left in dir, by scenario.
func readResults(dir string) (map[string][]check, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	results := make(map[string][]check)
	var errs []error
	for _, entry := range entries {
		m := resultFolder.FindStringSubmatch(entry.Name())
		if m == nil {
			errs = append(errs, fmt.Errorf("%s is not named as a scenario's results are", entry.Name()))
			continue
		}
		scenario := m[1]
		if _, twice := results[scenario]; twice {
			errs = append(errs, fmt.Errorf("%s has results twice", scenario))
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name(), "checks.json"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", scenario, err))
			continue
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			errs = append(errs, fmt.Errorf("%s: checks.json: %w", scenario, err))
			continue
		}
		results[scenario] = slices.DeleteFunc(checks, isLog)
	}
	return results, errors.Join(errs...)
}

// judge returns what is wrong with the results: nothing, if exactly the
// expected scenarios ran, each with the expected number of checks, and each
// check succeeded or is explained. Every explanation must have been needed.
func judge(results map[string][]check, expected map[string]int, explained []explanation) []string {
	var complaints []string
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }

	used := make([]bool, len(explained))
	for _, scenario := range slices.Sorted(maps.Keys(results)) {
		checks := results[scenario]
		if want, ok := expected[scenario]; !ok {
			complain("%s ran and was not expected", scenario)
		} else if len(checks) == 0 || len(checks) != want {
			complain("%s made %d checks, not %d: the suite gave up on the rest, or the table in scenarios_test.go is old", scenario, len(checks), want)
		}
		for _, c := range checks {
			if c.Status == "SUCCESS" {
				continue
			}
			i := slices.IndexFunc(explained, func(e explanation) bool {
				return e.Scenario == scenario && e.Check == c.ID && e.Status == c.Status && c.Status != "FAILURE"
			})
			if i < 0 {
				complain("%s: %s: %s: %s\n\tdetails: %.1500s", scenario, c.ID, c.Status, c.Message, c.Details)
				continue
			}
			used[i] = true
		}
	}
	for _, scenario := range slices.Sorted(maps.Keys(expected)) {
		if _, ran := results[scenario]; !ran {
			complain("%s did not run", scenario)
		}
	}
	for i, e := range explained {
		if !used[i] {
			complain("explained.json explains %s of %s in %s, which nothing needs any more", e.Status, e.Check, e.Scenario)
		}
	}
	return complaints
}
