package terminal

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/link"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// Limits of what is shown in one piece, in characters; more is cut visibly, with
// its length and digest.
const (
	mostArguments = 1 << 16
	mostMessage   = 8000
	mostAddress   = 4000
)

const moment = "2006-01-02 15:04:05 MST"

// CardOptions say what else a card has, and how it is laid out.
type CardOptions struct {
	Where string    // the server's URL or command; empty: not known
	Now   time.Time // to say how much time is left; zero: left out
	Width int       // of the screen, in columns; zero: rows are as long as they are
}

// Card is all that a person needs to judge a question, of whatever kind: who
// asks, in which call with which arguments, what, and until when. It can be
// printed as it is. What the server says stands in rows with a bar before them,
// and nothing of ours does.
func Card(q client.Question, o CardOptions) string {
	c := card{width: o.Width}
	c.rows = append(c.rows, strings.Repeat("─", min(cmp.Or(o.Width, 72), 72)))
	c.say("Server", strings.TrimSpace(q.Server+" "+host(o.Where)))
	c.say(called(q.Method), cmp.Or(q.Name, "not known: one of several calls that are under way"))
	if len(q.Arguments) > 0 {
		c.block("Arguments", safetext.Frame.JSON, q.Arguments, mostArguments)
	}
	c.say("Question", q.Key)
	if q.Message != "" {
		c.text("It says", q.Message, mostMessage)
	}
	switch q.Kind {
	case client.URL:
		c.link(link.Judge(q.URL), q.URL)
	case client.Form:
	default:
		c.block("Asks by "+safetext.Short(string(q.Kind), 40), safetext.Frame.JSON, q.Request, mostArguments)
	}
	if !q.Expires.IsZero() {
		until := q.Expires.Local().Format(moment)
		if !o.Now.IsZero() {
			until = q.Expires.In(o.Now.Location()).Format(moment) + ", " + clock(q.Expires.Sub(o.Now)) + " left"
		}
		c.say("Open until", until)
	}
	if q.Again {
		c.note("It may have been shown before: an earlier command ended before an answer was kept.")
	}
	if q.Problem != "" {
		c.text("The last answer was not taken", q.Problem, mostMessage)
	}
	return strings.Join(c.rows, "\n") + "\n"
}

// A card is rows of a card.
type card struct {
	width int
	rows  []string
}

// labels is how many columns a label takes, with its colon and a space.
const labels = 12

// say is a short text after its label, or below it if the row is too short.
func (c *card) say(label, text string) {
	if c.width > 0 && ansi.StringWidth(safetext.Line(text)) > c.width-labels {
		c.text(label, text, mostMessage)
		return
	}
	c.rows = append(c.rows, fmt.Sprintf("%-*s%s", labels, label+":", safetext.Line(text)))
}

// note is a row of ours; what in it is not, is safe text.
func (c *card) note(text string) {
	if c.width > 0 {
		text = ansi.Wrap(text, c.width, "")
	}
	c.rows = append(c.rows, text)
}

// text is a text of several lines under its label.
func (c *card) text(label, text string, limit int) {
	c.block(label, func(f safetext.Frame, raw []byte) string { return f.Block(string(raw)) }, []byte(text), limit)
}

func (c *card) block(label string, as func(safetext.Frame, []byte) string, raw []byte, limit int) {
	c.rows = append(c.rows, label+":", as(safetext.Frame{Mark: mark, Width: c.width, Limit: limit}, raw))
}

func (c *card) link(l link.Link, address string) {
	c.text("It wants an address opened", address, mostAddress)
	if l.Refused != "" {
		c.note("This address is not opened: " + l.Refused + ".")
		return
	}
	c.say("Host", l.Host)
	if l.Unicode != "" {
		c.say("Written", l.Unicode)
	}
	for _, w := range l.Warnings {
		c.note("Warning: " + w + ".")
	}
}

func called(method string) string {
	switch method {
	case "prompts/get":
		return "Prompt"
	case "resources/read":
		return "Resource"
	}
	return "Tool"
}

// host is what of a server's URL says where it is; a command is left as it is.
func host(where string) string {
	if u, err := url.Parse(where); err == nil && u.Host != "" {
		where = u.Scheme + "://" + u.Host
	}
	if where == "" {
		return ""
	}
	return "(" + where + ")"
}
