package tallystick_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/store/sqlite"
)

// A guest is a session of the 2025 era that makes several calls at a time and
// knows which of its calls it is asked about.
type guest struct {
	token, name string
	open        sync.Map // orders of its calls, also of those that it gave up
	asked       atomic.Int64
	stays       context.Context // until it leaves
}

type codeOf struct {
	Code string `json:"code"`
}

// answer tells the code of the order that it is asked about, sooner or later.
func (g *guest) answer(t *testing.T, r *rand.Rand, mu *sync.Mutex) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return func(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		order := strings.Fields(req.Params.Message)[1]
		if _, mine := g.open.Load(order); !mine || !strings.HasPrefix(order, g.name+"/") {
			t.Errorf("%s is asked about %s", g.name, order)
		}
		g.asked.Add(1)
		mu.Lock()
		wait, what := time.Duration(r.IntN(30))*time.Millisecond, r.IntN(12)
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		switch what {
		case 0:
			return &mcp.ElicitResult{Action: "decline"}, nil
		case 1:
			return &mcp.ElicitResult{Action: "cancel"}, nil
		case 2:
			return nil, fmt.Errorf("nobody is at home")
		case 3:
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"code": 7}}, nil
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"code": "code of " + order}}, nil
	}
}

// case S55: sessions of several people, and of one, are asked at the same time,
// leave in the middle and are tried by others. No answer goes astray.
func TestSessionsNeverCross(t *testing.T) {
	seed := bazaarSeed(t)
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(t.TempDir(), "s.db")})
	if err != nil {
		t.Fatal(err)
	}
	var charges sync.Map
	d := newDesk(t, setup{opts: bazaar.Options(db), tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "spell"}, nil, func(ctx context.Context, call *tallystick.Call, in refundArgs) (*mcp.CallToolResult, codeOf, error) {
			a, errA := tallystick.Ask[codeOf](call, tallystick.Question{Key: "a", Message: "Code " + in.OrderID})
			b, errB := tallystick.Ask[codeOf](call, tallystick.Question{Key: "b", Message: "Code " + in.OrderID + " again"})
			if errA != nil || errB != nil {
				return nil, codeOf{}, fmt.Errorf("%w", first(errA, errB))
			}
			_, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "spell", Subject: in.OrderID}, func(context.Context, string) (int, error) {
				if _, twice := charges.LoadOrStore(in.OrderID, true); twice {
					t.Errorf("%s twice", in.OrderID)
				}
				return 0, nil
			})
			return nil, codeOf{a.Code + "+" + b.Code}, err
		})
	}})
	end := time.Now().Add(bazaarTime(time.Second))
	var wg sync.WaitGroup
	var ended, failed, hijacks, asked atomic.Int64
	for i, token := range []string{"ann/acme", "ann/acme", "bob/acme", "zed/evil", "ann/acme//phone", "ann/evil"} {
		wg.Go(func() {
			r, mu := rand.New(rand.NewPCG(seed, uint64(i))), &sync.Mutex{}
			for visit := 0; time.Now().Before(end); visit++ {
				stays, leave := context.WithCancel(context.Background())
				g := &guest{token: token, name: fmt.Sprintf("s%d-%d", i, visit), stays: stays}
				c := mcp.NewClient(&mcp.Implementation{Name: "old", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: g.answer(t, r, mu)})
				cs, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: d.url, HTTPClient: httpClient(token)}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
				if err != nil {
					t.Error(err)
					leave()
					return
				}
				var calls sync.WaitGroup
				for n := range 4 {
					calls.Go(func() {
						if g.spell(t, cs, n) {
							ended.Add(1)
						} else {
							failed.Add(1)
						}
					})
				}
				hijacks.Add(hijack(t, d, cs.ID(), token))
				mu.Lock()
				leaves := r.IntN(3) == 0
				stay := time.Duration(r.IntN(30)) * time.Millisecond
				mu.Unlock()
				if leaves {
					time.Sleep(stay)
					leave() // the SDK's client waits in Close for calls that it does not cancel
				}
				calls.Wait()
				cs.Close()
				leave()
				asked.Add(g.asked.Load())
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls came to their end, %d not; asked %d times, %d tries of others", ended.Load(), failed.Load(), asked.Load(), hijacks.Load())
	if ended.Load() == 0 || hijacks.Load() == 0 {
		t.Error("nothing was tried")
	}
	d.stop()
	db.Close()
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *guest) spell(t *testing.T, cs *mcp.ClientSession, n int) bool {
	order := fmt.Sprintf("%s/%d", g.name, n)
	g.open.Store(order, true)
	ctx, cancel := context.WithTimeout(g.stays, 15*time.Second)
	defer cancel()
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "spell", Arguments: map[string]any{"orderId": order}})
	if g.stays.Err() == nil && ctx.Err() != nil {
		t.Errorf("%s came to no end", order)
	}
	if err != nil || res.IsError {
		return false
	}
	want := "code of " + order + "+code of " + order
	if got, _ := res.StructuredContent.(map[string]any)["code"].(string); got != want {
		t.Errorf("%s got %q", order, got)
	}
	return true
}

// hijack tries a session with the tokens of others.
func hijack(t *testing.T, d *desk, session, owner string) (tries int64) {
	for _, token := range []string{"ann/acme", "ann/evil", "bob/acme", "ann/acme//phone", ""} {
		if token == owner {
			continue
		}
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"code":"stolen"}}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{"code":"stolen"}}}`,
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"spell","arguments":{"orderId":"stolen"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
			"GET", "DELETE",
		} {
			method := "POST"
			if body[0] != '{' {
				method, body = body, ""
			}
			req, _ := http.NewRequest(method, d.url, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("MCP-Protocol-Version", "2025-11-25")
			req.Header.Set("Mcp-Session-Id", session)
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				continue
			}
			raw, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if tries++; resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%s %s with %q in a session of %s: %d %s", method, body, token, owner, resp.StatusCode, raw)
			}
		}
	}
	return tries
}
