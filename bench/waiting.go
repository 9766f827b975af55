package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallystick/tallystick/embedded"
)

// waiting asks many questions, and looks at what it takes that nobody has
// answered them yet.
func waiting(b *bench) (rows []row, err error) {
	crowded, err := b.open("tallystick", "crowded")
	if err != nil {
		return nil, err
	}
	defer crowded.close(&err)
	empty, err := b.open("tallystick", "empty")
	if err != nil {
		return nil, err
	}
	defer empty.close(&err)
	if err := errors.Join(answered(empty.crowd[0], empty.address, 50), answered(crowded.crowd[0], crowded.address, 50)); err != nil {
		return nil, err // warm
	}
	before, err := crowded.usage(true)
	if err != nil {
		return nil, err
	}
	n := b.size.waiting
	approve := newApprover(crowded.address)
	type asked struct{ order, state string }
	waits := make([][]asked, len(crowded.crowd))
	if _, err := crowded.times(n, func(client int, c *conn) error {
		order := nextOrder()
		state, err := approve.ask(c, order)
		waits[client] = append(waits[client], asked{order, state})
		return err
	}); err != nil {
		return nil, err
	}
	after, err := crowded.usage(true)
	if err != nil {
		return nil, err
	}
	disk, err := os.Stat(filepath.Join(b.folder, "crowded", embedded.StoreFile))
	if err != nil {
		return nil, err
	}
	var with, without []float64
	for i := range min(500, len(waits[0])) {
		start := time.Now()
		if err := approve.answer(crowded.crowd[0], waits[0][i].order, waits[0][i].state); err != nil {
			return nil, err
		}
		with = append(with, time.Since(start).Seconds())
		alone := newApprover(empty.address)
		order := nextOrder()
		state, err := alone.ask(empty.crowd[0], order)
		if err != nil {
			return nil, err
		}
		start = time.Now()
		if err := alone.answer(empty.crowd[0], order, state); err != nil {
			return nil, err
		}
		without = append(without, time.Since(start).Seconds())
	}
	each := func(a, b float64) string { return fmt.Sprintf("%.3f", (a-b)/float64(n)) }
	return []row{
		{figure: fmt.Sprintf("%d waiting calls: live memory, each", n), ours: fmt.Sprintf("%.0f bytes", (float64(after.Heap)-float64(before.Heap))/float64(n))},
		{figure: "the same: file, each", ours: fmt.Sprintf("%.0f bytes", float64(disk.Size())/float64(n))},
		{figure: "the same: goroutines, each", ours: each(float64(after.Goroutines), float64(before.Goroutines)), aim: "0"},
		{figure: "the same: time to answer one, p50", ours: micros(median(with)), baseline: micros(median(without)), ratio: fmt.Sprintf("%.2f", median(with)/median(without))},
	}, nil
}

// answered asks and answers n times.
func answered(c *conn, address string, n int) error {
	a := newApprover(address)
	for range n {
		if err := a.both(c); err != nil {
			return err
		}
	}
	return nil
}
