package seal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/xaesgcm"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// saltSize is XAES-256-GCM's for nonces of 192 bits, which may be random for
// as many states as a server will ever seal.
const saltSize = 12

// maxKeyset bounds what is read as a keyset, in bytes: over 3,000 keys.
const maxKeyset = 1 << 20

// A Keyset is one or more XAES-256-GCM keys of which one, the primary, seals,
// and all that are enabled open. A sealed state names its key by id, so that
// no key is tried in vain.
//
// Keys are replaced in three steps, so that no state that is out is lost:
//
//  1. Add a key and give the keyset to every process. It opens; it does not
//     seal yet, since some process may not have it.
//  2. When all have it, Promote it and give the keyset to every process.
//  3. When the last state of the old key has expired, Disable the old key.
//
// A Keyset may be used by many goroutines at once. Make one with [NewKeyset],
// [OpenOrCreateFile], [LoadFile] or [ReadKeyset].
type Keyset struct {
	mu     sync.RWMutex
	handle *keyset.Handle // never changed, only replaced, together with aead
	aead   tink.AEAD
}

// KeyInfo describes a key of a [Keyset] without its secret.
type KeyInfo struct {
	ID      uint32
	Primary bool // seals
	Enabled bool // opens
}

// NewKeyset returns a keyset of one new key, which exists nowhere else until
// it is written. States sealed before that are lost with the process.
func NewKeyset() (*Keyset, error) {
	h, err := keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("seal: making a key: %w", err)
	}
	return newKeyset(h)
}

func newKeyset(h *keyset.Handle) (*Keyset, error) {
	if err := checkKeys(h); err != nil {
		return nil, err
	}
	a, err := aead.New(h)
	if err != nil {
		// Tink's text may quote what it was given.
		return nil, errors.New("seal: the keyset holds a key that Tink does not use")
	}
	return &Keyset{handle: h, aead: a}, nil
}

// checkKeys refuses what would break the promise of one accepted state per
// payload, or that an id selects one key: the same key under two ids, two keys
// under one id, a key without an id in what it seals, another algorithm.
func checkKeys(h *keyset.Handle) error {
	ids := make(map[uint32]bool, h.Len())
	secrets := make(map[[sha256.Size]byte]bool, h.Len())
	for i := range h.Len() {
		e, err := h.Entry(i)
		if err != nil {
			return errors.New("seal: the keyset holds a key that cannot be read")
		}
		k, ok := e.Key().(*xaesgcm.Key)
		if !ok {
			return fmt.Errorf("seal: key %d of the keyset is not an XAES-256-GCM key", e.KeyID())
		}
		p, ok := k.Parameters().(*xaesgcm.Parameters)
		if !ok || p.Variant() != xaesgcm.VariantTink || p.SaltSizeInBytes() != saltSize {
			return fmt.Errorf("seal: key %d of the keyset is not of Tink's template XAES256_GCM_192_BIT_NONCE", e.KeyID())
		}
		secret := sha256.Sum256(k.KeyBytes().Data(insecuresecretdataaccess.Token{}))
		if ids[e.KeyID()] || secrets[secret] {
			return fmt.Errorf("seal: key %d is twice in the keyset", e.KeyID())
		}
		ids[e.KeyID()], secrets[secret] = true, true
	}
	return nil
}

// AEAD returns what seals and opens with the keys of k. It follows k: a key
// that is added, promoted or disabled counts from its next use.
func (k *Keyset) AEAD() tink.AEAD { return keysetAEAD{k} }

type keysetAEAD struct{ k *Keyset }

func (a keysetAEAD) now() tink.AEAD {
	a.k.mu.RLock()
	defer a.k.mu.RUnlock()
	return a.k.aead
}

func (a keysetAEAD) Encrypt(plain, associated []byte) ([]byte, error) {
	return a.now().Encrypt(plain, associated)
}

func (a keysetAEAD) Decrypt(sealed, associated []byte) ([]byte, error) {
	return a.now().Decrypt(sealed, associated)
}

// Add makes a new key that opens and does not seal, the first step of a
// rotation, and returns its id. Nothing is written.
func (k *Keyset) Add() (uint32, error) {
	var id uint32
	err := k.change(func(m *keyset.Manager) (err error) {
		id, err = m.Add(aead.XAES256GCM192BitNonceKeyTemplate())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("seal: adding a key: %w", err)
	}
	return id, nil
}

// Promote makes the key with the id the one that seals, the second step of a
// rotation. It must be there and enabled. Nothing is written.
func (k *Keyset) Promote(id uint32) error {
	err := k.change(func(m *keyset.Manager) error { return m.SetPrimary(id) })
	if err != nil {
		return fmt.Errorf("seal: promoting key %d: %w", id, err)
	}
	return nil
}

// Disable makes the key with the id open nothing any more, the last step of a
// rotation. The primary key is refused: promote another one first. Nothing is
// written. The secret stays in the keyset.
func (k *Keyset) Disable(id uint32) error {
	err := k.change(func(m *keyset.Manager) error { return m.Disable(id) })
	if err != nil {
		return fmt.Errorf("seal: disabling key %d: %w", id, err)
	}
	return nil
}

// change replaces the keys whole, or not at all if f fails.
func (k *Keyset) change(f func(*keyset.Manager) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := keyset.NewManagerFromHandle(k.handle)
	if err := f(m); err != nil {
		return err
	}
	h, err := m.Handle()
	if err != nil {
		return err
	}
	next, err := newKeyset(h)
	if err != nil {
		return err
	}
	k.handle, k.aead = next.handle, next.aead
	return nil
}

// List returns the keys in the order in which they were added.
func (k *Keyset) List() []KeyInfo {
	h := k.current()
	list := make([]KeyInfo, 0, h.Len())
	for i := range h.Len() {
		e, err := h.Entry(i)
		if err != nil {
			continue // checkKeys has read every entry
		}
		list = append(list, KeyInfo{ID: e.KeyID(), Primary: e.IsPrimary(), Enabled: e.KeyStatus() == keyset.Enabled})
	}
	return list
}

func (k *Keyset) current() *keyset.Handle {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.handle
}

// ErrKeyset is returned for what cannot be read as a keyset. The text never
// holds any of it.
var ErrKeyset = errors.New("seal: not a keyset in Tink's JSON form: cut short or edited")

// ReadKeyset reads a keyset as [Keyset.Write] writes it, at most 1 MiB. The
// error is [ErrKeyset], says which key is not fit, or is the reader's own.
func ReadKeyset(r io.Reader) (*Keyset, error) {
	return read(r, func(b *keyset.JSONReader) (*keyset.Handle, error) { return insecurecleartextkeyset.Read(b) })
}

// ReadEncryptedKeyset reads a keyset as [Keyset.WriteEncrypted] writes it.
func ReadEncryptedKeyset(r io.Reader, master tink.AEAD) (*Keyset, error) {
	return read(r, func(b *keyset.JSONReader) (*keyset.Handle, error) { return keyset.Read(b, master) })
}

func read(r io.Reader, parse func(*keyset.JSONReader) (*keyset.Handle, error)) (*Keyset, error) {
	bounded := &boundedReader{r: io.LimitReader(r, maxKeyset+1)}
	h, err := parse(keyset.NewJSONReader(bounded))
	switch {
	case bounded.err != nil:
		return nil, fmt.Errorf("seal: reading a keyset: %w", bounded.err)
	case bounded.n > maxKeyset:
		return nil, fmt.Errorf("%w: over the limit keyset 1 MiB", ErrKeyset)
	case err != nil:
		// Tink's text quotes the input, which is the secret.
		return nil, ErrKeyset
	}
	return newKeyset(h)
}

// boundedReader remembers what Tink's reader hides: how much was read, and
// whether reading it failed.
type boundedReader struct {
	r   io.Reader
	n   int
	err error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += n
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// Write writes the keyset in Tink's JSON form with the secrets in clear: what
// it is written to must be as secret as they are. That is right for a file
// that only the server can read; elsewhere use [Keyset.WriteEncrypted].
func (k *Keyset) Write(w io.Writer) error {
	if err := insecurecleartextkeyset.Write(k.current(), keyset.NewJSONWriter(w)); err != nil {
		return fmt.Errorf("seal: writing a keyset: %w", err)
	}
	return nil
}

// WriteEncrypted writes the keyset encrypted with the master key, for instance
// one of a key management service. Ids and states of the keys stay readable.
func (k *Keyset) WriteEncrypted(w io.Writer, master tink.AEAD) error {
	if err := k.current().Write(keyset.NewJSONWriter(w), master); err != nil {
		return fmt.Errorf("seal: writing an encrypted keyset: %w", err)
	}
	return nil
}
