package canon

import (
	"strconv"
	"strings"
)

const (
	maxDigits   = 64   // significant ones, so without zeros at either end
	maxExponent = 9999 // both as written and in the canonical form
)

// appendNumber appends the canonical form of a JSON number. The value is only
// ever text: nothing is rounded, and no exponent is written out as zeros.
//
// The exponent as written is bounded too, and even for zero, because whoever
// reads the same bytes next may well write it out.
func appendNumber(b []byte, s string) ([]byte, error) {
	s, negative := strings.CutPrefix(s, "-")
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		// Beyond an int it is also beyond the limit.
		n, err := strconv.Atoi(s[i+1:])
		if err != nil || n < -maxExponent || n > maxExponent {
			return nil, ErrNumber
		}
		s, exponent = s[:i], n
	}
	whole, fraction, _ := strings.Cut(s, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(b, '0'), nil
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if len(trimmed) > maxDigits || exponent < -maxExponent || exponent > maxExponent {
		return nil, ErrNumber
	}
	if negative {
		b = append(b, '-')
	}
	b = append(b, trimmed...)
	if exponent == 0 {
		return b, nil
	}
	return strconv.AppendInt(append(b, 'e'), int64(exponent), 10), nil
}
