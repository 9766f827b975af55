//go:build race

package sim

// played is how many histories are played without -histories. The race detector
// makes them ten times as slow, and one processor leaves it little to see.
const played = 200
