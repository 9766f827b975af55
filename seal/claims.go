package seal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Claims is what a sealed state says. Whoever holds the state can neither
// read it nor change it; the package gives the fields no meaning, it only
// carries them.
//
// Times are kept to the millisecond: Seal cuts off what is finer, and Open
// gives them back in UTC. The zero time is kept as the zero time.
type Claims struct {
	// Principal is the tag of who may come back with the state: a digest, so
	// that a state tells nobody's name even to whoever has the key.
	Principal string

	// Client is the program the state was given to.
	Client string

	// Action is the digest of what was asked for: method, name, arguments.
	Action string

	// Call is the id of a call that is kept in a store. It is empty if the
	// call is carried in Journal.
	Call string

	// Round is the round that the state closes, from 0 to MaxInt32.
	Round int

	// Issued is when the state was sealed, Expires the first instant at
	// which it is too old, and Deadline the first instant at which its call
	// is over.
	Issued, Expires, Deadline time.Time

	// Journal is the memory of a carried call, and nil if there is none.
	Journal []byte
}

// Expired reports whether the state is too old at now. A state without an
// expiry is always too old.
//
// Open does not look at the time, so that its caller can tell a genuine state
// that came too late from one that is not genuine.
func (c Claims) Expired(now time.Time) bool { return !now.Before(c.Expires) }

// PastDeadline reports whether the call of the state is over at now. A state
// without a deadline is always past it.
func (c Claims) PastDeadline(now time.Time) bool { return !now.Before(c.Deadline) }

// The encoding is the fields in their order. Texts and the journal are a
// uvarint length and the bytes, the round is a uvarint, times are varint
// milliseconds since 1970. Every integer is in its shortest form, so that
// equal claims have equal bytes and different claims different ones.

var errEncoding = errors.New("claims are not in their one encoding")

// check refuses claims that would not come back as they went in.
func (c Claims) check() error {
	if c.Round < 0 || c.Round > math.MaxInt32 {
		return fmt.Errorf("seal: round %d is not within 0 and %d", c.Round, math.MaxInt32)
	}
	for _, t := range [...]time.Time{c.Issued, c.Expires, c.Deadline} {
		if s := t.Unix(); s < firstSecond || s > lastSecond {
			return fmt.Errorf("seal: year %d of a time is not within 1 and 9999", t.UTC().Year())
		}
	}
	return nil
}

// Of the years 1 to 9999, in seconds since 1970.
const firstSecond, lastSecond = -62135596800, 253402300799

// size is at least the encoded length, known before anything is copied.
func (c Claims) size() int {
	return len(c.Principal) + len(c.Client) + len(c.Action) + len(c.Call) + len(c.Journal) + 9*binary.MaxVarintLen64
}

func (c Claims) encode() []byte {
	b := make([]byte, 0, c.size())
	for _, s := range [...]string{c.Principal, c.Client, c.Action, c.Call} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(c.Round))
	for _, t := range [...]time.Time{c.Issued, c.Expires, c.Deadline} {
		b = binary.AppendVarint(b, t.UnixMilli())
	}
	b = binary.AppendUvarint(b, uint64(len(c.Journal)))
	return append(b, c.Journal...)
}

// decodeClaims accepts what encode gives and nothing else. The journal is a
// part of b.
func decodeClaims(b []byte) (Claims, error) {
	d := claimsDecoder{rest: b}
	var texts [4]string
	d.texts(b, &texts)
	c := Claims{
		Principal: texts[0],
		Client:    texts[1],
		Action:    texts[2],
		Call:      texts[3],
		Round:     d.round(),
		Issued:    d.time(),
		Expires:   d.time(),
		Deadline:  d.time(),
		Journal:   d.bytes(),
	}
	if d.failed || len(d.rest) > 0 || c.check() != nil {
		return Claims{}, errEncoding
	}
	return c, nil
}

// claimsDecoder takes fields off the front of rest. After the first failure
// all it gives is zero.
type claimsDecoder struct {
	rest   []byte
	failed bool
}

// integer takes an integer of n bytes, of which the last holds its highest
// bits: if they are zero, a shorter form would do.
func (d *claimsDecoder) integer(n int) bool {
	if n <= 0 || (n > 1 && d.rest[n-1] == 0) {
		d.failed = true
	}
	if d.failed {
		return false
	}
	d.rest = d.rest[n:]
	return true
}

func (d *claimsDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if !d.integer(n) {
		return 0
	}
	return v
}

func (d *claimsDecoder) time() time.Time {
	ms, n := binary.Varint(d.rest)
	if !d.integer(n) {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (d *claimsDecoder) round() int {
	v := d.uvarint()
	if v > math.MaxInt32 {
		d.failed = true
		return 0
	}
	return int(v)
}

// texts takes the texts, which come first in b, as parts of one string.
func (d *claimsDecoder) texts(b []byte, texts *[4]string) {
	var ends, lengths [4]int
	for i := range texts {
		lengths[i] = len(d.bytes())
		ends[i] = len(b) - len(d.rest)
	}
	all := string(b[:ends[3]])
	for i := range texts {
		texts[i] = all[ends[i]-lengths[i] : ends[i]]
	}
}

func (d *claimsDecoder) bytes() []byte {
	n := d.uvarint()
	if d.failed || n > uint64(len(d.rest)) {
		d.failed = true
		return nil
	}
	if n == 0 {
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}
