package row

import (
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/record"
)

// A Change is a [record.Change] made ready to be stored, by the goroutine that
// wants it, so that the one that writes only writes.
type Change struct {
	record.Change
	Kept    *record.Call // After as it will be read back
	Doc     []byte       // of After
	Due     int64        // of After, as [Nanos]
	Open    int          // open questions and held effects of After
	Live    bool         // After has not ended
	Entries [][]byte
	Owners  [][]byte // of Marks that are set, by index
	Size    int      // bytes to be written, roughly
}

// Pack encodes a change and checks that it makes sense at all. An error says
// that nothing will be changed.
func Pack(c record.Change) (*Change, error) {
	p := &Change{Change: c}
	if err := p.check(); err != nil {
		return nil, err
	}
	if a := c.After; a != nil {
		p.Kept = Copy(a)
		doc, err := encode(p.Kept)
		if err != nil {
			return nil, fmt.Errorf("encoding call: %w", err)
		}
		p.Doc, p.Due = doc, Nanos(a.Due())
		p.Open = open(a)
		p.Live = a.State != record.Ended
		p.Size += len(doc) + len(a.Args) + len(a.Result)
	}
	p.Owners = make([][]byte, len(c.Marks))
	for i, m := range c.Marks {
		if m.Set == nil {
			continue
		}
		owner, err := EncodeOwner(m.Set.Owner)
		if err != nil {
			return nil, fmt.Errorf("encoding mark: %w", err)
		}
		p.Owners[i] = owner
		p.Size += len(owner) + len(m.Set.Result)
	}
	for i := range c.Audit {
		doc, err := EncodeEntry(&c.Audit[i])
		if err != nil {
			return nil, fmt.Errorf("encoding audit entry: %w", err)
		}
		p.Entries = append(p.Entries, doc)
		p.Size += len(doc)
	}
	return p, nil
}

// open counts what waits for people.
func open(c *record.Call) (n int) {
	for i := range c.Questions {
		if c.Questions[i].State == record.Open {
			n++
		}
	}
	for i := range c.Effects {
		if c.Effects[i].State == record.EffectHeld {
			n++
		}
	}
	return n
}

func (p *Change) check() error {
	a := p.After
	switch {
	case a != nil && p.Remove:
		return errors.New("a change that keeps and removes the call")
	case a != nil && (a.ID == "" || a.ID != p.ID):
		return errors.New("a change of one call into another")
	case p.ID == "" && (p.Remove || len(p.Marks) > 0):
		return errors.New("a change of no call")
	case a != nil && (len(a.Args) > MaxPayload || len(a.Result) > MaxPayload):
		return fmt.Errorf("arguments or a result of more than %d bytes", MaxPayload)
	}
	for _, m := range p.Marks {
		if m.Set != nil && m.Set.Call != p.ID {
			return errors.New("a mark for another call than the change is of")
		}
		if m.Set != nil && len(m.Set.Result) > MaxPayload {
			return fmt.Errorf("a result of more than %d bytes", MaxPayload)
		}
	}
	return nil
}

// Restore puts what columns hold into a call read from its document.
func Restore(c *record.Call, version int64, holder string, until int64) {
	c.Version = version
	c.Lease = record.Lease{Holder: holder, Until: Time(until)}
}
