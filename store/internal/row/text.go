package row

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// mark leads an escape in [Text]. It is what others put in place of bytes that
// are no UTF-8; here it says which byte it stood for, since two tenants that
// differ in such a byte alone must never become one.
const mark = utf8.RuneError

const hexDigits = "0123456789abcdef"

// Text writes any string as valid UTF-8 without NUL, so that a text column or
// a JSON string holds it, and different strings stay different. Almost every
// string is its own Text. A NUL or a byte that is no UTF-8 becomes U+FFFD and
// two hexadecimal digits, and U+FFFD is doubled.
func Text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, mark) && !strings.Contains(s, "\x00") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == mark && n == 1 || r == 0:
			b.WriteRune(mark)
			b.WriteByte(hexDigits[s[i]>>4])
			b.WriteByte(hexDigits[s[i]&15])
		case r == mark:
			b.WriteRune(mark)
			b.WriteRune(mark)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

var errText = errors.New("a text with a broken escape")

// Untext reverses [Text]. Whatever Text cannot have written is an error.
func Untext(s string) (string, error) {
	at := strings.IndexRune(s, mark)
	if at < 0 {
		if strings.Contains(s, "\x00") {
			return "", errText
		}
		return s, nil
	}
	const lead = string(mark)
	written := s
	var b strings.Builder
	for ; at >= 0; at = strings.IndexRune(s, mark) {
		b.WriteString(s[:at])
		s = s[at:]
		if !strings.HasPrefix(s, lead) {
			return "", errText // IndexRune finds bytes that are no UTF-8 too
		}
		s = s[len(lead):]
		if rest, ok := strings.CutPrefix(s, lead); ok {
			b.WriteString(lead)
			s = rest
			continue
		}
		if len(s) < 2 {
			return "", errText
		}
		hi, lo := strings.IndexByte(hexDigits, s[0]), strings.IndexByte(hexDigits, s[1])
		if hi < 0 || lo < 0 {
			return "", errText
		}
		b.WriteByte(byte(hi<<4 | lo))
		s = s[2:]
	}
	b.WriteString(s)
	if Text(b.String()) != written { // an escape of what needs none
		return "", errText
	}
	return b.String(), nil
}
