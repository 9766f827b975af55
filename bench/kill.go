package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// killed kills a server in the middle of a task and starts it again at once.
func killed(b *bench) ([]row, error) {
	var took []float64
	for i := range b.size.kills {
		one, err := killOnce(filepath.Join(b.folder, fmt.Sprintf("kill-%d", i)))
		if err != nil {
			return nil, err
		}
		took = append(took, one.Seconds())
	}
	ms := func(s float64) string { return fmt.Sprintf("%.1f ms", s*1e3) }
	return []row{{
		figure: fmt.Sprintf("SIGKILL to the task's handler running again in a new process, %d times", len(took)),
		ours:   "p50 " + ms(median(took)) + ", max " + ms(slices.Max(took)),
	}}, nil
}

func killOnce(folder string) (time.Duration, error) {
	p, err := start("tallystick", folder)
	if err != nil {
		return 0, err
	}
	order := nextOrder()
	if err := func() error {
		c, err := dial(p.address)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.create(creating(p.address, "long"), order)
		return err
	}(); err != nil {
		return 0, errors.Join(err, p.kill())
	}
	if _, err := p.next("running " + order); err != nil {
		return 0, errors.Join(err, p.kill())
	}
	begin := time.Now()
	if err := p.kill(); err != nil {
		return 0, err
	}
	if p, err = launch("tallystick", folder); err != nil {
		return 0, err
	}
	_, err = p.next("running " + order)
	took := time.Since(begin)
	return took, errors.Join(err, p.kill())
}
