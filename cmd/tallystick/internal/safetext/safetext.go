// Package safetext makes text from elsewhere fit to be shown on a terminal.
//
// What a terminal would act on, what makes text read as other text, and what
// cannot be seen is written out as an escape (\x1b, \u202e). Text of several
// lines carries a mark on each row of the screen, so that it cannot pass for
// lines of ours. What is too long is cut in the middle, and says so, with the
// whole's length and digest.
//
// The escapes are for reading, not for decoding: a text that has a backslash
// and letters of its own looks the same.
package safetext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s on one line of printable text. It may be longer than a row of
// the screen, and so begin a new one: print it where it ends with the line, or
// use [Block].
func Line(s string) string {
	var b strings.Builder
	escape(&b, s, escaped)
	return b.String()
}

// mostMarks is how many combining marks one character may carry: as many as
// living languages need, too few to climb over the lines around it.
const mostMarks = 3

// escape writes s to b, and what must not be printed as how says.
func escape(b *strings.Builder, s string, how func(rune) string) {
	marks := mostMarks // none before the first character
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(b, `\x%02x`, s[0])
			marks = mostMarks
		case !visible(r):
			b.WriteString(how(r))
			marks = mostMarks
		case !unicode.Is(unicode.M, r):
			b.WriteString(s[:size])
			marks = 0
		case marks < mostMarks:
			b.WriteString(s[:size])
			marks++
		default:
			b.WriteString(how(r))
		}
		s = s[size:]
	}
}

// visible reports whether a character is seen for what it is. Controls,
// formats, line separators, private use and what Unicode has not assigned are
// not graphic; the rest of the list is graphic in name only.
func visible(r rune) bool {
	switch {
	case r == ' ', r == '\u00a0', r == '\u202f', r == '\u3000': // spaces of languages
		return true
	case r == '\u2800', r == '\U0001d159': // blank braille pattern, null notehead
		return false
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func escaped(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\b':
		return `\b`
	}
	switch {
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
