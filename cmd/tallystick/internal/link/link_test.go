package link_test

import (
	"strings"
	"testing"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/link"
)

// case S61
func TestAnAddressIsJudgedBeforeItIsOpened(t *testing.T) {
	tests := []struct {
		name, address     string
		host, unicode     string
		warnings, refused string // substrings, separated by |
		opens             string
	}{
		{"plain", "https://pay.example/a?b=c#d", "pay.example", "", "", "", "https://pay.example/a?b=c#d"},
		{"a port", "HTTPS://Pay.Example:8443/", "pay.example:8443", "", "", "", "https://pay.example:8443/"},
		{"not https", "http://pay.example/", "pay.example", "", "not https", "", "http://pay.example/"},
		{"punycode", "https://xn--pypal-4ve.example/", "xn--pypal-4ve.example", "pаypal.example", "beyond ASCII|\"pаypal\" mixes letters of Latin and Cyrillic", "", "https://xn--pypal-4ve.example/"},
		{"another script", "https://пример.example/", "xn--e1afmkfd.example", "пример.example", "beyond ASCII", "", "https://xn--e1afmkfd.example/"},
		{"japanese", "https://はじめよう日本.example/", "xn--p8j9a0d9c9a5249do4b.example", "はじめよう日本.example", "beyond ASCII", "", ""},
		{"wide letters", "https://ｐａｙ．example/", "pay.example", "", "", "", "https://pay.example/"},
		{"invisible within the host", "https://pay\u200bpal.example/", "paypal.example", "", "", "", "https://paypal.example/"},
		{"user", "https://pay.example@evil.example/", "evil.example", "", `"pay.example" before the @ is a user name`, "", "https://pay.example@evil.example/"},
		{"IPv4", "https://203.0.113.7/", "203.0.113.7", "", "bare network address", "", ""},
		{"IPv4 as a number", "http://3405803783/", "3405803783", "", "not https|bare network address", "", ""},
		{"IPv4 in hexadecimal", "https://0xcb.0.0x7107/", "0xcb.0.0x7107", "", "bare network address", "", ""},
		{"IPv6", "https://[2001:db8::1]:8080/", "[2001:db8::1]:8080", "", "bare network address", "", "https://[2001:db8::1]:8080/"},
		{"hidden in the path", "https://pay.example/\u202egpj.exe", "pay.example", "", "after the host", "", "https://pay.example/%E2%80%AEgpj.exe"},
		{"script", "javascript:alert(1)//https://pay.example", "", "", "", `"javascript:" are not opened`, ""},
		{"script in capitals", "JaVaScRiPt://pay.example/%0aalert(1)", "", "", "", `"javascript:" are not opened`, ""},
		{"file", "file:///etc/passwd", "", "", "", `"file:" are not opened`, ""},
		{"a program's own", "ms-msdt:/id", "", "", "", `"ms-msdt:" are not opened`, ""},
		{"no scheme", "pay.example/x", "", "", "", `not opened`, ""},
		{"an option", "--help", "", "", "", `not opened`, ""},
		{"no host", "https:///x", "", "", "", "names no host", ""},
		{"opaque", "https:pay.example", "", "", "", "names no host", ""},
		{"a backslash", `https://pay.example\@evil.example/`, "", "", "", "no address", ""},
		{"a backslash in the path", `https://evil.example/\pay.example`, "", "", "", "no address", ""},
		{"a space before", " https://pay.example", "", "", "", "no address", ""},
		{"a control", "https://pay.example/\x1b[2J", "", "", "", "no address", ""},
		{"a line", "https://pay.example/\nx", "", "", "", "no address", ""},
		{"a host that is none", "https://xn--a.example/", "", "", "", "no valid name", ""},
		{"no UTF-8", "https://pay\xae.example/", "", "", "", "no address", ""},
		{"empty", "", "", "", "", "not opened", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := link.Judge(tt.address)
			if l.Host != tt.host || l.Unicode != tt.unicode {
				t.Errorf("host %q, %q", l.Host, l.Unicode)
			}
			if tt.refused == "" != (l.Refused == "") || !strings.Contains(l.Refused, tt.refused) {
				t.Errorf("refused: %q, want %q", l.Refused, tt.refused)
			}
			if l.Refused != "" && l.Opens != "" || tt.opens != "" && l.Opens != tt.opens {
				t.Errorf("opens %q, want %q", l.Opens, tt.opens)
			}
			wanted := strings.FieldsFunc(tt.warnings, func(r rune) bool { return r == '|' })
			if len(wanted) != len(l.Warnings) {
				t.Fatalf("warnings: %q", l.Warnings)
			}
			for i, w := range wanted {
				if !strings.Contains(l.Warnings[i], w) {
					t.Errorf("warning %q, want %q in it", l.Warnings[i], w)
				}
			}
		})
	}
}

func FuzzWhatIsOpenedIsPlain(f *testing.F) {
	f.Add("https://pay.example@evil.example/\u202e")
	f.Fuzz(func(t *testing.T, address string) {
		l := link.Judge(address)
		if l.Opens == "" {
			return
		}
		again := link.Judge(l.Opens)
		if !strings.HasPrefix(l.Opens, "http") || again.Host != l.Host || again.Refused != "" {
			t.Fatalf("%q opens %q, which is judged as %+v, not %+v", address, l.Opens, again, l)
		}
		for _, r := range l.Opens {
			if r <= ' ' || r > '~' {
				t.Fatalf("%q opens %q", address, l.Opens)
			}
		}
	})
}
