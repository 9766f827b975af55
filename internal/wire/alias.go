package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// An idAlias carries JSON-RPC ids through the SDK that it would change. The SDK
// reads an integer id as float64; one that this does not keep goes in as a
// string of our own, and comes out as the very bytes the client sent.
//
// The prefix is random for each alias, so that nothing else in a message looks
// like one.
type idAlias struct{ prefix string }

func newIDAlias() idAlias { return idAlias{"id-" + rand.Text() + ":"} }

// of returns the alias of an id, or nil if the SDK keeps the id as it is.
func (a idAlias) of(id json.RawMessage) json.RawMessage {
	if len(id) == 0 || id[0] == '"' || (len(id) <= 15 && string(id) != "-0") || !isInteger(string(id)) {
		return nil // up to 15 characters, a float64 holds any integer
	}
	return json.RawMessage(`"` + a.prefix + string(id) + `"`)
}

// in returns the message for the SDK: body itself, unless its id, or the id that
// a notifications/cancelled is about, needs an alias.
func (a idAlias) in(body []byte, m message, p params) []byte {
	if id := a.of(m.ID); id != nil && !m.Response {
		method, _ := jsontext.AppendQuote(nil, m.Method)
		var b bytes.Buffer
		b.WriteString(`{"jsonrpc":"2.0","id":` + string(id) + `,"method":` + string(method))
		if m.Params != nil {
			b.WriteString(`,"params":`)
			b.Write(m.Params)
		}
		b.WriteByte('}')
		return b.Bytes()
	}
	if m.Method == methodCancelled {
		if id := a.of(p.members["requestId"]); id != nil {
			return []byte(`{"jsonrpc":"2.0","method":"` + methodCancelled + `","params":{"requestId":` + string(id) + `}}`)
		}
	}
	return body
}

const methodCancelled = "notifications/cancelled"

// out puts the ids back into what the SDK wrote.
func (a idAlias) out(b []byte) []byte {
	mark := []byte(`"` + a.prefix)
	if !bytes.Contains(b, mark) {
		return b
	}
	parts := bytes.Split(b, mark)
	out := bytes.Clone(parts[0])
	for _, part := range parts[1:] {
		id, rest, ok := strings.Cut(string(part), `"`)
		if !ok || !isInteger(id) {
			out = append(append(out, mark...), part...)
			continue
		}
		out = append(append(out, id...), rest...)
	}
	return out
}
