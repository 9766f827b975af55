package client

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// A holding is a call that this memory drives.
type holding struct {
	version int64
	poke    chan struct{} // capacity 1: somebody else has changed the entry
}

// claim makes this memory the driver of a call that has none, or whose driver
// is gone. The call is held before it is claimed: of two who claim it at once
// here, one is refused.
func (m *Memory) claim(ctx context.Context, id string) (k kept, err error) {
	h := &holding{poke: make(chan struct{}, 1)}
	m.mu.Lock()
	if m.held[id] != nil {
		m.mu.Unlock()
		return kept{}, &Error{ID: id, Kind: ErrBusy, Reason: "it is driven by this process"}
	}
	m.held[id] = h
	m.mu.Unlock()
	defer func() {
		if err != nil {
			m.letGo(id, h)
		}
	}()
	for {
		if k, err = m.load(ctx, id); err != nil {
			return kept{}, err
		}
		if k.driver != m.me && m.alive(k.driver, k.until) {
			return kept{}, &Error{ID: id, Kind: ErrBusy, Reason: "it is driven by " + m.statusOf(k).Driver}
		}
		at := time.Now()
		until := at.Add(lease)
		res, err := m.exec(ctx, "claim", m.me, until.UnixMilli(), id, k.version, k.driver, k.until.UnixMilli())
		if err != nil {
			return kept{}, m.failed("claiming a call", err)
		}
		if n, err := res.RowsAffected(); err != nil {
			return kept{}, err
		} else if n == 0 {
			continue
		}
		m.mu.Lock()
		h.version = k.version
		m.mu.Unlock()
		k.driver, k.until, k.at, k.h = m.me, until, at, h
		return k, nil
	}
}

func (m *Memory) hold(k kept) kept {
	k.h = &holding{version: k.version, poke: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[k.e.ID] = k.h
	return k
}

// letGo ends a holding; a newer one of the call stays.
func (m *Memory) letGo(id string, h *holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[id] == h {
		delete(m.held, id)
	}
}

// pokes is the channel that tells a driver of others' changes.
func (k *kept) pokes() <-chan struct{} {
	if k.h == nil {
		return nil
	}
	return k.h.poke
}

func (h *holding) tell() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// release lets another process drive the call. It is held until that is on
// disk, so that no newer claim of this memory is released with it. That it may
// fail is no harm: the lease ends by itself.
func (m *Memory) release(k kept) {
	if k.h == nil { // it has ended, and is not driven
		return
	}
	id := k.e.ID
	defer m.letGo(id, k.h)
	if k.driver == "" { // its end has released it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	if _, err := m.exec(ctx, "release", id, m.me); err != nil {
		m.log.Warn("a call could not be released; its lease ends by itself", "call", id, "err", err)
	}
}

// alive reports whether somebody drives the call: its lease runs, and if it is
// a process of this machine, that process is there.
func (m *Memory) alive(driver string, until time.Time) bool {
	if driver == "" || !time.Now().Before(until) {
		return false
	}
	if driver == m.me {
		return true
	}
	parts := strings.Split(driver, "/")
	if len(parts) != 3 || parts[0] != machine() {
		return true
	}
	process, err := strconv.Atoi(parts[1])
	return err != nil || process == os.Getpid() || processExists(process)
}

// machine names where a number means one process: this host, and of its PID
// namespaces the one that this process is in, as containers have their own.
func machine() string {
	name, err := os.Hostname()
	if err != nil || strings.ContainsAny(name, "/~") {
		name = "localhost"
	}
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil { // of Linux
		name += "~" + space
	}
	return name
}
