package tour

import (
	"bufio"
	"context"
	"io"
	"strings"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// A reader is who answers in the terminal.
type reader struct {
	p     *printer
	yes   bool // answer yes instead
	pause bool // wait for Enter between steps
	lines chan string
}

// newReader reads lines in the background: a read of a terminal cannot be
// interrupted, and must not keep the tour from ending.
func newReader(p *printer, in io.Reader, yes, pause bool) *reader {
	r := &reader{p: p, yes: yes, pause: pause && !yes, lines: make(chan string)}
	if !yes {
		go func() {
			defer close(r.lines)
			for s := bufio.NewScanner(in); s.Scan(); {
				r.lines <- s.Text()
			}
		}()
	}
	return r
}

// Actions of an answer to a question, as the protocol names them.
const (
	accept  = "accept"
	decline = "decline"
	dismiss = "cancel"
)

// answer asks the reader. Only a yes is a yes; the end of the input is a
// question closed without an answer.
func (r *reader) answer(ctx context.Context, question string) string {
	if r.yes {
		r.p.say("%s yes (--yes)", r.p.style(bold, "? "+safetext.Line(question)))
		return accept
	}
	r.p.say("%s [y/n]", r.p.style(bold, "? "+safetext.Line(question)))
	for {
		line, ok := r.next(ctx)
		if !ok {
			r.p.say("(no answer)")
			return dismiss
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return accept
		case "n", "no":
			return decline
		}
		r.p.say("y or n?")
	}
}

// next is the next line, or false when there is none to come.
func (r *reader) next(ctx context.Context) (string, bool) {
	select {
	case line, ok := <-r.lines:
		return line, ok
	case <-ctx.Done():
		return "", false
	}
}

// turn waits until the reader wants to see the next step.
func (r *reader) turn(ctx context.Context) {
	if r.pause {
		r.p.line("\n   %s", r.p.style(dim, "(Enter for the next step)"))
		r.next(ctx)
	}
}
