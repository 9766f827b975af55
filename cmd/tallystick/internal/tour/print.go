package tour

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// A printer writes what the reader sees. All that comes from a server goes
// through safetext. Its methods may be called by any goroutine.
type printer struct {
	mu    sync.Mutex
	w     io.Writer
	color bool
}

// Styles, as ANSI escape codes.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (p *printer) style(code, s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// heading begins a step: what it is, and why it matters.
func (p *printer) heading(n int, title, why string) {
	p.line("\n%s", p.style(bold, fmt.Sprintf("%d. %s", n, title)))
	for l := range strings.Lines(why) {
		p.line("   %s", strings.TrimRight(l, "\n"))
	}
}

// say is the tour's own word.
func (p *printer) say(format string, args ...any) {
	p.line("   %s", fmt.Sprintf(format, args...))
}

func (p *printer) sent(who, what string) {
	p.line("   %s %s", p.style(dim, fmt.Sprintf("%-3s →", who)), p.style(cyan, what))
}

func (p *printer) received(what string) {
	p.line("   %s %s", p.style(dim, "    ←"), what)
}

func (p *printer) checked(ok bool, claim string) {
	if ok {
		p.line("   %s %s", p.style(green, "✓"), claim)
	} else {
		p.line("   %s %s", p.style(red, "✗ NOT SO:"), claim)
	}
}

// short is enough of an id or a state to know it again by: n runes, then an
// ellipsis.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
