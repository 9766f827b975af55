package sqlite

import (
	"sync"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/internal/row"
)

// Limits of what is kept in memory, in bytes as [row.Change] counts them.
const (
	maxRecent     = 8 << 20 // of all calls
	maxRecentCall = 256 << 10
)

// recent is the calls that were written or read last, as they are in the file,
// so that a call that goes through several changes is not read before each. The
// file belongs to this process alone: nobody else can have changed it.
//
// Only what is durable is in it. What a batch changes is taken out before its
// COMMIT, and put in as it is then before anybody is answered.
type recent struct {
	mu sync.Mutex
	// Two generations: when the young one is full it becomes the old one, and
	// what was in the old one and not used since is forgotten.
	young, old map[string]*stored
	size       int // of the young one
	// commits counts batches, so that what was read before one of them is not
	// put in after it; and while one is committed nothing is put in at all.
	commits    uint64
	committing bool
}

// stored is a call as it is in the file. Nobody changes it.
type stored struct {
	call *record.Call
	row  found // its n is 0 if that is not known
	size int
}

// load returns a copy of a call, or nil; and what [recent.read] has to be given
// for a call that is read from the file then.
func (c *recent) load(id string) (*record.Call, uint64) {
	s, commits := c.find(id)
	if s == nil {
		return nil, commits
	}
	return row.Copy(s.call), commits
}

func (c *recent) find(id string) (*stored, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.young[id]
	if s == nil {
		if s = c.old[id]; s != nil {
			c.put(id, s)
		}
	}
	return s, c.commits
}

// read keeps a call that was read, unless something was written meanwhile.
func (c *recent) read(call *record.Call, size int, commits uint64) {
	if size > maxRecentCall {
		return
	}
	s := &stored{call: row.Copy(call), size: size}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commits == commits && !c.committing {
		c.put(call.ID, s)
	}
}

// commit is told before COMMIT what will have changed: from then on readers see
// either in the file, and must not go back to what is here. All: it is not known
// what changes.
func (c *recent) commit(changed map[string]*stored, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committing = true
	if all {
		c.young, c.old, c.size = nil, nil, 0
	}
	for id := range changed {
		c.drop(id)
	}
}

// wrote is told what a batch has made of calls. Nil: it is not known here.
func (c *recent) wrote(changed map[string]*stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	c.committing = false
	for id, s := range changed {
		if s != nil && s.size <= maxRecentCall {
			c.put(id, s)
			continue
		}
		c.drop(id)
	}
}

// drop needs mu.
func (c *recent) drop(id string) {
	if s := c.young[id]; s != nil {
		c.size -= s.size + 512
	}
	delete(c.young, id)
	delete(c.old, id)
}

// forget is for when it is not known what is in the file.
func (c *recent) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	c.committing = false
	c.young, c.old, c.size = nil, nil, 0
}

// put needs mu.
func (c *recent) put(id string, s *stored) {
	if c.young == nil || c.size > maxRecent/2 {
		c.young, c.old, c.size = map[string]*stored{}, c.young, 0
	}
	if was := c.young[id]; was != nil {
		c.size -= was.size + 512
	}
	c.young[id] = s
	c.size += s.size + 512 // what a call takes beside its texts
	delete(c.old, id)
}
