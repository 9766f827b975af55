//go:build !race

package sim

const played = 2000
