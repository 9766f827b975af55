package safetext

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// lineCost is what the end of a line counts for where characters are counted:
// as much as a line in which something stands, so that a text cannot push what
// is above it off the screen by saying nothing.
const lineCost = 20

// Short is [Line] for at most limit characters of s. A longer one keeps its
// beginning and its end, and the marker between them says how long the whole
// is, and its digest.
func Short(s string, limit int) string {
	head, tail, whole := cut(s, limit, 1)
	if whole {
		return Line(s)
	}
	return Line(head) + " [… " + marker(s) + " …] " + Line(tail)
}

// A Frame says how [Frame.Block] and [Frame.JSON] lay text out.
type Frame struct {
	Mark  string // begins each row
	Width int    // of the screen, in columns; rows are broken to fit. Zero: lines are as long as they are
	Limit int    // characters of text shown; the end of a line counts for 20. Zero: no limit
}

// Block returns s as rows that all begin with the mark, without a newline after
// the last. Where s is over the limit, its middle is left out, and a row without
// the mark says so.
func (f Frame) Block(s string) string {
	return f.block(s, s, escaped)
}

// JSON is [Frame.Block] for a JSON value, indented. Numbers and strings are
// shown with all their digits and escapes, as they were sent. What is no JSON,
// or nested so deep that indenting would hide it, is shown as it is.
func (f Frame) JSON(raw []byte) string {
	const deepest = 40
	pretty := string(raw)
	if json.Valid(raw) && depth(raw) <= deepest {
		var b bytes.Buffer
		if json.Indent(&b, bytes.TrimSpace(raw), "", "  ") == nil {
			pretty = b.String()
		}
	}
	return f.block(pretty, string(raw), escapedJSON)
}

// block lays out text, which stands for whole: the digest is of that.
func (f Frame) block(text, whole string, how func(rune) string) string {
	if f.Limit <= 0 {
		return f.rows(text, how)
	}
	head, tail, all := cut(text, f.Limit, lineCost)
	if all {
		return f.rows(text, how)
	}
	return f.rows(head, how) + "\n… left out here; in all " + marker(whole) + "\n" + f.rows(tail, how)
}

func (f Frame) rows(text string, how func(rune) string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	width := f.Width - ansi.StringWidth(f.Mark)
	var rows []string
	for line := range strings.SplitSeq(text, "\n") {
		var b strings.Builder
		escape(&b, line, how)
		line = b.String()
		if f.Width > 0 {
			line = ansi.Hardwrap(line, max(width, 1), true)
		}
		for row := range strings.SplitSeq(line, "\n") {
			rows = append(rows, f.Mark+row)
		}
	}
	return strings.Join(rows, "\n")
}

// cut returns the beginning and the end of a text that counts for more than
// limit: two thirds and one third of it.
func cut(s string, limit, perLine int) (head, tail string, whole bool) {
	cost := func(r rune) int {
		if r == '\n' {
			return perLine
		}
		return 1
	}
	total := 0
	for _, r := range s {
		total += cost(r)
	}
	if total <= limit {
		return s, "", true
	}
	front, back := limit-limit/3, limit/3
	i, j := 0, len(s)
	for i < j {
		r, size := utf8.DecodeRuneInString(s[i:])
		if front -= cost(r); front < 0 {
			break
		}
		i += size
	}
	for j > i {
		r, size := utf8.DecodeLastRuneInString(s[:j])
		if back -= cost(r); back < 0 {
			break
		}
		j -= size
	}
	return s[:i], s[j:], false
}

func marker(s string) string {
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%s characters, sha256 %x…", thousands(utf8.RuneCountInString(s)), sum[:8])
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// depth is how deep arrays and objects of valid JSON are nested.
func depth(raw []byte) (deepest int) {
	inString, at := false, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			at++
			deepest = max(deepest, at)
		case c == '}', c == ']':
			at--
		}
	}
	return deepest
}

// escapedJSON writes a character of a JSON string as JSON can, so that what is
// shown is still the value.
func escapedJSON(r rune) string {
	if r < ' ' { // not within a string: what is shown is no JSON anyway
		return escaped(r)
	}
	if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
		return fmt.Sprintf(`\u%04x\u%04x`, a, b)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Fit is [Line] in at most so many columns. What does not fit is cut at its
// end, with the marker of [Short]; that is shown whatever the columns are.
func Fit(s string, columns int) string {
	line := Line(s)
	if ansi.StringWidth(line) <= columns {
		return line
	}
	end := " … " + marker(s)
	return ansi.Truncate(line, max(columns-ansi.StringWidth(end), 0), "") + end
}
