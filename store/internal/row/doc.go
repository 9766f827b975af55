// Package row is the form in which stores keep calls and audit entries.
//
// A call is a JSON document beside columns that the store searches by, or that
// change without the call: version, lease, arguments and result. Times are
// kept to the nanosecond, in UTC and without their monotonic part. An empty
// slice reads back as nil.
//
// Unknown members of a document are ignored when it is read, so that a rollback
// to an older release can read what the newer one wrote. They are lost when the
// older one writes the call again; a member whose loss would be wrong therefore
// has to come with a migration, which makes the older release refuse the file.
package row

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/tallystick/tallystick/record"
)

// Limits of what is stored. They are far above what the engine's own limits
// let through, and keep a garbled row from taking all memory.
const (
	MaxDoc     = 16 << 20 // of a call without arguments and result, and of an audit entry
	MaxPayload = 64 << 20 // of arguments, and of a result
)

var marshalers = json.JoinMarshalers(
	json.MarshalToFunc(func(e *jsontext.Encoder, s string) error {
		return e.WriteToken(jsontext.String(Text(s)))
	}),
	json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error {
		t = t.UTC()
		if y := t.Year(); y < 0 || y > 9999 {
			return errors.New("a time beyond the year 9999")
		}
		return e.WriteToken(jsontext.String(t.Format(time.RFC3339Nano)))
	}),
	json.MarshalToFunc(func(e *jsontext.Encoder, d time.Duration) error {
		return e.WriteToken(jsontext.Int(int64(d)))
	}),
)

var unmarshalers = json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, s *string) error {
		text, err := readString(d)
		if err != nil {
			return err
		}
		*s, err = Untext(text)
		return err
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, t *time.Time) error {
		text, err := readString(d)
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		*t = at.UTC()
		return err
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *time.Duration) error {
		var n int64
		err := json.UnmarshalDecode(d, &n)
		*v = time.Duration(n)
		return err
	}),
)

func readString(d *jsontext.Decoder) (string, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	if tok.Kind() != '"' {
		return "", errors.New("not a string")
	}
	return tok.String(), nil
}

// plain are the options for what needs none of the functions above, which take
// most of the time: texts that are their own [Text], and times in UTC.
var plain = json.JoinOptions(json.OmitZeroStructFields(true), jsonv1.FormatDurationAsNano(true))

// isPlain reports whether a document has no text that [Text] or [Untext] would
// change.
func isPlain(doc []byte) bool {
	return !bytes.Contains(doc, []byte(string(mark))) && !bytes.Contains(doc, []byte(`\u`))
}

// encode writes v, whose times are in UTC.
func encode(v any) ([]byte, error) {
	doc, err := json.Marshal(v, plain)
	if err != nil || !isPlain(doc) {
		doc, err = json.Marshal(v, json.WithMarshalers(marshalers), json.OmitZeroStructFields(true))
	}
	if err != nil {
		return nil, hush(err)
	}
	if len(doc) > MaxDoc {
		return nil, fmt.Errorf("%d bytes, more than a row holds (limit: %d)", len(doc), MaxDoc)
	}
	return doc, nil
}

// decode reads v, whose times may be in other zones if another program has
// written them.
func decode[T any](b []byte, v *T) error {
	if len(b) > MaxDoc {
		return fmt.Errorf("%d bytes, more than a row holds (limit: %d)", len(b), MaxDoc)
	}
	if isPlain(b) && json.Unmarshal(b, v, plain) == nil {
		return nil
	}
	var zero T
	*v = zero
	return hush(json.Unmarshal(b, v, json.WithUnmarshalers(unmarshalers)))
}

// hush keeps values out of an error: those of the JSON package may quote them.
func hush(err error) error {
	if err == nil {
		return nil
	}
	var bad *json.SemanticError
	if errors.As(err, &bad) {
		return fmt.Errorf("JSON does not fit %v at byte %d", bad.GoType, bad.ByteOffset)
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return fmt.Errorf("invalid JSON at byte %d", syntax.ByteOffset)
	}
	return errors.New("invalid JSON")
}

// EncodeCall writes the call without what columns hold.
func EncodeCall(c *record.Call) ([]byte, error) { return encode(Copy(c)) }

// DecodeCall reverses [EncodeCall]. Any bytes give a call or an error.
func DecodeCall(doc []byte) (*record.Call, error) {
	var c record.Call
	if err := decode(doc, &c); err != nil {
		return nil, err
	}
	utc(&c)
	return &c, nil
}

// EncodeEntry writes an audit entry.
func EncodeEntry(e *record.Entry) ([]byte, error) {
	inUTC := *e
	inUTC.At = e.At.UTC()
	return encode(&inUTC)
}

// DecodeEntry reverses [EncodeEntry].
func DecodeEntry(doc []byte) (record.Entry, error) {
	var e record.Entry
	err := decode(doc, &e)
	e.At = e.At.UTC()
	return e, err
}

// EncodeOwner writes the owner of a mark.
func EncodeOwner(p record.Principal) ([]byte, error) { return encode(p) }

// DecodeOwner reverses [EncodeOwner].
func DecodeOwner(doc []byte) (record.Principal, error) {
	var p record.Principal
	err := decode(doc, &p)
	return p, err
}
