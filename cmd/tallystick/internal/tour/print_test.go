package tour

import (
	"strings"
	"testing"
)

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
