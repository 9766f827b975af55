package bazaar

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a crowd from a store until stop is called.
func serve(t *testing.T, c *Crowd, opts tallystick.Options, shop Shop) (stop func()) {
	t.Helper()
	opts.Identify, opts.Log = Identify, slog.New(slog.DiscardHandler)
	s, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "bazaar", Version: "1"}, nil), &opts)
	if err != nil {
		t.Fatal(err)
	}
	Add(s, shop)
	web, page := httptest.NewServer(s.Handler(nil)), httptest.NewServer(Page(s, opts.Store))
	c.Serve(web.URL, page.URL)
	ctx, end := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	for status := http.StatusServiceUnavailable; status == http.StatusServiceUnavailable; { // until it has begun to work
		r, err := c.someone("ann/acme", CapsNone).Send(t.Context(), "tools/list", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		status = r.Status
	}
	return func() {
		end()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		web.Close()
		page.Close()
	}
}

// visited is a crowd that has been somewhere, and the store of the server.
func visited(t *testing.T) (*Crowd, store.Store) {
	t.Helper()
	c := NewCrowd(NewFarSide(1))
	c.Crashes, c.Far.Mood = true, 0.3
	kept := memory.New(memory.Options{})
	stop, ctx := serve(t, c, Options(kept), Nearby(c.Far)), context.Background()
	// Until there is one of each, or for long enough.
	enough := func(tally Tally) bool {
		return tally.Events["effect resolved"] > 0 && tally.Events["question expired"] > 0 && tally.Acks["update"] > 0 &&
			tally.Acks["decide"] > 0 && tally.Acks["round"] > 0 && tally.Events["cancel asked"] > 0 && tally.Ends > 0 && tally.Finals > 0
	}
	for seed := uint64(1); ; seed++ {
		some, over := context.WithTimeout(ctx, time.Second/2)
		var wg sync.WaitGroup
		for i := range uint64(8) {
			wg.Go(func() { c.Wander(some, 100*seed+i) })
		}
		wg.Wait()
		over()
		for r := rand.New(rand.NewPCG(seed, 2)); r.IntN(20) > 0; { // this is rare
			c.cancelOne(ctx, r)
			c.call(ctx, r, "brief") // and nobody answers
		}
		if err := c.Settle(ctx); err != nil {
			t.Fatal(err)
		}
		tally, err := c.Check(ctx, kept, false)
		if err != nil {
			t.Fatal(err)
		}
		if enough(tally) {
			break
		}
		if seed > 60 {
			t.Fatalf("not enough has happened: %+v", tally)
		}
	}
	stop()
	return c, kept
}

// A liar is a store that shows something else than it keeps.
type liar struct {
	store.Store
	call func(*record.Call) bool   // false: it is not shown
	row  func(store.AuditRow) bool // false: it is not shown
}

func (l liar) List(ctx context.Context, f store.Filter) ([]*record.Call, error) {
	f.Limit = 1000 // of far less
	calls, err := l.Store.List(ctx, f)
	if l.call != nil {
		calls = slices.DeleteFunc(calls, func(c *record.Call) bool { return !l.call(c) })
	}
	return calls, err
}

func (l liar) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	if l.row == nil {
		return l.Store.Audit(ctx, q)
	}
	var shown []store.AuditRow // numbered anew: a gap would show
	for after := int64(0); ; {
		rows, err := l.Store.Audit(ctx, store.AuditQuery{After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if after = row.Seq; l.row(row) {
				row.Seq = int64(len(shown)) + 1
				shown = append(shown, row)
			}
		}
		if len(rows) == 0 {
			return shown[min(q.After, int64(len(shown))):], nil
		}
	}
}

// Each thing that can be lost, done twice or changed is found.
func TestWhatIsWrongIsFound(t *testing.T) {
	c, kept := visited(t)
	t.Run("on record", func(t *testing.T) { lies(t, c, kept) })
	t.Run("outside", func(t *testing.T) { charges(t, c, kept) })
}

func lies(t *testing.T, c *Crowd, kept store.Store) {
	if _, err := c.Check(context.Background(), kept, true); err != nil || len(c.Wrong()) > 0 {
		t.Fatalf("%v, %q", err, c.Wrong())
	}
	once := func(is func(*record.Call) bool, then func(*record.Call)) func(*record.Call) bool {
		done := false
		return func(call *record.Call) bool {
			if !done && is(call) {
				done = true
				if then == nil {
					return false
				}
				then(call)
			}
			return true
		}
	}
	without := func(event string) liar {
		hidden := int64(0)
		return liar{row: func(r store.AuditRow) bool {
			if hidden == 0 && r.Event == event {
				hidden = r.Seq
			}
			return r.Seq != hidden
		}}
	}
	ended := func(c *record.Call) bool { return c.State == record.Ended && c.Outcome == record.Completed && c.Task }
	answered := func(c *record.Call) bool { return len(c.Questions) > 0 && len(c.Questions[0].Answers) > 0 }
	for what, lie := range map[string]liar{
		"a task is lost":                  {call: once(func(c *record.Call) bool { return c.Task }, nil)},
		"a task is none":                  {call: once(ended, func(c *record.Call) { c.Task = false })},
		"an outcome is another":           {call: once(ended, func(c *record.Call) { c.Outcome = record.Failed })},
		"an end is later":                 {call: once(ended, func(c *record.Call) { c.EndedAt = c.EndedAt.Add(time.Hour) })},
		"an end is none":                  {call: once(ended, func(c *record.Call) { c.State, c.Outcome = record.Waiting, "" })},
		"an answer is lost":               {call: once(answered, func(c *record.Call) { c.Questions[0].Answers = nil })},
		"an answer is another":            {call: once(answered, func(c *record.Call) { c.Questions[0].Answers[0].Action = "x" })},
		"an answer is somebody else's":    {call: once(answered, func(c *record.Call) { c.Questions[0].Answers[0].By.Subject = "eve" })},
		"a question is another":           {call: once(answered, func(c *record.Call) { c.Questions[0].Digest = "x" })},
		"a change is more":                {call: once(answered, func(c *record.Call) { c.Version++ })},
		"a run is more":                   {call: once(answered, func(c *record.Call) { c.Epoch++ })},
		"an attempt is less":              {call: once(func(c *record.Call) bool { return len(c.Effects) > 0 && c.Effects[0].Attempts > 0 }, func(c *record.Call) { c.Effects[0].Attempts-- })},
		"an effect is still under way":    {call: once(func(c *record.Call) bool { return len(c.Effects) > 0 }, func(c *record.Call) { c.Effects[0].State = record.EffectStarted })},
		"a cancel is none":                {call: once(func(c *record.Call) bool { return !c.CancelledAt.IsZero() }, func(c *record.Call) { c.CancelledAt = time.Time{} })},
		"no opening on record":            without("opened"),
		"no run on record":                without("taken"),
		"no question on record":           without("asked"),
		"no answer on record":             without("answered"),
		"no closing of a round on record": without("round closed"),
		"no start on record":              without("effect started"),
		"no end of an effect on record":   without("effect ended"),
		"no hold on record":               without("effect held"),
		"no resolution on record":         without("effect resolved"),
		"no expiry on record":             without("question expired"),
		"no cancel on record":             without("cancel asked"),
		"no end on record":                without("ended"),
	} {
		c.wrong = nil
		lie.Store = kept
		if _, err := c.Check(context.Background(), lie, true); err != nil || len(c.Wrong()) == 0 {
			t.Errorf("%s: %v, and nothing was found", what, err)
		}
	}
}

// charges changes what the far side has written down.
func charges(t *testing.T, c *Crowd, kept store.Store) {
	for what, change := range map[string]func(){
		"twice":            func() { c.Far.ledger = append(c.Far.ledger, c.Far.ledger[0]) },
		"of no call":       func() { c.Far.ledger[0].Call = "x" },
		"on other facts":   func() { c.Far.ledger[0].Facts = 1 << 20 },
		"before its start": func() { c.Far.came[0].Began = time.Time{} },
		"without a start":  func() { c.Far.came = append(c.Far.came, c.Far.came[0]) },
		"never":            func() { c.Far.ledger = c.Far.ledger[1:] },
	} {
		c.wrong = nil
		ledger, came := c.Far.books()
		change()
		if _, err := c.Check(context.Background(), kept, true); err != nil || len(c.Wrong()) == 0 {
			t.Errorf("%s: %v, and nothing was found", what, err)
		}
		c.Far.ledger, c.Far.came = ledger, came
	}
}

// What is told twice is the same twice.
func TestAnEndThatChangesIsFound(t *testing.T) {
	c := NewCrowd(NewFarSide(1))
	for i, said := range []string{
		`{"taskId":"a","status":"working"}`, `{"taskId":"a","status":"completed","result":{"n":1},"lastUpdatedAt":"1"}`,
		`{"taskId":"a","status":"completed","result":{"n":1},"lastUpdatedAt":"2"}`,
	} {
		if c.ended([]byte(said)); len(c.Wrong()) > 0 {
			t.Errorf("%d: %q", i, c.Wrong())
		}
	}
	for _, said := range []string{`{"taskId":"a","status":"completed","result":{"n": 1}}`, `{"taskId":"a","status":"failed"}`} {
		if c.wrong, _ = nil, said; true {
			c.ended([]byte(said))
		}
		if w := c.Wrong(); len(w) != 1 || !strings.Contains(w[0], "has changed") {
			t.Errorf("%s: %q", said, w)
		}
	}
}
