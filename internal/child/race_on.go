//go:build race

package child

// Programs are built as the tests are that start them: with the race detector
// or without.
const raceDetector = true
