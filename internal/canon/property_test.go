package canon

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// A value is JSON as a value: of nil, bool, number, string, []value and
// []field without equal names.
type value any

type field struct {
	name  string
	value value
}

// number is digits times ten to the exponent.
type number struct {
	digits   string
	exponent int
}

func drawValue(t *rapid.T, depth int) value {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]value{nil, true, false}).Draw(t, "literal")
	case 1, 2:
		return drawNumber(t)
	case 3:
		return rapid.String().Draw(t, "string")
	case 4:
		list := []value{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	default:
		fields := []field{}
		for _, name := range rapid.SliceOfNDistinct(rapid.StringN(0, 5, -1), 0, 5, rapid.ID).Draw(t, "names") {
			fields = append(fields, field{name, drawValue(t, depth-1)})
		}
		return fields
	}
}

func drawNumber(t *rapid.T) number {
	return number{
		digits:   rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})`).Draw(t, "digits"),
		exponent: rapid.IntRange(-30, 30).Draw(t, "exponent"),
	}
}

// write writes v in one of its many forms.
func write(t *rapid.T, b *strings.Builder, v value) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", " ", "\t\r\n"}).Draw(t, "space")) }
	space()
	defer space()
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case number:
		b.WriteString(writtenNumber(t, v))
	case string:
		b.WriteString(writtenString(t, v))
	case []value:
		b.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(t, b, element)
		}
		space()
		b.WriteByte(']')
	case []field:
		b.WriteByte('{')
		for i, f := range rapid.Permutation(v).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			b.WriteString(writtenString(t, f.name))
			space()
			b.WriteByte(':')
			write(t, b, f.value)
		}
		space()
		b.WriteByte('}')
	}
}

// writtenNumber moves the point, adds zeros, and makes up for it with the
// exponent.
func writtenNumber(t *rapid.T, n number) string {
	digits, negative := strings.CutPrefix(n.digits, "-")
	exponent := n.exponent
	if zeros := rapid.IntRange(0, 3).Draw(t, "zeros"); digits != "0" {
		digits += strings.Repeat("0", zeros)
		exponent -= zeros
	}
	fraction := ""
	if places := rapid.IntRange(0, 3).Draw(t, "places"); places > 0 {
		padded := strings.Repeat("0", places) + digits
		digits, fraction = padded[:len(padded)-places], "."+padded[len(padded)-places:]
		if digits = strings.TrimLeft(digits, "0"); digits == "" {
			digits = "0"
		}
		exponent += places
	}
	sign := ""
	if negative {
		sign = "-"
	}
	if exponent == 0 && rapid.Bool().Draw(t, "bare") {
		return sign + digits + fraction
	}
	format := rapid.SampledFrom([]string{"e%d", "E%d", "e%+d", "e%+04d"}).Draw(t, "exponent form")
	return sign + digits + fraction + fmt.Sprintf(format, exponent)
}

func writtenString(t *rapid.T, s string) string {
	b := []byte{'"'}
	for _, r := range s {
		plain := r >= 0x20 && r != '"' && r != '\\'
		switch {
		case plain && !rapid.Bool().Draw(t, "escape"):
			b = append(b, string(r)...)
		case r == '/' || r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "hex"), unit)
			}
		}
	}
	return string(append(b, '"'))
}

// equal is what the canonical form must agree with, by other means.
func equal(x, y value) bool {
	switch x := x.(type) {
	case number:
		y, ok := y.(number)
		return ok && rational(x).Cmp(rational(y)) == 0
	case []value:
		y, ok := y.([]value)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case []field:
		y, ok := y.([]field)
		if !ok || len(x) != len(y) {
			return false
		}
		byName := map[string]value{}
		for _, f := range y {
			byName[f.name] = f.value
		}
		for _, f := range x {
			if v, ok := byName[f.name]; !ok || !equal(f.value, v) {
				return false
			}
		}
		return true
	case string:
		y, ok := y.(string)
		return ok && x == y
	case bool:
		y, ok := y.(bool)
		return ok && x == y
	}
	return x == nil && y == nil
}

func rational(n number) *big.Rat {
	r, _ := new(big.Rat).SetString(fmt.Sprintf("%se%d", n.digits, n.exponent))
	return r
}

// changed returns v with one leaf, name or length other than before. It may
// by chance be equal to v.
func changed(t *rapid.T, v value) value {
	switch v := v.(type) {
	case number:
		if rapid.Bool().Draw(t, "change the exponent") {
			return number{v.digits, v.exponent + 1}
		}
		n, _ := new(big.Int).SetString(v.digits, 10)
		return number{n.Add(n, big.NewInt(1)).String(), v.exponent}
	case string:
		return v + rapid.SampledFrom([]string{"\x00", " ", "x", "\u0301"}).Draw(t, "more")
	case []value:
		if len(v) == 0 || rapid.Bool().Draw(t, "change the length") {
			return append(v[:len(v):len(v)], value(nil))
		}
		v = append([]value{}, v...)
		i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
		v[i] = changed(t, v[i])
		return v
	case []field:
		if len(v) == 0 {
			return []field{{"", nil}}
		}
		v = append([]field{}, v...)
		i := rapid.IntRange(0, len(v)-1).Draw(t, "member")
		if rapid.Bool().Draw(t, "change the name") {
			v[i].name += strings.Repeat("~", 6) // longer than any other
		} else {
			v[i].value = changed(t, v[i].value)
		}
		return v
	case nil:
		return false
	default:
		return nil
	}
}

func digestOf(t *rapid.T, v value) string {
	var b strings.Builder
	write(t, &b, v)
	d, err := Digest([]byte(b.String()))
	if err != nil {
		t.Fatalf("Digest(%s): %v", b.String(), err)
	}
	return d
}

func TestAnotherWayOfWritingKeepsTheDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		if x, y := digestOf(t, v), digestOf(t, v); x != y {
			t.Fatalf("%#v has two digests", v)
		}
	})
}

func TestAnotherValueChangesTheDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		w := changed(t, v)
		if same := digestOf(t, v) == digestOf(t, w); same != equal(v, w) {
			t.Fatalf("%#v and %#v: same digest is %t", v, w, same)
		}
	})
}

func TestNumbersHaveOneDigestIfAndOnlyIfEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few digits, so that equal ones are common.
		draw := rapid.Custom(func(t *rapid.T) number {
			return number{rapid.StringMatching(`-?(0|1|10|100|2|20)`).Draw(t, "digits"), rapid.IntRange(-2, 2).Draw(t, "exponent")}
		})
		x, y := draw.Draw(t, "x"), draw.Draw(t, "y")
		if same := digestOf(t, x) == digestOf(t, y); same != equal(x, y) {
			t.Fatalf("%v and %v: same digest is %t", x, y, same)
		}
	})
}
