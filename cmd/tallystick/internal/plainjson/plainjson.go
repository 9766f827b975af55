// Package plainjson writes JSON in which nothing drives a terminal, or is not
// seen: such characters are written as \u escapes, which are the same JSON.
package plainjson

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Escape does so with JSON text that has no line breaks, or with one value.
func Escape(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			b.WriteString(`\ufffd`)
		case r < 0x80 && unicode.IsPrint(r), r >= 0x80 && unicode.IsGraphic(r) && !unicode.In(r, unicode.Zs, unicode.Cf):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Line marshals a value to one line.
func Line(value any) (string, error) {
	b, err := json.Marshal(value, json.Deterministic(true), jsontext.EscapeForHTML(false), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err != nil {
		return "", err
	}
	return Escape(string(b)), nil
}
