// Package canon gives JSON one canonical form, exact to the last digit.
//
// Two texts have the same form if and only if they say the same: the order of
// members, white space, escapes and the way a number is written do not count.
// Unlike RFC 8785 (JCS) no number is ever rounded, so that what a person
// approved for 9007199254740993 cannot be used for 9007199254740992.
package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many arrays and objects may be inside one another.
const MaxDepth = 64

// Every error of this package is one of these. The text says where; it holds
// no value, and of names only the start.
var (
	ErrSyntax    = errors.New("canon: not one JSON value of RFC 8259") // also a lone surrogate in an escape
	ErrUTF8      = errors.New("canon: not valid UTF-8")
	ErrDepth     = errors.New("canon: over the limit nesting 64")
	ErrDuplicate = errors.New("canon: duplicate member")
	ErrNumber    = errors.New("canon: number over the limits 64 significant digits, exponent 9999")
	ErrFold      = errors.New("canon: member differs from a known one by case only")
)

// Digest returns the SHA-256 of the canonical form, as 64 hexadecimal digits.
// Its errors are those of [Canonical].
func Digest(raw []byte) (string, error) {
	b, err := Canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Canonical returns the one form of what raw says, itself JSON:
//
//   - Nothing at all is {}.
//   - No white space. Strings with as few escapes as RFC 8785, by value: there
//     is no Unicode normalisation.
//   - Members by the bytes of their names in UTF-8, which is the order of
//     their code points and not that of RFC 8785.
//   - Numbers as an integer without zeros at its end, and "e" and an exponent
//     if that is not zero: 1200 is 12e2, 1.50 is 15e-1, and -0 is 0.
//
// Time and memory are bounded by the length of raw.
func Canonical(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return []byte("{}"), nil
	}
	r, err := newReader(raw)
	if err != nil {
		return nil, err
	}
	defer r.free()
	b, err := r.value(make([]byte, 0, len(raw)), 0)
	if err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return b, nil
}

// A reader is used again, with the memory of its decoder.
type reader struct {
	dec   *jsontext.Decoder
	input *bytes.Buffer
}

var readers = sync.Pool{New: func() any { return &reader{new(jsontext.Decoder), new(bytes.Buffer)} }}

func newReader(raw []byte) (*reader, error) {
	if !utf8.Valid(raw) {
		return nil, ErrUTF8
	}
	r := readers.Get().(*reader)
	*r.input = *bytes.NewBuffer(raw)
	// Duplicates are found here, by sorting, so that there is one check of
	// them and its error can be told from others.
	// Of a Buffer the decoder reads the very bytes, without a copy.
	r.dec.Reset(r.input, jsontext.AllowDuplicateNames(true))
	return r, nil
}

// free lets go of what was read.
func (r *reader) free() {
	*r.input = bytes.Buffer{}
	r.dec.Reset(r.input)
	readers.Put(r)
}

// token reads the next token. It is good until the next one is read.
func (r *reader) token() (jsontext.Token, error) {
	t, err := r.dec.ReadToken()
	if err == nil {
		return t, nil
	}
	// The decoder's own text quotes the input.
	return t, fmt.Errorf("%w: at byte %d", ErrSyntax, r.dec.InputOffset())
}

// end refuses anything after the value.
func (r *reader) end() error {
	if _, err := r.dec.ReadToken(); err != io.EOF {
		return fmt.Errorf("%w: more after its end, at byte %d", ErrSyntax, r.dec.InputOffset())
	}
	return nil
}

// value appends the canonical form of the next value. It calls itself once for
// each level of nesting, of which depth are above.
func (r *reader) value(b []byte, depth int) ([]byte, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{', '[':
		if depth == MaxDepth {
			return nil, fmt.Errorf("%w: at byte %d", ErrDepth, r.dec.InputOffset())
		}
		if t.Kind() == '{' {
			return r.object(b, depth+1)
		}
		return r.array(b, depth+1)
	case '"':
		return quote(b, t.String())
	case '0':
		b, err := appendNumber(b, t.String())
		if err != nil {
			return nil, fmt.Errorf("%w: at byte %d", err, r.dec.InputOffset())
		}
		return b, nil
	default: // null, true, false
		return append(b, t.String()...), nil
	}
}

func (r *reader) array(b []byte, depth int) ([]byte, error) {
	b = append(b, '[')
	for first := true; r.dec.PeekKind() != ']'; first = false {
		if !first {
			b = append(b, ',')
		}
		var err error
		if b, err = r.value(b, depth); err != nil {
			return nil, err
		}
	}
	if _, err := r.token(); err != nil {
		return nil, err
	}
	return append(b, ']'), nil
}

// member is a member of an object, whose canonical form is at start:end.
type member struct {
	name       string
	start, end int
}

func (r *reader) object(b []byte, depth int) ([]byte, error) {
	var members []member
	begin := len(b)
	for r.dec.PeekKind() != '}' {
		t, err := r.token()
		if err != nil {
			return nil, err
		}
		m := member{name: t.String(), start: len(b)}
		if b, err = quote(b, m.name); err != nil {
			return nil, err
		}
		if b, err = r.value(append(b, ':'), depth); err != nil {
			return nil, err
		}
		m.end = len(b)
		members = append(members, m)
	}
	if _, err := r.token(); err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.name, y.name) })
	sorted := make([]byte, 0, len(b)-begin+len(members)+1)
	for i, m := range members {
		if i > 0 {
			if m.name == members[i-1].name {
				return nil, fmt.Errorf("%w %s", ErrDuplicate, shown(m.name))
			}
			sorted = append(sorted, ',')
		}
		sorted = append(sorted, b[m.start:m.end]...)
	}
	b = append(b[:begin], '{')
	b = append(b, sorted...)
	return append(b, '}'), nil
}

func quote(b []byte, s string) ([]byte, error) {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return nil, ErrUTF8
	}
	return b, nil
}

// shown is a name as an error may show it: escaped, and not much of it.
func shown(name string) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%+q…", name[:most])
	}
	return fmt.Sprintf("%+q", name)
}
