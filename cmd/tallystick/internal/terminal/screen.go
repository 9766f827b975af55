// Package terminal asks the person at a terminal what a server wants to know,
// and shows them how a call gets on.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/tallystick/tallystick/client"
)

// A Screen is where lines, the progress of a call and forms go, one at a time.
// On a terminal the progress is redrawn in its place, below the lines; elsewhere
// it is a line whenever something changes. Its methods may be called from any
// goroutine.
type Screen struct {
	out   io.Writer
	width func() int // in columns; nil: not a terminal

	mu    sync.Mutex
	drawn []string // rows of progress that stand on the screen, the cursor at the end of the last
	last  string   // what was printed last, where it is no terminal
	forms int      // open ones: no progress meanwhile
	taken bool     // a page draws on the screen by itself
	later []byte   // lines for when it is free
}

// NewScreen is the screen at out, which is best standard error: results go to
// standard output, and may be piped on.
func NewScreen(out *os.File) *Screen {
	s := &Screen{out: out}
	if term.IsTerminal(out.Fd()) && os.Getenv("TERM") != "dumb" {
		s.width = func() int {
			const unknown = 80
			w, _, err := term.GetSize(out.Fd())
			if err != nil || w <= 0 {
				return unknown
			}
			return w
		}
	}
	return s
}

// Terminal reports whether somebody may be looking, and forms can be shown.
func (s *Screen) Terminal() bool { return s.width != nil }

// columns is the width for text that is broken here; zero where it is not. One
// column less than there are, as terminals differ in what the last one does.
func (s *Screen) columns() int {
	if s.width == nil {
		return 0
	}
	return max(s.width()-1, 20)
}

// Write prints whole lines. The progress is taken away first. Where a form is
// on the screen, they are printed when it has gone.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		s.later = append(s.later, p...)
		return len(p), nil
	}
	s.clear()
	return s.out.Write(p)
}

// Say prints a line of ours. Whatever in it comes from elsewhere is safe text.
func (s *Screen) Say(format string, args ...any) {
	fmt.Fprintf(s, format+"\n", args...)
}

// Show draws the progress of a call. Called again at least every 100 ms or so it
// has a spinner that turns; it writes nothing where nothing has changed.
func (s *Screen) Show(st client.Status, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width == nil {
		if line := plain(st, now); line.what != s.last {
			s.last = line.what
			fmt.Fprintln(s.out, line.what+line.when)
		}
		return
	}
	if s.forms > 0 {
		return
	}
	s.draw(strings.Split(Progress(st, now, s.columns()), "\n"))
}

// Clear takes the progress away: before something else is printed to the same
// terminal, and when the call has ended.
func (s *Screen) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

func (s *Screen) clear() {
	if len(s.drawn) > 0 {
		s.draw(nil)
	}
}

// draw writes rows over those that stand there, in one piece, so that nothing
// is seen to vanish and come back. Each row is erased by itself: where the whole
// screen is, some terminals keep what was on it.
func (s *Screen) draw(rows []string) {
	if len(s.drawn) > 0 && strings.Join(rows, "\n") == strings.Join(s.drawn, "\n") {
		return
	}
	const eraseLine = "\x1b[K" // from the cursor on
	var b strings.Builder
	up := func(n int) {
		if n > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", n)
		}
	}
	if len(s.drawn) > 0 {
		b.WriteString("\r")
		up(len(s.drawn) - 1)
	}
	all := max(len(rows), len(s.drawn))
	for i := range all {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if i < len(rows) {
			b.WriteString(rows[i])
		}
		b.WriteString(eraseLine)
	}
	if all > len(rows) { // the last of those that stay is not the last of those that were
		b.WriteString("\r")
		up(all - max(len(rows), 1))
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\x1b[%dC", max(ansi.StringWidth(rows[len(rows)-1]), 1))
		}
	}
	io.WriteString(s.out, b.String())
	s.drawn = rows
}

// hold keeps the progress away until release is called.
func (s *Screen) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.forms++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forms--
	}
}

// take leaves the screen to a page until free is called.
func (s *Screen) take() (free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = false
		s.out.Write(s.later)
		s.later = nil
	}
}
