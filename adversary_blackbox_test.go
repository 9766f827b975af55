package tallystick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// The bazaar is a server that is tried from outside, by callers who do what
// they like, and a far side that writes down what really happened.

// A charge is what arrived at the far side.
type charge struct {
	Call, Tenant, Effect, Subject, Key string
	Facts                              int
	At                                 time.Time
}

// A farSide holds orders and a ledger. It is in another process than the
// server where that is killed.
type farSide struct {
	mu      sync.Mutex
	rand    *rand.Rand
	mood    float64 // share of charges that end badly
	orders  map[string]int
	ledger  []charge
	witness func(charge)
	byKey   map[string]int // keys that it honours, to the entry of the ledger
}

func newFarSide(seed uint64) *farSide {
	return &farSide{rand: rand.New(rand.NewPCG(seed, 7)), orders: map[string]int{}, byKey: map[string]int{}, mood: 0.1}
}

func (f *farSide) order(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orders[id]
}

func (f *farSide) change(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders[id]++
}

func (f *farSide) happened(tenant, effect, subject string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.ledger {
		if c.Tenant == tenant && c.Effect == effect && c.Subject == subject {
			return true
		}
	}
	return false
}

// charge writes down a charge, once for one key if the far side honours it. It
// may fail, before that or after; only in the first case does it say so.
func (f *farSide) charge(c charge, honours bool) (n int, err error) {
	f.mu.Lock()
	mood, slow := f.rand.Float64(), time.Duration(f.rand.IntN(4))*time.Millisecond
	f.mu.Unlock()
	time.Sleep(slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case mood < f.mood/3:
		return 0, tallystick.NotDone(errors.New("closed for lunch"))
	case mood < 2*f.mood/3:
		return 0, errors.New("no reply, and nothing happened")
	}
	if n, ok := f.byKey[c.Key]; ok && honours {
		return n, nil
	}
	if f.witness != nil {
		f.witness(c)
	}
	c.At = time.Now()
	f.ledger = append(f.ledger, c)
	f.byKey[c.Key] = len(f.ledger)
	if mood < f.mood {
		return 0, errors.New("no reply, and it happened")
	}
	return len(f.ledger), nil
}

// ServeHTTP is the far side for a server in another process.
func (f *farSide) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n int
	var err error
	switch q := r.URL.Query(); r.URL.Path {
	case "/order":
		n = f.order(q.Get("id"))
	default:
		var c charge
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		n, err = f.charge(c, q.Get("honours") == "true")
	}
	if err != nil {
		w.Header().Set("Not-Done", fmt.Sprint(strings.Contains(err.Error(), "lunch")))
		w.WriteHeader(http.StatusBadGateway)
	}
	fmt.Fprint(w, n)
}

// A shopfront is the far side as the server's tools see it.
type shopfront interface {
	order(id string) (int, error)
	charge(ctx context.Context, c charge, honours bool) (int, error)
}

type nearby struct{ f *farSide }

func (s nearby) order(id string) (int, error) { return s.f.order(id), nil }
func (s nearby) charge(_ context.Context, c charge, honours bool) (int, error) {
	return s.f.charge(c, honours)
}

type faraway struct{ base string }

func (s faraway) order(id string) (int, error) {
	resp, err := http.Get(s.base + "/order?id=" + url.QueryEscape(id))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var n int
	_, err = fmt.Fscan(resp.Body, &n)
	return n, err
}

func (s faraway) charge(ctx context.Context, c charge, honours bool) (int, error) {
	body, _ := json.Marshal(c)
	req, err := http.NewRequestWithContext(ctx, "POST", s.base+"/charge?honours="+fmt.Sprint(honours), strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := errors.New("no reply")
		if resp.Header.Get("Not-Done") == "true" {
			err = tallystick.NotDone(err)
		}
		return 0, err
	}
	var n int
	_, err = fmt.Fscan(resp.Body, &n)
	return n, err
}

// bazaarTools are the tools that charge, and who has to approve.
var bazaarTools = map[string]struct {
	opts    *tallystick.ToolOptions
	who     tallystick.Who
	honours bool
}{
	"refund": {nil, tallystick.Who{Roles: []string{"finance"}, NotRequester: true}, true},
	"pay":    {nil, tallystick.Who{}, false},
	"gift":   {nil, tallystick.Who{}, true},
	"wire":   {nil, tallystick.Who{Roles: []string{"finance"}, NotRequester: true, Count: 2}, false},
	"batch":  {&tallystick.ToolOptions{Task: tallystick.TaskOptional}, tallystick.Who{}, false},
	"ship":   {&tallystick.ToolOptions{Task: tallystick.TaskRequired, AskFirst: true}, tallystick.Who{}, true},
	"export": {&tallystick.ToolOptions{Task: tallystick.TaskRequired}, tallystick.Who{Roles: []string{"finance"}}, false},
	"parcel": {&tallystick.ToolOptions{Task: tallystick.TaskOptional, TaskAfter: 2 * time.Millisecond}, tallystick.Who{}, false},
	"hasty":  {&tallystick.ToolOptions{Timeout: 20 * time.Millisecond}, tallystick.Who{}, true},
}

func addBazaar(s *tallystick.Server, shop shopfront) {
	for name, o := range bazaarTools {
		tallystick.AddTool(s, &mcp.Tool{Name: name}, o.opts, func(ctx context.Context, call *tallystick.Call, in refundArgs) (*mcp.CallToolResult, any, error) {
			version, err := shop.order(in.OrderID)
			if err != nil {
				return nil, nil, err
			}
			q := tallystick.Question{Key: "approve", Message: "Charge " + in.OrderID + "?", Facts: version, Who: o.who}
			if err := call.Confirm(q); err != nil {
				return nil, nil, err
			}
			if err := call.Facts("approve", &version); err != nil { // a yes that is spent was given for those of then
				return nil, nil, err
			}
			steps := []string{"charge"}
			if name == "batch" || name == "export" || name == "parcel" {
				steps = []string{"charge", "ship", "mail"}
			}
			var receipts []int
			for i, step := range steps {
				call.Report(step, float64(i), float64(len(steps)))
				n, err := tallystick.Once(ctx, call, tallystick.Effect{Name: step, Subject: name + " " + in.OrderID, Repeatable: o.honours},
					func(ctx context.Context, key string) (int, error) {
						return shop.charge(ctx, charge{Call: call.ID(), Tenant: call.Owner().Tenant, Effect: step, Subject: name + " " + in.OrderID, Key: key, Facts: version}, o.honours)
					})
				if err != nil {
					return nil, nil, err
				}
				receipts = append(receipts, n)
			}
			return nil, map[string]any{"receipts": receipts}, nil
		})
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
		func(_ context.Context, call *tallystick.Call, in refundArgs) (*mcp.CallToolResult, any, error) {
			return nil, map[string]any{"saw": in.OrderID}, call.Confirm(tallystick.Question{Key: "approve", Message: "Look?"})
		})
	tallystick.AddPrompt(s, &mcp.Prompt{Name: "letter"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, call.Confirm(tallystick.Question{Key: "approve", Message: "Write?"})
	})
	tallystick.AddResourceTemplate(s, &mcp.ResourceTemplate{Name: "order", URITemplate: "order://{id}"},
		func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "x"}}}, call.Confirm(tallystick.Question{Key: "approve", Message: "Read?"})
		})
}

// bazaarSeed is printed with each campaign; bazaarTime is how long it takes.
// TALLYSTICK_BAZAAR_SEED and TALLYSTICK_BAZAAR_TIME set them by hand.
func bazaarSeed(t *testing.T) uint64 {
	seed := rand.Uint64N(1 << 40)
	if s := os.Getenv("TALLYSTICK_BAZAAR_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	t.Logf("TALLYSTICK_BAZAAR_SEED=%d", seed)
	return seed
}

func bazaarTime(short time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TALLYSTICK_BAZAAR_TIME")); err == nil {
		return d
	}
	return short
}

// A decider decides out of band, through an approval page of the server's
// process: here, in words of JSON.
type decider struct {
	base string
	by   tallystick.Identity
}

func personOf(token string) tallystick.Identity {
	f := append(strings.Split(token, "/"), "", "", "", "")
	id := tallystick.Identity{Issuer: "test", Subject: f[0], Tenant: f[1], Client: f[3]}
	if f[2] != "" {
		id.Roles = strings.Split(f[2], ",")
	}
	return id
}

type pageRequest struct {
	By       tallystick.Identity
	Decision *tallystick.Decision
}

type pageReply struct {
	Waiting []tallystick.Waiting
	Err     string
}

// approvals is the approval page of a server.
func approvals(s *tallystick.Server) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in pageRequest
		var out pageReply
		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil && in.Decision != nil {
			err = s.Decide(r.Context(), in.By, *in.Decision)
		} else if err == nil {
			out.Waiting, err = s.Waiting(r.Context(), in.By)
		}
		if err != nil {
			out.Err = err.Error()
		}
		json.NewEncoder(w).Encode(out)
	}))
}

func (p decider) ask(ctx context.Context, d *tallystick.Decision) (out pageReply, err error) {
	body, _ := json.Marshal(pageRequest{p.by, d})
	req, err := http.NewRequestWithContext(ctx, "POST", p.base, strings.NewReader(string(body)))
	if err != nil {
		return out, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(raw, &out)
}
