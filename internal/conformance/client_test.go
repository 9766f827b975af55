package conformance

import (
	"maps"
	"slices"
	"testing"

	"github.com/tallystick/tallystick/internal/child"
)

// clients are the client scenarios that are for a client library, with the
// revision that they run under and the number of checks. Those under auth/ are
// of the SDK's transport: docs/conformance.md says which and why.
var clients = map[string]struct {
	revision string
	checks   int
}{
	"tools_call":                          {revision, 2},
	"request-metadata":                    {revision, 8},
	"sep-2322-client-request-state":       {revision, 5},
	"http-standard-headers":               {revision, 11},
	"http-custom-headers":                 {revision, 18},
	"http-invalid-tool-headers":           {revision, 12},
	"json-schema-ref-no-deref":            {revision, 1},
	"json-schema-2020-12-preservation":    {revision, 9},
	"elicitation-sep1034-client-defaults": {"2025-11-25", 5},
}

func TestClientConforms(t *testing.T) {
	suite := installSuite(t)
	explained, err := readExplained("explained_client.json")
	if err != nil {
		t.Fatal(err)
	}
	command := child.Build(t, "./client")
	for _, scenario := range slices.Sorted(maps.Keys(clients)) {
		t.Run(scenario, func(t *testing.T) {
			out := t.TempDir()
			log := suite.run(t, "client", "--command", command, "--scenario", scenario, "--spec-version", clients[scenario].revision, "-o", out)
			others := func(e explanation) bool { return e.Scenario != scenario }
			report(t, out, log, map[string]int{scenario: clients[scenario].checks}, slices.DeleteFunc(slices.Clone(explained), others))
		})
	}
}
