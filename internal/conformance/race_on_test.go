//go:build race

package conformance

// The fixtures' server is built as these tests are: with the race detector or
// without.
const raceDetector = true
