// Package layout holds the tests that keep this repository in its shape: which
// package may import which, how long a file may be, and that the Go code shown
// in the documentation is code that compiles.
package layout
