package tour

import (
	"strings"
	"testing"
)

// case S41
func TestServerTextCannotSteerATerminal(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "Refund 40.00 EUR to Kim Bérg?", "Refund 40.00 EUR to Kim Bérg?"},
		{"C0", "a\x1b[2Jb\r\n", `a\u001b[2Jb\u000d\u000a`},
		{"DEL and C1", "a\x7f\u009b2J", `a\u007f\u009b2J`},
		{"bidirectional", "a\u202eb\u2066c\u200f", `a\u202eb\u2066c\u200f`},
		{"separators", "a\u2028b", `a\u2028b`},
		{"invalid UTF-8", "a\xffb", "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := safe(tt.in); got != tt.want {
				t.Errorf("safe(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	var b strings.Builder
	p := &printer{w: &b}
	p.heading(1, "title", "why")
	p.sent("ann", "tools/call")
	p.checked(false, "claim")
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("plain output has escape codes: %q", b.String())
	}
	p.color = true
	p.heading(1, "title", "why")
	if !strings.Contains(b.String(), "\x1b[1m") {
		t.Error("a terminal gets no colours")
	}
}
