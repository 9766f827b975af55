//go:build unix

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store/memory"
)

// A counter is a server that counts what one script does to it. What goes wrong
// on it because of a client's end is the client's to make good.
type counter struct {
	url      string
	noKeys   bool // it neither keeps idempotency keys nor says so
	noListen bool

	mu      sync.Mutex // guards what follows
	calls   []string   // ids, each once
	effects int
	sent    map[string]int             // tools/call requests by what they say
	answers map[string]map[string]bool // what has been answered, by key
	listens int
	handed  int // questions, to the person
}

type note struct {
	Note string `json:"note"`
}

func newCounter(t *testing.T, noKeys, noListen bool) (c *counter, stop func()) {
	t.Helper()
	c = &counter{noKeys: noKeys, noListen: noListen, sent: map[string]int{}, answers: map[string]map[string]bool{}}
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	s, err := tallystick.New(mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil),
		&tallystick.Options{Store: memory.New(memory.Options{}), Keys: keys.AEAD(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.tools(s)
	ctx, end := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	inner := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}, nil)(s.Handler(nil))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.front(w, r, inner) }))
	c.url = web.URL
	return c, func() {
		end()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	}
}

func (c *counter) tools(s *tallystick.Server) {
	add := func(name string, use tallystick.TaskUse, questions ...string) {
		tallystick.AddTool(s, &mcp.Tool{Name: name}, &tallystick.ToolOptions{Task: use},
			func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, map[string]string, error) {
				c.mu.Lock()
				if !slices.Contains(c.calls, call.ID()) {
					c.calls = append(c.calls, call.ID())
				}
				c.mu.Unlock()
				out, pending := map[string]string{}, error(nil)
				for _, key := range questions {
					n, err := tallystick.Ask[note](call, tallystick.Question{Key: key, Message: key + " for " + in.Order + "?"})
					if out[key] = n.Note; err != nil {
						pending = err
					}
				}
				if pending != nil {
					return nil, nil, pending
				}
				done, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "effect"}, func(context.Context, string) (string, error) {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.effects++
					return "done " + in.Order, nil
				})
				out["done"] = done
				return nil, out, err
			})
	}
	add("one", tallystick.TaskForbidden, "first")
	add("two", tallystick.TaskForbidden, "first", "second")
	add("job", tallystick.TaskOptional, "first")
	add("work", tallystick.TaskOptional)
	tallystick.AddTool(s, &mcp.Tool{Name: "endless"}, &tallystick.ToolOptions{Task: tallystick.TaskOptional},
		func(ctx context.Context, call *tallystick.Call, in order) (*mcp.CallToolResult, order, error) {
			c.mu.Lock()
			if !slices.Contains(c.calls, call.ID()) {
				c.calls = append(c.calls, call.ID())
			}
			c.mu.Unlock()
			<-ctx.Done()
			return nil, order{}, context.Cause(ctx)
		})
}

const keyName = `"tallystick/idempotencyKey"`

// front counts, and takes away what the server is not to have.
func (c *counter) front(w http.ResponseWriter, r *http.Request, inner http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     any                        `json:"id"`
		Method string                     `json:"method"`
		Params map[string]json.RawMessage `json:"params"`
	}
	_ = json.Unmarshal(body, &m) // the server says what is wrong with it
	c.count(m.Method, m.Params)
	if m.Method == "subscriptions/listen" && c.noListen {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		return
	}
	if c.noKeys {
		body = bytes.ReplaceAll(body, []byte(keyName), []byte(`"none"`))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if !c.noKeys || m.Method != "server/discover" {
		inner.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	inner.ServeHTTP(rec, r)
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(bytes.ReplaceAll(rec.Body.Bytes(), []byte(keyName), []byte(`"none"`))) // a client that has gone
}

func (c *counter) count(method string, params map[string]json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch method {
	case "subscriptions/listen":
		c.listens++
	case "tools/call":
		var meta struct {
			Key string `json:"tallystick/idempotencyKey"`
		}
		_ = json.Unmarshal(params["_meta"], &meta)
		delete(params, "_meta")
		b, _ := json.Marshal(params) // of maps and JSON
		c.sent[meta.Key+string(b)]++
	}
	var responses map[string]json.RawMessage
	_ = json.Unmarshal(params["inputResponses"], &responses)
	for key, r := range responses {
		if c.answers[key] == nil {
			c.answers[key] = map[string]bool{}
		}
		c.answers[key][string(r)] = true
	}
}

// A script is a call whose client is killed.
type script struct {
	tool      string
	questions []string
	cancel    bool
	noListen  bool
	connected bool // before it calls
	least     int  // writes that it takes
}

var scripts = map[string]script{
	"in rounds":                    {tool: "one", questions: []string{"first"}, least: 6},
	"in rounds with two questions": {tool: "two", questions: []string{"first", "second"}, connected: true, least: 6},
	"a task that asks":             {tool: "job", questions: []string{"first"}, least: 9},
	"a task that asks, by polling": {tool: "job", questions: []string{"first"}, noListen: true, least: 9},
	"a task":                       {tool: "work", least: 5},
	"a task, by polling":           {tool: "work", noListen: true, connected: true, least: 4},
	"a cancelled task":             {tool: "endless", cancel: true, least: 7},
	"a cancelled task, by polling": {tool: "endless", cancel: true, noListen: true, least: 7},
}

// A played script.
type played struct {
	out    said
	killed bool // the first process was
	handed int  // questions, to the person
}

// play runs the script with its client killed at the given writes, of one
// process after the other, and then to its end.
func (s script) play(t *testing.T, noKeys bool, kills ...child) played {
	t.Helper()
	c, stop := newCounter(t, noKeys, s.noListen)
	defer stop()
	dir := t.TempDir()
	base := child{Path: filepath.Join(dir, "calls.db"), URL: c.url, Tool: s.tool, Order: "1234", Cancel: s.cancel, Connected: s.connected, Diary: filepath.Join(dir, "diary")}
	var p played
	var err error
	died, over := 0, false
	for i := 0; i < len(kills) && !over; i++ {
		one := base
		one.KillAt, one.KillAfter = kills[i].KillAt, kills[i].KillAfter
		var dead bool
		if p.out, dead, err = one.spawn(t.Context()); err != nil {
			t.Error(err)
			return p
		}
		if over = !dead; dead {
			died++
		}
	}
	if !over {
		if p.out, _, err = base.spawn(t.Context()); err != nil {
			t.Error(err)
			return p
		}
	}
	p.killed = died > 0
	s.check(t, c, base.Diary, p.out, kills[:died])
	p.handed = c.handed
	return p
}

// check holds what has come of a script against what must.
func (s script) check(t *testing.T, c *counter, diary string, out said, kills []child) {
	t.Helper()
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf("killed at %v: %s", kills, fmt.Sprintf(format, args...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	written, err := readDiary(diary)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{}
	ids := map[string]string{}
	for _, e := range written {
		if was, asked := ids[e.Key]; asked && (was != e.ID || e.Note == "" && !e.Again) {
			wrong("question %s was asked as %s, and then as %s (again: %v)", e.Key, was, e.ID, e.Again)
		}
		ids[e.Key] = e.ID
		if e.Note == "" {
			c.handed++
			continue
		}
		if given[e.Key] != "" {
			wrong("the person was asked %s twice", e.Key)
		}
		given[e.Key] = e.Note
	}
	for key, all := range c.answers {
		if len(all) != 1 {
			wrong("the server saw %d answers to %s: %v", len(all), key, all)
		}
	}
	if s.unknown(t, c, out, kills) {
		return
	}
	early := s.cancel && len(c.calls) == 0 // cancelled before its handler ran, which counts
	if !early && (len(c.calls) != 1 || out.Task != "" && out.Task != c.calls[0]) {
		wrong("the server has the calls %v; the client has task %q", c.calls, out.Task)
	}
	if !s.noListen && len(kills) == 0 && s.tool == "job" && c.listens == 0 {
		wrong("nobody has listened")
	}
	if s.cancel {
		if out.Err != "client: the call was cancelled" || c.effects != 0 {
			wrong("%+v, %d effects: want it cancelled", out, c.effects)
		}
		return
	}
	want := map[string]string{"done": "done 1234"}
	for _, key := range s.questions {
		want[key] = given[key]
	}
	b, _ := json.Marshal(want) // strings
	if out.Result != string(b) || c.effects != 1 {
		wrong("%+v, %d effects: want %s, once", out, c.effects, b)
	}
	if len(given) != len(s.questions) || len(c.answers) != len(s.questions) {
		wrong("the person has given %v, the server has got %v", given, c.answers)
	}
}

// unknown takes the only other end that there may be: a server without keys
// was sent something, and its client killed before it heard what came of it.
func (s script) unknown(t *testing.T, c *counter, out said, kills []child) bool {
	t.Helper()
	if c.noKeys {
		for what, n := range c.sent {
			if n != 1 {
				t.Errorf("sent %d times: %s", n, what)
			}
		}
	}
	if !c.noKeys || len(kills) == 0 || out.Err != "client: whether the call was done is unknown" {
		return false
	}
	if c.effects > 1 || len(c.calls) > 1 {
		t.Errorf("%d effects of calls %v", c.effects, c.calls)
	}
	return true
}

// atOnce bounds the processes of all sweeps: most of their time they wait.
var atOnce = make(chan struct{}, 8)

// sweep plays the script once without a kill, and then once for each write that
// it took, with the client killed there; then are kills of those who resume. It
// tells how many ends were unknown, and how often a question was handed out
// again.
func (s script) sweep(t *testing.T, noKeys, after bool, then ...child) (unknown, again int) {
	writes := s.play(t, noKeys).out.Writes
	if writes < s.least {
		t.Fatalf("%d writes, want %d at least", writes, s.least)
	}
	all := make([]played, writes)
	var plays sync.WaitGroup
	for i := range all {
		plays.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			all[i] = s.play(t, noKeys, append([]child{{KillAt: i + 1, KillAfter: after}}, then...)...)
		})
	}
	plays.Wait()
	killed := 0
	for _, p := range all {
		if p.killed {
			killed++
		}
		if strings.HasSuffix(p.out.Err, "is unknown") {
			unknown++
		}
		if p.handed > len(s.questions) {
			again++
		}
	}
	if killed < s.least {
		t.Errorf("killed at %d writes, want %d at least", killed, s.least)
	}
	t.Logf("%d writes, killed at %d; %d ends unknown, asked again %d times", writes, killed, unknown, again)
	return unknown, again
}

func TestAClientKilledAtEveryWriteAsksOnceAnswersOnceAndGetsItsResult(t *testing.T) {
	for name, s := range scripts {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after %v", name, after), func(t *testing.T) {
				t.Parallel()
				_, again := s.sweep(t, false, after)
				// Killed before an answer is kept, who resumes has to ask for it
				// again; killed after that, nobody has.
				if want := map[bool]int{false: 1, true: 0}[after]; s.tool == "one" && again != want {
					t.Errorf("the question was handed out again %d times, want %d", again, want)
				}
			})
		}
	}
}

// Whoever resumes is killed too: after its first write, and the next before and
// after its second.
func TestAClientKilledAgainWhileItResumesLosesNothing(t *testing.T) {
	for name, s := range scripts {
		if s.noListen {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.sweep(t, false, true, child{KillAt: 1, KillAfter: true}, child{KillAt: 2}, child{KillAt: 2, KillAfter: true})
		})
	}
}

func TestWithoutKeysAKilledClientSendsNothingTwice(t *testing.T) {
	for name, s := range scripts {
		if s.noListen {
			continue
		}
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after %v", name, after), func(t *testing.T) {
				t.Parallel()
				if unknown, _ := s.sweep(t, true, after); unknown == 0 {
					t.Error("no end was unknown: the server was never in doubt")
				}
			})
		}
	}
}
