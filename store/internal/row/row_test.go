package row_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/internal/row"
)

func TestTextKeepsEveryStringApart(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "ä": "ä", "a\x00b": "a\uFFFD00b", "\xff": "\uFFFDff", "\uFFFD": "\uFFFD\uFFFD",
		"\uFFFD00": "\uFFFD\uFFFD00", "\xed\xa0\x80": "\uFFFDed\uFFFDa0\uFFFD80",
	} {
		if got := row.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	for _, bad := range []string{"\uFFFD", "\uFFFD0", "\uFFFDxx", "\uFFFDFF", "\xff", "a\xffb", "\uFFFD01", "\uFFFDc3\uFFFDa9", "a\x00"} {
		if got, err := row.Untext(bad); err == nil {
			t.Errorf("Untext(%q) = %q", bad, got)
		}
	}
}

func checkText(t *testing.T, s string) {
	t.Helper()
	text := row.Text(s)
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		t.Fatalf("Text(%q) = %q", s, text)
	}
	if back, err := row.Untext(text); err != nil || back != s {
		t.Fatalf("Untext(%q) = %q, %v, want %q", text, back, err, s)
	}
	// What is read from a column is a text's one form.
	if back, err := row.Untext(s); err == nil && row.Text(back) != s {
		t.Fatalf("%q is read as %q, whose form is %q", s, back, row.Text(back))
	}
}

func TestTimesInColumns(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(0, 1).UTC(), time.Unix(0, -1).UTC(), time.Date(2026, 7, 28, 1, 2, 3, 4, time.UTC)} {
		if got := row.Time(row.Nanos(at)); got != at {
			t.Errorf("%v became %v", at, got)
		}
	}
	if n := row.Nanos(time.Unix(0, 0)); n == 0 {
		t.Error("the start of 1970 became no time")
	}
	if n := row.Nanos(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); n != math.MaxInt64 {
		t.Errorf("a far year became %d", n)
	}
	if n := row.Nanos(time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)); n != math.MinInt64 {
		t.Errorf("an early year became %d", n)
	}
}

func TestADocumentOfANewerReleaseIsRead(t *testing.T) {
	c, err := row.DecodeCall([]byte(`{"id":"c","invented":{"later":[1]},"state":"waiting"}`))
	if err != nil || c.ID != "c" || c.State != record.Waiting {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestErrorsTellNothingOfWhatIsStored(t *testing.T) {
	for _, doc := range []string{`{"id":"secret`, `{"id":["secret"]}`, `{"id":"secret","id":"secret"}`, `{"createdAt":"secret"}`, `{"retention":"secret"}`, `{"questions":[{"request":"secret!"}]}`, "{\"id\":\"secret\xff\"}", "secret"} {
		_, err := row.DecodeCall([]byte(doc))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if _, err := row.DecodeCall(make([]byte, row.MaxDoc+1)); err == nil {
		t.Error("a document over the limit was read")
	}
	if _, err := row.EncodeCall(&record.Call{CreatedAt: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a time that cannot be read back was written")
	}
}

// FuzzDocuments: any bytes give a call, an audit entry, an owner and a text, or
// an error; what is one is written so that it reads back the same.
func FuzzDocuments(f *testing.F) {
	doc, err := row.EncodeCall(&record.Call{ID: "c\x00\xff", Effects: []record.Effect{{Name: "e", Evidence: []record.Evidence{{Text: "t"}}}}, Questions: []record.Question{{Key: "k", Answers: []record.Answer{{Value: []byte("{}")}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	if doc, err = row.EncodeEntry(&record.Entry{At: time.Unix(1, 2), Call: "c\x00", Event: "opened", Reason: "r", Key: "k\xff"}); err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	if doc, err = row.EncodeOwner(record.Principal{Issuer: "i", Tenant: "\uFFFD", Subject: "s\x00", Client: "c"}); err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	for _, seed := range []string{
		`{"progress":{"done":1e308},"error":null,"rounds":[{"n":-1}],"createdAt":"9999-12-31T23:59:59-23:59"}`, "", "null", "[]", "{}x", "\xef\xbb\xbf{}", "a\x00\xff\uFFFD", "\uFFFD00", "\uFFFDzz",
		`{"id":"a","id":"b"}`, `{"id":"a","\u0069d":"b"}`, `{"ID":"a","Id":"b"}`, `{"id":"\ud800"}`, `{"id":"a\u0000"}`, "{\"id\":\"\xc0\x80\"}", `{"round":1e24}`, `{"round":9007199254740993}`, `{"epoch":-0}`, `{"epoch":1e400}`, `{"retention":1000000000000000000000000}`,
		`{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, strings.Repeat("[", 20_000), `{"` + strings.Repeat("k", 1000) + `":1}`, `{"createdAt":"0000-01-01T00:00:00Z"}`, `{"createdAt":"2026-02-30T00:00:00Z"}`, `{"questions":[{"request":"AA=="},{"request":"AA"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		checkText(t, string(doc))
		checkDocument(t, doc, row.DecodeCall, row.EncodeCall)
		checkDocument(t, doc, func(b []byte) (*record.Entry, error) { e, err := row.DecodeEntry(b); return &e, err }, row.EncodeEntry)
		checkDocument(t, doc, row.DecodeOwner, row.EncodeOwner)
	})
}

func checkDocument[T any](t *testing.T, doc []byte, decode func([]byte) (T, error), encode func(T) ([]byte, error)) {
	t.Helper()
	before := bytes.Clone(doc)
	v, err := decode(doc)
	if !bytes.Equal(doc, before) {
		t.Fatal("the document was changed")
	}
	if err != nil {
		if text := err.Error(); len(text) > 200 {
			t.Fatalf("an error that quotes: %s", text)
		}
		return
	}
	once, err := encode(v)
	if err != nil {
		return // a year beyond 9999, by way of a zone
	}
	again, err := decode(once)
	if err != nil {
		t.Fatalf("%s reads as %+v but not again: %v", doc, v, err)
	}
	if twice, err := encode(again); err != nil || string(once) != string(twice) {
		t.Fatalf("%s became %s (%v)", once, twice, err)
	}
}
