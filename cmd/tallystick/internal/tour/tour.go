// Package tour walks a newcomer through a refund desk that runs as a process
// of its own, and checks what it shows.
package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// Options of a tour.
type Options struct {
	Data    string   // folder of the desk; empty: a temporary one, removed at the end
	Command []string // starts the desk, with argv[0]; --data and --addr are added
	Yes     bool     // answer yes for the reader
	In      io.Reader
	Out     io.Writer
	Color   bool
	Pause   bool // wait for Enter between steps
}

// ErrNotSo: something that the tour promises was not so; it is marked in what
// was printed.
var ErrNotSo = errors.New("not all is as the demo says; see the lines marked NOT SO")

// A tour is one walk.
type tour struct {
	*printer
	reader *reader
	server *process
	shop   *desk.Shop
	people desk.People
	orders []desk.Order // of this walk
	clients
	from   int64 // the audit trail's end when the walk began
	step   int
	failed bool
	said   bool  // the reader said yes to the first question
	first  reply // what came of that call
}

// clients of the people in the walk.
type clients struct{ ann, bob, fay, oz *caller }

// Run walks. It ends the server process whatever happens.
func Run(ctx context.Context, o Options) (err error) {
	began := time.Now()
	data, err := folder(o.Data)
	if err != nil {
		return err
	}
	p := &printer{w: o.Out, color: o.Color}
	t := &tour{printer: p, reader: newReader(p, o.In, o.Yes, o.Pause)}
	t.server = newProcess(append(o.Command, "--data", data), data)
	defer func() {
		t.server.stop()
		switch {
		case err != nil && ctx.Err() == nil:
			p.say("The end of the server's log (%s):\n%s", filepath.Join(data, LogFile), safetext.Frame{Mark: "   │ "}.Block(t.server.lastWords()))
		case o.Data == "":
			err = errors.Join(err, os.RemoveAll(data))
		}
	}()
	if err := t.open(ctx, data); err != nil {
		return err
	}
	defer t.close()
	for _, step := range []func(context.Context) error{
		t.approval, t.sameRetry, t.calledAgain, t.wrongStates, t.orderChanged, t.secondPerson,
		t.killedJob, t.cancelledJob, t.lateAnswer, t.heldPayout, t.auditTrail,
	} {
		if t.step > 0 {
			t.reader.turn(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("step %d: %w", t.step, err)
		}
	}
	if t.failed {
		return ErrNotSo
	}
	t.line("\n%s", t.style(bold, fmt.Sprintf("All of it was so, in %.0f s.", time.Since(began).Seconds())))
	t.line("Next: tallystick demo --serve leaves the desk running for a client of yours.")
	return nil
}

func folder(data string) (string, error) {
	if data == "" {
		return os.MkdirTemp("", "tallystick-demo-")
	}
	return data, os.MkdirAll(data, 0o700)
}

// open starts the server and opens the shop, which is somebody else's system
// and so is looked at directly, not through the server.
func (t *tour) open(ctx context.Context, data string) (err error) {
	t.line("%s", t.style(bold, "Tallystick: a refund desk, walked through"))
	if err := t.server.start(ctx); err != nil {
		return err
	}
	if t.people, err = desk.LoadPeople(data); err != nil {
		return err
	}
	if t.shop, err = desk.OpenShop(data); err != nil {
		return err
	}
	if t.orders, err = t.shop.Stock(ctx); err != nil {
		return err
	}
	for name, c := range map[string]**caller{"ann": &t.ann, "bob": &t.bob, "fay": &t.fay, "oz": &t.oz} {
		if *c, err = newCaller(ctx, t.people.Named(name), t.server.url, filepath.Join(data, "clients"), t.printer); err != nil {
			return err
		}
	}
	trail, err := t.trail(ctx)
	if err != nil {
		return err
	}
	if len(trail) > 0 {
		t.from = trail[len(trail)-1].Seq
	}
	t.line("An MCP server (revision %s) runs on %s/mcp (process %d).", protocol, t.server.url, t.server.pid())
	t.line("What it keeps is in %s. Who may use it, by bearer token:", data)
	for _, q := range t.people {
		t.line("   %-4s %-9s %s", q.Name, q.Role, q.Token)
	}
	t.line("Its tools act on a shop with a ledger of its own. → is what a client sends, ← what the")
	t.line("server answers, ✓ what the demo has checked against the answers and that ledger.")
	return nil
}

func (t *tour) close() {
	for _, c := range []*caller{t.ann, t.bob, t.fay, t.oz} {
		_ = c.close() // the walk is over
	}
	_ = t.shop.Close()
}

func (t *tour) begin(title, why string) {
	t.step++
	t.heading(t.step, title, why)
}

// check says what is so, or that it is not, and remembers that.
func (t *tour) check(ok bool, format string, args ...any) {
	t.checked(ok, fmt.Sprintf(format, args...))
	t.failed = t.failed || !ok
}

// ledger checks what the shop's ledger has of an order.
func (t *tour) ledger(ctx context.Context, kind, subject string, lines int) (desk.Tally, error) {
	got, err := t.shop.Tally(ctx, kind, subject)
	if err != nil {
		return got, fmt.Errorf("reading the shop's ledger: %w", err)
	}
	paid := ""
	if got.Cents > 0 {
		paid = ", " + desk.Euros(got.Cents)
	}
	t.check(got.Lines == lines, "the shop's ledger has %s for %s%s; the shop was %s", counted(got.Lines, kind), subject, paid, asked(got.Asked))
	return got, nil
}

func counted(n int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func asked(n int) string {
	if n == 0 {
		return "never asked"
	}
	return "asked " + times(n)
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// patience is how long the tour waits for what must come.
const patience = 30 * time.Second

// until waits until something is so, bounded.
func (t *tour) until(ctx context.Context, so func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if so() {
			return nil
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("it did not get there in 30 s")
}

// untilLedger polls the shop, bounded.
func (t *tour) untilLedger(ctx context.Context, kind, subject string, lines int) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		got, err := t.shop.Tally(ctx, kind, subject)
		if err != nil || got.Lines >= lines {
			return err
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the shop's ledger did not get to %d lines in 30 s", lines)
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pollEvery is how often call_status is asked.
const pollEvery = 60 * time.Millisecond
