package wire

import "sync"

// Limits of what is remembered: a client that says something new each time
// costs no more than it did, and no memory.
const (
	maxRemembered     = 256
	maxRememberedSize = 2 << 10
)

// remembered is what was read of the same bytes before, for values that nobody
// changes. Its zero value remembers nothing. It is safe for concurrent use.
type remembered[T any] struct {
	mu   sync.RWMutex
	seen map[string]T
}

func (r *remembered[T]) of(raw []byte) (T, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.seen[string(raw)]
	return v, ok
}

func (r *remembered[T]) keep(raw []byte, v T) {
	if len(raw) > maxRememberedSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil || len(r.seen) >= maxRemembered {
		r.seen = map[string]T{}
	}
	r.seen[string(raw)] = v
}
