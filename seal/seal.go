// Package seal turns the claims of a call into an opaque state that only the
// holder of the key can read or make.
//
// A [Sealer] seals and opens; a [Keyset] is its key. Any other [tink.AEAD]
// does as well, for instance one behind a key management service.
//
// A sealed state proves who made it, for which audience, and that it is whole.
// It does not prove that it is used for the first time, by the right person,
// or in time: that is for the caller to check against the [Claims].
package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/tink"
)

const (
	// prefix starts every state. A later format gets another one, so that
	// both can be told apart before anything is decrypted.
	prefix = "ts1."

	// format starts the associated data. It holds no zero byte.
	format = "tallystick sealed state 1"

	defaultLimit = 16 << 10
)

// ErrInvalid is every failure of [Sealer.Open]: a state that is no state, was
// changed, is of another audience or another key. Its holder must not learn
// which. The error's text says it for the log and never holds the state.
var ErrInvalid = errors.New("seal: invalid state")

// ErrTooLarge is returned by [Sealer.Seal] if the state would be over the
// limit. The text names the limit, "state 16 KiB" by default.
var ErrTooLarge = errors.New("seal: over the limit")

// strict refuses padding and stray bits at the end; [Sealer.Open] refuses the
// line ends that it would still skip.
var strict = base64.RawURLEncoding.Strict()

// A Sealer seals claims for one audience. It may be used by many goroutines
// at once if its AEAD may; Tink's and a [Keyset]'s may.
type Sealer struct {
	aead       tink.AEAD
	associated []byte
	limit      int
}

// NewSealer returns a Sealer of states of at most 16 KiB. The audience says
// which servers accept each other's states; see [Audience]. It is not part of
// the state and must be the same when it is opened.
func NewSealer(aead tink.AEAD, audience string) (*Sealer, error) {
	if aead == nil {
		return nil, errors.New("seal: a sealer needs an AEAD: use Keyset.AEAD or one of your own")
	}
	if audience == "" {
		return nil, errors.New("seal: a sealer needs an audience, such as the server's name and its deployment")
	}
	// The format is of fixed length and the audience runs to the end, so no
	// two pairs give the same bytes.
	return &Sealer{aead: aead, associated: []byte(format + "\x00" + audience), limit: defaultLimit}, nil
}

// Audience joins a server's name and its deployment, so that staging is not
// production. Different pairs always give different audiences.
func Audience(server, deployment string) string {
	// In ASCII only: which other characters %q escapes changes with Unicode's
	// version, and so with Go's.
	return fmt.Sprintf("%+q %+q", server, deployment)
}

// WithLimit returns a Sealer like s whose states have at most limit bytes,
// for opening too. A limit below one byte is the default, 16 KiB.
func (s *Sealer) WithLimit(limit int) *Sealer {
	if limit < 1 {
		limit = defaultLimit
	}
	with := *s
	with.limit = limit
	return &with
}

// Seal returns the state that [Sealer.Open] turns back into c: URL-safe text.
// Sealing the same claims twice gives different states. The error is
// [ErrTooLarge], or about claims out of range, or the AEAD's own.
func (s *Sealer) Seal(c Claims) (string, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	plain := c.encode()
	if s.length(len(plain)) > s.limit {
		return "", s.tooLarge()
	}
	sealed, err := s.aead.Encrypt(plain, s.associated)
	if err != nil {
		return "", fmt.Errorf("seal: encrypting a state: %w", err)
	}
	if s.length(len(sealed)) > s.limit {
		return "", s.tooLarge()
	}
	var short [512]byte // for most states
	b := short[:0]
	if n := s.length(len(sealed)); n > len(short) {
		b = make([]byte, 0, n)
	}
	return string(strict.AppendEncode(append(b, prefix...), sealed)), nil
}

// Open returns the claims that were sealed into state, whenever that was: see
// [Claims.Expired]. Each sealing has exactly one text that opens. Any failure
// is [ErrInvalid]; one of the AEAD itself, such as a key service that does not
// answer, can be found in it with [errors.As].
func (s *Sealer) Open(state string) (Claims, error) {
	if len(state) > s.limit {
		return Claims{}, &invalid{reason: "over the limit " + s.limitName()}
	}
	body, ok := strings.CutPrefix(state, prefix)
	if !ok {
		return Claims{}, &invalid{reason: "unknown format"}
	}
	// The decoder skips line ends even when strict.
	if strings.IndexByte(body, '\r') >= 0 || strings.IndexByte(body, '\n') >= 0 {
		return Claims{}, &invalid{reason: "not base64"}
	}
	sealed, err := strict.DecodeString(body)
	if err != nil {
		return Claims{}, &invalid{reason: "not base64"}
	}
	plain, err := s.aead.Decrypt(sealed, s.associated)
	if err != nil {
		return Claims{}, &invalid{reason: "does not decrypt: changed, or another key or audience", cause: err}
	}
	c, err := decodeClaims(plain)
	if err != nil {
		return Claims{}, &invalid{reason: err.Error()}
	}
	return c, nil
}

// length is that of a state with n sealed bytes.
func (s *Sealer) length(n int) int { return len(prefix) + strict.EncodedLen(n) }

func (s *Sealer) tooLarge() error {
	return fmt.Errorf("%w %s", ErrTooLarge, s.limitName())
}

func (s *Sealer) limitName() string {
	if s.limit%1024 == 0 {
		return fmt.Sprintf("state %d KiB", s.limit/1024)
	}
	return fmt.Sprintf("state %d bytes", s.limit)
}

// invalid is ErrInvalid with a reason for the log. The cause is not in the
// text: an AEAD from outside may quote what it was given.
type invalid struct {
	reason string
	cause  error
}

func (e *invalid) Error() string { return ErrInvalid.Error() + ": " + e.reason }

func (e *invalid) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, e.cause}
}
