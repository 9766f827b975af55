package safetext_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// case S41
func TestServerTextCannotSteerATerminal(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "Refund 40.00 EUR to Kim Bérg? 払い戻し ❤", "Refund 40.00 EUR to Kim Bérg? 払い戻し ❤"},
		{"erase and return", "ok\x1b[2K\rno\b\b", `ok\x1b[2K\rno\b\b`},
		{"C0", "\x00\a\t\n\v\f", `\x00\x07\t\n\x0b\x0c`},
		{"DEL and C1", "a\x7f\u009b2J\u0085", `a\x7f\u009b2J\u0085`},
		{"hyperlink", "\x1b]8;;http://evil\x1b\\x\x1b]8;;\a", `\x1b]8;;http://evil\x1b\x\x1b]8;;\x07`},
		{"bidirectional", "a\u202ab\u202e\u2066c\u2069\u200e\u200f\u061c", `a\u202ab\u202e\u2066c\u2069\u200e\u200f\u061c`},
		{"zero width", "pay\u200bpal\u200c\u200d\u2060\ufeff\u00ad", `pay\u200bpal\u200c\u200d\u2060\ufeff\u00ad`},
		{"invisible letters", "\u3164\uffa0\u115f\u1160\u17b4\u2800\u034f", `\u3164\uffa0\u115f\u1160\u17b4\u2800\u034f`},
		{"variation selectors", "a\ufe0f\U000e0100", `a\ufe0f\U000e0100`},
		{"tags", "a\U000e0041\U000e007f", `a\U000e0041\U000e007f`},
		{"separators", "a\u2028b\u2029", `a\u2028b\u2029`},
		{"spaces", "a\u00a0b\u3000c\u2003d", "a\u00a0b\u3000c\\u2003d"},
		{"invalid UTF-8", "a\xff\xc3(b\xed\xa0\x80", `a\xff\xc3(b\xed\xa0\x80`},
		{"private use", "\ue000\U000f0000", `\ue000\U000f0000`},
		{"unassigned", "\u0378\U0003fffe\uffff", `\u0378\U0003fffe\uffff`},
		{"marks", "e\u0301 n\u0303\u0323\u0301", "e\u0301 n\u0303\u0323\u0301"},
		{"too many marks", "z" + strings.Repeat("\u0301", 5), "z\u0301\u0301\u0301" + `\u0301\u0301`},
		{"a mark on nothing", "\u0301a\x1b\u0301", `\u0301a\x1b\u0301`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := safetext.Line(tt.in); got != tt.want {
				t.Errorf("%+q became %+q, want %+q", tt.in, got, tt.want)
			}
		})
	}
}

// case S41: what is cut says so, with the length and the digest of the whole.
func TestNothingIsCutWithoutSayingSo(t *testing.T) {
	const harmless = "list the files of the folder that I am in, and nothing else"
	in := harmless + strings.Repeat(" ", 12000) + "&& rm -rf /"
	sum := fmt.Sprintf("sha256 %x…", sha256.Sum256([]byte(in)))
	sum = sum[:len("sha256 ")+16] + "…"

	want := harmless + " [… 12,070 characters, " + sum + " …] " + strings.Repeat(" ", 30-len("&& rm -rf /")) + "&& rm -rf /"
	if got := safetext.Short(in, len(harmless)+30); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if short := strings.Repeat("x", 51) + "; rm -rf /"; safetext.Short(short, 61) != short {
		t.Error("what fits is cut")
	}

	rows := strings.Split(safetext.Frame{Mark: "│ ", Limit: 90}.Block(in), "\n")
	if len(rows) != 3 || rows[1] != "… left out here; in all 12,070 characters, "+sum {
		t.Errorf("a block: %q", rows)
	}
	arguments, _ := json.Marshal(map[string]string{"script": in})
	shown := safetext.Frame{Mark: "│ ", Limit: 200}.JSON(arguments)
	if of := fmt.Sprintf("%x", sha256.Sum256(arguments))[:16]; !strings.Contains(shown, "characters, sha256 "+of+"…") {
		t.Errorf("the digest is not that of the arguments as they came: %q", shown)
	}
}

// case S41: a script of 20 kB is no reason to cut.
func TestArgumentsAreShownAsTheyWereSent(t *testing.T) {
	const raw = `{"n":9007199254740993,"x":1.10e400,"a":"\u001b[2K\r\b é ` + "\u202e\u009b\U000e0041" + `","o":{},"l":[1,2]}`
	const want = `│ {
│   "n": 9007199254740993,
│   "x": 1.10e400,
│   "a": "\u001b[2K\r\b é \u202e\u009b\udb40\udc41",
│   "o": {},
│   "l": [
│     1,
│     2
│   ]
│ }`
	frame := safetext.Frame{Mark: "│ ", Width: 80, Limit: 1 << 16}
	if got := frame.JSON([]byte(raw)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	script := strings.Repeat("echo tally; ", 1700)
	arguments, _ := json.Marshal(script)
	if got := strings.ReplaceAll(frame.JSON(arguments), "\n│ ", ""); got != "│ "+string(arguments) {
		t.Errorf("a long script is not shown in full: %d characters", len(got))
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if got := frame.JSON([]byte(deep)); len(got) > 4*len(deep) {
		t.Errorf("deep nesting of %d bytes takes %d", len(deep), len(got))
	}
	if got := frame.JSON([]byte("{\x1b")); got != `│ {\x1b` {
		t.Errorf("no JSON: %q", got)
	}
}

// A server that knows how wide the screen is fills the row with spaces, so that
// what follows stands where our own lines begin.
func TestEachRowOfABlockIsMarked(t *testing.T) {
	lies := "Nothing to see\nServer:  trusted" + strings.Repeat(" ", 61) + "Tool:  harmless\r\n\n" + strings.Repeat("漢", 100) + "\rServer: x"
	for _, width := range []int{0, 1, 3, 10, 79, 80} {
		for row := range strings.SplitSeq(safetext.Frame{Mark: "│ ", Width: width}.Block(lies), "\n") {
			if !strings.HasPrefix(row, "│ ") {
				t.Errorf("width %d: a row without the mark: %q", width, row)
			}
			if w := ansi.StringWidth(row); width > 10 && w > width {
				t.Errorf("width %d: a row of %d columns", width, w)
			}
		}
	}
	flood := "a" + strings.Repeat("\n", 100_000) + "b"
	if rows := strings.Count(safetext.Frame{Mark: "│ ", Limit: 4000}.Block(flood), "\n"); rows > 250 {
		t.Errorf("empty lines push %d rows before what is above them", rows)
	}
}

func FuzzNothingHostileIsPrinted(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\u0301\U000e0041", 5)
	f.Add(`{"a":"`+"\u009b"+`"}`, 0)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		frame := safetext.Frame{Mark: "│ ", Width: 20, Limit: limit}
		for _, shown := range []string{safetext.Line(s), safetext.Short(s, max(limit, 0)), frame.Block(s), frame.JSON([]byte(s))} {
			if !utf8.ValidString(shown) {
				t.Fatalf("%q is shown as %q", s, shown)
			}
			for _, r := range shown {
				if r != '\n' && (unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || !unicode.IsGraphic(r)) {
					t.Fatalf("%q is shown with %U", s, r)
				}
			}
		}
		if strings.Contains(safetext.Line(s), "\n") {
			t.Fatal("a line of two lines")
		}
	})
}
