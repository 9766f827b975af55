// Package sim plays years of a server's life in milliseconds, and has no code
// but tests.
//
// A history is one seed. From it come the people (who call, answer late, twice
// or differently, steal, cancel, vanish), the weather (crashes, pauses past a
// lease, a store that fails, clocks that jump, rights withdrawn, keys rotated)
// and how long each step takes, which is the schedule. Everything runs in a
// testing/synctest bubble: the real Server behind its own HTTP handler, the real
// engine and law, on a store in memory. What was committed, sent, told and
// charged is written down, and held against the promises; what was done to each
// call must also be explained by some order of it, one after the other.
//
//	go test ./internal/sim                                # a few thousand histories
//	go test ./internal/sim -histories 100000 -timeout 3h  # a long run
//	go test ./internal/sim -seed 4711 -v                  # one history again, with what happened in it
package sim
