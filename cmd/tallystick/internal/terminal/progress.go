package terminal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// turns are the pictures of the spinner, each for 100 ms.
var turns = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Progress is what the screen shows of a call, in rows of at most width columns
// (at least 20): how far it is, for how long, how much time is left, its id, and
// the server's latest word.
func Progress(st client.Status, now time.Time, width int) string {
	width = max(width, 20)
	head := bar(st)
	if head == "" {
		head = string(turns[max(now.UnixMilli(), 0)/100%int64(len(turns))]) + " " + state(st)
		if !math.IsNaN(st.Done) && st.Done > 0 {
			head += ", " + amount(st.Done) + " done"
		}
	}
	parts := append([]string{head}, times(st, now)...)
	parts = append(parts, safetext.Short(st.ID, 64))
	frame := safetext.Frame{Width: width}
	rows := frame.Block(strings.Join(parts, " · "))
	if st.Message != "" {
		frame.Mark = mark
		rows += "\n" + frame.Block(safetext.Fit(st.Message, 2*(width-4)))
	}
	return rows
}

// mark begins each row of what a server says.
const mark = "  │ "

// state says where a call stands.
func state(st client.Status) string {
	switch st.State {
	case client.Working:
		return "working"
	case client.InputRequired:
		switch n := len(st.Open); n {
		case 0:
			return "waiting for an answer"
		case 1:
			return "waiting for an answer to 1 question"
		default:
			return fmt.Sprintf("waiting for answers to %d questions", n)
		}
	}
	return safetext.Short(string(st.State), 40)
}

// share is how much of a call is done, from 0 to 1, if that is known.
func share(st client.Status) (float64, bool) {
	if !(st.Total > 0) || math.IsInf(st.Total, 0) || math.IsNaN(st.Done) {
		return 0, false
	}
	return min(max(st.Done/st.Total, 0), 1), true
}

func bar(st client.Status) string {
	const cells = 20
	done, ok := share(st)
	if !ok {
		return ""
	}
	full := int(done * cells)
	s := fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", cells-full), of(st, done))
	if st.State != client.Working {
		s += ", " + state(st)
	}
	return s
}

func of(st client.Status, done float64) string {
	return fmt.Sprintf("%d%%, %s of %s", int(done*100), amount(st.Done), amount(st.Total))
}

// amount writes what a server counts in whatever it counts in.
func amount(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

func times(st client.Status, now time.Time) (parts []string) {
	if !st.Created.IsZero() {
		parts = append(parts, clock(now.Sub(st.Created)))
	}
	switch {
	case st.Expires.IsZero() || st.State.Final():
	case now.Before(st.Expires):
		parts = append(parts, clock(st.Expires.Sub(now))+" left")
	default:
		parts = append(parts, "its time is over")
	}
	return parts
}

// clock writes a duration as 1:02:03, in whole seconds.
func clock(d time.Duration) string {
	s := max(int64(d/time.Second), 0)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// A plainLine is the progress where there is no terminal: another line is due
// when what it says changes, not when time passes.
type plainLine struct{ what, when string }

func plain(st client.Status, now time.Time) plainLine {
	what := safetext.Short(st.ID, 64) + " " + state(st)
	if done, ok := share(st); ok {
		what += ", " + of(st, done)
	} else if st.Done > 0 {
		what += ", " + amount(st.Done) + " done"
	}
	if st.Message != "" {
		what += ": " + safetext.Short(st.Message, 2000)
	}
	when := strings.Join(times(st, now), ", ")
	if when != "" {
		when = " (" + when + ")"
	}
	return plainLine{what, when}
}
