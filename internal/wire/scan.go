package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// A strictReader is a decoder that is used again: its memory, most of it for
// finding names that come twice, is much of what reading takes.
type strictReader struct {
	dec   jsontext.Decoder
	input bytes.Buffer
}

var strictReaders = sync.Pool{New: func() any { return new(strictReader) }}

// wellFormed reports whether b is one JSON value as strict readers want it, to
// its innermost parts: the grammar, UTF-8, no name twice. What is can be taken
// apart by [split]; what is not is read again by whoever says what is wrong.
func wellFormed(b []byte) bool {
	r := strictReaders.Get().(*strictReader)
	defer func() {
		r.input = bytes.Buffer{}
		r.dec.Reset(&r.input) // lets go of b
		strictReaders.Put(r)
	}()
	r.input = *bytes.NewBuffer(b)
	r.dec.Reset(&r.input)
	if _, err := r.dec.ReadValue(); err != nil {
		return false
	}
	_, err := r.dec.ReadToken()
	return err == io.EOF
}

// split calls f with each member of an object that is [wellFormed], or a part
// of such a value: its name, whether that is one of known, and where its value
// begins and ends in object.
func split(object []byte, known []string, f func(name string, isKnown bool, start, end int)) {
	at := skipSpace(object, skipSpace(object, 0)+1) // behind the brace
	for object[at] == '"' {
		end := skipString(object, at)
		name, isKnown := nameOf(object[at:end], known)
		start := skipSpace(object, skipSpace(object, end)+1) // behind the colon
		end = skipValue(object, start)
		f(name, isKnown, start, end)
		if at = skipSpace(object, end); object[at] == ',' {
			at = skipSpace(object, at+1)
		}
	}
}

// nameOf decodes a name without an allocation if it is a known one.
func nameOf(quoted json.RawMessage, known []string) (name string, isKnown bool) {
	for _, k := range known {
		if string(quoted[1:len(quoted)-1]) == k {
			return k, true
		}
	}
	name, _ = unquote(quoted)
	return name, slices.Contains(known, name)
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}

// skipString returns where the string that begins at at ends.
func skipString(b []byte, at int) int {
	for at++; b[at] != '"'; at++ {
		if b[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func skipValue(b []byte, at int) int {
	switch b[at] {
	case '"':
		return skipString(b, at)
	case '{', '[':
		depth := 0
		for {
			switch b[at] {
			case '"':
				at = skipString(b, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
			at++
		}
	}
	for at < len(b) && b[at] != ',' && b[at] != '}' && b[at] != ']' && b[at] > ' ' {
		at++
	}
	return at
}
