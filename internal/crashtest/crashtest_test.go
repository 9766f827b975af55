//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The binary of this test is the server too.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// A short run of what the command does at length.
func TestAServerSurvivesItsKills(t *testing.T) {
	folder := t.TempDir()
	var out strings.Builder
	err := plan{kills: 12, clients: 8, folder: folder, self: os.Args[0], verbose: true, out: &out}.run(context.Background())
	t.Log("\n" + out.String())
	if err != nil {
		said, _ := os.ReadFile(folder + "/" + logFile)
		t.Errorf("%v\nthe servers said: %.4000s", err, said)
	}
	for _, row := range []string{"kills                  12", "stops                   2", "drains                  1", "findings                0"} {
		if !strings.Contains(out.String(), "\n"+row) {
			t.Errorf("the table has no %q", row)
		}
	}
}
