package plainjson

import (
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestWhatATerminalWouldActOnIsEscapedAndTheSame(t *testing.T) {
	text := "\x1b[2K\r\b \u009b2K \u202e\u200b\u2028\U000e0001 é 漢 \x7f\u00a0"
	got, err := Line(map[string]any{"a": text, "raw": jsontext.Value(`{"n":9007199254740993,"n":1e400}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"a":"\u001b[2K\r\b \u009b2K \u202e\u200b\u2028\udb40\udc01 é 漢 \u007f\u00a0","raw":{"n":9007199254740993,"n":1e400}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back struct{ A string }
	if err := json.Unmarshal([]byte(got), &back); err != nil || back.A != text {
		t.Errorf("%q, %v", back.A, err)
	}
	if got, err = Line("a\xffb"); err != nil || got != `"a`+"\uFFFD"+`b"` {
		t.Errorf("%q, %v", got, err)
	}
}
