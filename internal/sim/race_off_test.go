//go:build !race

package sim

import (
	"fmt"
	"testing"
)

const played = 2000

// TestAHistoryIsItsSeed plays histories twice. The race detector takes what is
// ready at one moment in any order.
func TestAHistoryIsItsSeed(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		var lines [2][]string
		for i := range lines {
			t.Run(fmt.Sprint(seed, " ", i), func(t *testing.T) { lines[i] = play(t, seed).lines })
		}
		for i := range lines[0] {
			if i >= len(lines[1]) || lines[0][i] != lines[1][i] {
				t.Errorf("seed %d: line %d differs:\n%s\n%s", seed, i, lines[0][i], lines[1][min(i, len(lines[1])-1)])
				break
			}
		}
	}
}
