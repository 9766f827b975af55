package engine

import "sync"

// A group counts goroutines. Unlike a sync.WaitGroup it may be waited for while
// others join: a request that came just before the drain may still start one.
// Its zero value is ready to use.
type group struct {
	mu    sync.Mutex
	n     int
	empty []chan struct{} // to be closed when n is next zero
}

// Go runs f in a goroutine of the group.
func (g *group) Go(f func()) {
	g.enter()
	go func() {
		defer g.leave()
		f()
	}()
}

func (g *group) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
}

func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n > 0 {
		return
	}
	for _, c := range g.empty {
		close(c)
	}
	g.empty = nil
}

// Empty returns a channel that is closed once the group has no goroutine.
func (g *group) Empty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	if g.n == 0 {
		close(c)
	} else {
		g.empty = append(g.empty, c)
	}
	return c
}
