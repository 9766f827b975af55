package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/exampletest"
	"github.com/tallystick/tallystick/tallysticktest"
)

var (
	owner    = tallystick.Identity{Tenant: "acme", Subject: "ann"}
	operator = tallystick.Identity{Tenant: "acme", Subject: "olga", Roles: []string{"operator"}}
)

// The far side knows no keys: what was under way in a crash is held, until
// somebody has looked there.
func TestAnAccountIsClosedOnceWhereverItCrashes(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		accounts := NewAccounts()
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { addClose(s, accounts) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(owner).Call("close", accountArgs{"A1"}).Confirm("sure").Await("completed", "held")
				if r.Status() == "held" {
					if err := b.As(operator).Resolve(r, "close", "A1", accounts.Closed("A1") == 1, 40); err != nil {
						t.Error(err)
					}
					r = r.Await("completed")
				}
				if r.Text() != `{"euros":40}` {
					t.Errorf("closed: %v", r)
				}
			},
			Check: func(*tallysticktest.Bench) {
				if n := accounts.Closed("A1"); n != 1 {
					t.Errorf("closed %d times", n)
				}
			},
		}
	})
}

func TestTheProgramAsksAndClosesOnce(t *testing.T) {
	binary := exampletest.Build(t)
	t.Chdir(t.TempDir()) // for its data
	p := exampletest.Start(t, binary)
	ann := p.Connect("ann", &mcp.ClientOptions{ElicitationHandler: exampletest.Yes})
	if _, text := exampletest.Call(t, ann, "balance", map[string]any{"account": "A1"}); text != `{"euros":40}` {
		t.Errorf("balance: %s", text)
	}
	for range 2 { // the second time it is the recorded result
		if _, text := exampletest.Call(t, ann, "close", map[string]any{"account": "A1"}); text != `{"euros":40}` {
			t.Errorf("closed: %s", text)
		}
	}
}

func TestAdoptingItChangesFewerThanTwentyLines(t *testing.T) {
	removed, added := 0, 0
	for _, name := range []string{"main.go", "accounts.go"} {
		r, a := diff(lines(t, filepath.Join("..", "before", name)), lines(t, name))
		removed, added = removed+r, added+a
	}
	t.Logf("%d lines added, of which %d are changed ones", added, removed)
	if added >= 20 {
		t.Errorf("%d lines are new or changed", added)
	}
}

// lines of a file, without the comment at its top.
func lines(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	return strings.Split(text[strings.Index(text, "package main"):], "\n")
}

// diff counts the lines that are only in a, and only in b, by their longest
// common subsequence.
func diff(a, b []string) (removed, added int) {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return len(a) - common[0][0], len(b) - common[0][0]
}
