//go:build !race

package sqlite

// raceDetector: this is a build with it.
const raceDetector = false
