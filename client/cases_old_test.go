//lint:file-ignore SA1019 servers of the 2025 era ask for sampling and roots

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// oldServer is the SDK's own server as of the 2025 era, which asks while a
// request is under way.
func oldServer(t *testing.T) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "server/discover" {
				return nil, fmt.Errorf("unknown method %q", method)
			}
			return next(ctx, method, r)
		}
	})
	add := func(name string, f func(context.Context, *mcp.ServerSession) (any, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			v, err := f(ctx, r.Session)
			if err != nil {
				return nil, err
			}
			b, err := json.Marshal(v)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}}, err
		})
	}
	form := &mcp.ElicitParams{Message: "Sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)}
	add("form", func(ctx context.Context, s *mcp.ServerSession) (any, error) { return s.Elicit(ctx, form) })
	add("url", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		return s.Elicit(ctx, &mcp.ElicitParams{Mode: "url", Message: "Look", URL: "https://bank.test/", ElicitationID: "e-1"})
	})
	add("sampling", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		return s.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1, Messages: []*mcp.SamplingMessage{}})
	})
	add("roots", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		return s.ListRoots(ctx, &mcp.ListRootsParams{})
	})
	add("aside", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		return s.Elicit(context.WithoutCancel(context.Background()), form) // on the stream of no request
	})
	add("twice", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		if _, err := s.Elicit(ctx, form); err != nil {
			return nil, err
		}
		return s.Elicit(ctx, form)
	})
	add("ask and wait", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		if _, err := s.Elicit(ctx, form); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	add("wait", func(ctx context.Context, s *mcp.ServerSession) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return s
}

// overHTTP serves it with sessions.
func overHTTP(t *testing.T, s *mcp.Server, front func(w http.ResponseWriter, r *http.Request, next http.Handler)) func() (mcp.Transport, error) {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if front == nil {
			h.ServeHTTP(w, r)
			return
		}
		front(w, r, h)
	})}
	served := make(chan error, 1)
	go func() { served <- web.Serve(p) }()
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		_ = web.Close()
		<-served
	})
	return func() (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: "http://old.test/mcp", HTTPClient: &http.Client{Transport: p.roundTripper(t)}}, nil
	}
}

func inMemory(t *testing.T, s *mcp.Server) func() (mcp.Transport, error) {
	return func() (mcp.Transport, error) {
		theirs, ours := mcp.NewInMemoryTransports()
		session, err := s.Connect(t.Context(), theirs, nil)
		if err == nil {
			t.Cleanup(func() { _ = session.Close() })
		}
		return ours, err
	}
}

func textOf(t *testing.T, r *mcp.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return ""
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// case S56, S16
func TestAnOldServersQuestionsAreAnsweredWithinTheirCall(t *testing.T) {
	model := &client.Answer{Result: json.RawMessage(`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`)}
	roots := &client.Answer{Result: json.RawMessage(`{"roots":[{"uri":"file:///srv"}]}`)}
	policy := client.Policy{{Kind: client.Sampling, Do: client.Reply, Answer: model}, {Kind: client.Roots, Do: client.Reply, Answer: roots}}
	for _, over := range []string{"HTTP", "memory"} {
		t.Run(over, func(t *testing.T) {
			s := oldServer(t)
			transport := inMemory(t, s)
			if over == "HTTP" {
				transport = overHTTP(t, s, nil)
			}
			p := &person{answer: func(_ context.Context, q client.Question) (client.Answer, error) {
				if q.Kind == client.URL {
					return client.Accept(nil)
				}
				return client.Accept(map[string]bool{"confirm": true})
			}}
			c := newClient(t, client.Options{Transport: transport, Answerer: p, Policy: policy})
			for tool, want := range map[string]string{
				"form": `"confirm":true`, "url": `"action":"accept"`, "sampling": `"text":"hi"`, "roots": `file:///srv`, "aside": `"confirm":true`, "twice": `"confirm":true`,
			} {
				before := p.times()
				r, err := c.Call(t.Context(), tool, nil)
				if got := textOf(t, r, err); !strings.Contains(got, want) {
					t.Errorf("%s: %s", tool, got)
				}
				asked := map[string]int{"form": 1, "url": 1, "aside": 1, "twice": 2}[tool]
				if n := p.times() - before; n != asked {
					t.Errorf("%s: asked %d times", tool, n)
				}
				for _, q := range p.asked[before:] {
					if q.Name != tool || q.Call == "" || q.ID == "" || q.Message == "" || q.Kind == client.Form != (len(q.Schema) > 0) || q.Kind == client.URL != (q.URL != "") {
						t.Errorf("%s: the question is %+v", tool, q)
					}
				}
			}
		})
	}
}

// case S51: what is not declared is not asked, and the call ends.
func TestAnOldServerIsToldThatNobodyCanBeAsked(t *testing.T) {
	c := newClient(t, client.Options{Transport: inMemory(t, oldServer(t))})
	for _, tool := range []string{"form", "url", "sampling", "roots"} {
		if r, err := c.Call(t.Context(), tool, nil); err == nil && !r.IsError {
			t.Errorf("%s: %s", tool, textOf(t, r, err))
		}
	}
}

// case S55: what may be any of several calls' is given to none of them.
func TestAQuestionThatMayBeSeveralCallsNamesNone(t *testing.T) {
	p := &person{answer: func(_ context.Context, q client.Question) (client.Answer, error) {
		return client.Accept(map[string]bool{"confirm": true})
	}}
	yes := &client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":true}`)}
	s, began := oldServer(t), make(chan struct{}, 3)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				began <- struct{}{}
			}
			return next(ctx, method, r)
		}
	})
	c := newClient(t, client.Options{Transport: inMemory(t, s), Answerer: p,
		Policy: client.Policy{{Name: "form", Kind: client.Form, Do: client.Reply, Answer: yes}}})
	if r, err := c.Call(t.Context(), "form", nil); !strings.Contains(textOf(t, r, err), "accept") || p.times() != 0 {
		t.Fatalf("alone, the rule for its tool counts: asked %d times", p.times())
	}
	other, err := c.Start(t.Context(), "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began // the first
	<-began
	r, err := c.Call(t.Context(), "form", nil)
	if !strings.Contains(textOf(t, r, err), "accept") || p.times() != 1 || p.asked[0].Name != "" || p.asked[0].Arguments != nil {
		t.Errorf("asked %d times: %+v", p.times(), p.asked)
	}
	if err := other.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = other.Wait(t.Context())
	wants(t, err, client.ErrUnknown)
}

// case S54
func TestPeopleHaveTimeOfTheirOwnWithAnOldServerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
			time.Sleep(54 * time.Minute)
			return client.Accept(map[string]bool{"confirm": true})
		}}
		c := newClient(t, client.Options{Transport: inMemory(t, oldServer(t)), Answerer: p, Limits: client.Limits{Request: 5 * time.Second, Work: time.Minute}})
		r, err := c.Call(t.Context(), "twice", nil)
		if got := textOf(t, r, err); !strings.Contains(got, `"confirm":true`) {
			t.Error(got)
		}
		for tool, people := range map[string]time.Duration{"wait": 0, "ask and wait": 54 * time.Minute} {
			began := time.Now()
			_, err = c.Call(t.Context(), tool, nil)
			wants(t, err, client.ErrUnknown, "silent")
			if took := time.Since(began) - people; took < 0 || took > 6*time.Second {
				t.Errorf("%s: the server was silent for %v", tool, took)
			}
		}
	})
}

// case S24
func TestASessionThatIsGoneIsMadeAnewAndTheCallSentOnce(t *testing.T) {
	s := oldServer(t)
	var handled, gone atomic.Int32
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				handled.Add(1)
			}
			return next(ctx, method, r)
		}
	})
	var lose atomic.Bool
	transport := overHTTP(t, s, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") != "" && lose.CompareAndSwap(true, false) {
			gone.Add(1)
			http.Error(w, "session not found", http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
	c := newClient(t, client.Options{Transport: transport, Answerer: yes()})
	for i := range 3 {
		lose.Store(i > 0)
		r, err := c.Call(t.Context(), "form", nil)
		if got := textOf(t, r, err); !strings.Contains(got, "accept") || int(handled.Load()) != i+1 || int(gone.Load()) != i {
			t.Fatalf("call %d: %s; handled %d times, the session was gone %d times", i, got, handled.Load(), gone.Load())
		}
	}
}

// case S45: a panic, or a yes with nothing in it, harms nobody.
func TestAnOldServerGetsNoAnswerThatIsNone(t *testing.T) {
	for name, answer := range map[string]func(context.Context, client.Question) (client.Answer, error){
		"panics": func(context.Context, client.Question) (client.Answer, error) { panic("oh") },
		"has none": func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{}, client.ErrNoAnswer
		},
		"no content": func(context.Context, client.Question) (client.Answer, error) { return client.Accept(nil) },
		"misfits": func(context.Context, client.Question) (client.Answer, error) {
			return client.Accept(map[string]int{"confirm": 1})
		},
	} {
		c := newClient(t, client.Options{Transport: inMemory(t, oldServer(t)), Answerer: &person{answer: answer}})
		if r, err := c.Call(t.Context(), "form", nil); err == nil && !r.IsError {
			t.Errorf("%s: %s", name, textOf(t, r, err))
		}
	}
}

// A server of 2025-11-25 that wants a page to be visited first: it is asked for,
// and the same request sent again.
func TestPagesThatAreRequiredAreAskedFor(t *testing.T) {
	const page = `{"mode":"url","elicitationId":"e-1","url":"https://bank.test/","message":"Link your account"}`
	dismiss := &person{answer: func(context.Context, client.Question) (client.Answer, error) { return client.Dismiss(), nil }}
	decline := &person{answer: func(context.Context, client.Question) (client.Answer, error) { return client.Decline(), nil }}
	forms := yes()
	forms.kinds = []client.Kind{client.Form}
	for name, c := range map[string]struct {
		data    string
		who     *person
		always  bool
		err     error
		outcome string
		sent    int
		asked   int
	}{
		"visited":                   {data: `{"elicitations":[` + page + `]}`, who: yes(), sent: 2, asked: 1},
		"two of them":               {data: `{"elicitations":[` + page + `,` + page + `]}`, who: yes(), sent: 2, asked: 2},
		"declined":                  {data: `{"elicitations":[` + page + `]}`, who: decline, err: client.ErrFailed, outcome: "declined", sent: 1, asked: 1},
		"dismissed":                 {data: `{"elicitations":[` + page + `]}`, who: dismiss, err: client.ErrFailed, outcome: "dismissed", sent: 1, asked: 1},
		"on and on":                 {data: `{"elicitations":[` + page + `]}`, who: yes(), always: true, err: client.ErrRounds, sent: 4, asked: 3},
		"none":                      {data: `{"elicitations":[]}`, who: yes(), err: client.ErrFailed, sent: 1},
		"no data":                   {who: yes(), err: client.ErrFailed, sent: 1},
		"a form":                    {data: `{"elicitations":[{"mode":"form","message":"m","requestedSchema":{"type":"object"}}]}`, who: yes(), err: client.ErrFailed, sent: 1},
		"without a URL":             {data: `{"elicitations":[{"mode":"url","message":"m"}]}`, who: yes(), err: client.ErrFailed, sent: 1},
		"nobody who could be asked": {data: `{"elicitations":[` + page + `]}`, who: forms, err: client.ErrFailed, sent: 1},
		"more than may be open":     {data: `{"elicitations":[` + strings.Repeat(page+`,`, 9) + page + `]}`, who: yes(), err: client.ErrFailed, sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				say := refusal(-32042, "visit a page first", c.data)
				then := inTurn(say, result(`{"content":[]}`))
				if c.always {
					then = say
				}
				f := fakeServer(t, map[string]saying{
					"server/discover": refusal(-32601, "no such method", ""), "initialize": result(initialized), "tools/call": then,
				})
				before := c.who.times()
				_, err := f.client(client.Options{Answerer: c.who, Limits: client.Limits{Rounds: 3, Questions: 8}}).Call(t.Context(), "pay", map[string]int{"n": 1})
				if c.err == nil && err != nil {
					t.Fatal(err)
				} else if c.err != nil {
					if e := wants(t, err, c.err); c.err == client.ErrFailed && (e.Code != -32042 || e.Outcome != c.outcome || e.MaybeDone) {
						t.Errorf("%+v", e)
					}
				}
				all := f.got("tools/call")
				if len(all) != c.sent || c.who.times()-before != c.asked {
					t.Errorf("sent %d times, asked %d times", len(all), c.who.times()-before)
				}
				for _, r := range all {
					if r.param("arguments") != `{"n":1}` || r.param("inputResponses")+r.param("requestState") != "" {
						t.Errorf("sent %s", r.Params)
					}
				}
				if c.asked > 0 {
					if q := c.who.asked[before]; q.Kind != client.URL || q.URL != "https://bank.test/" || q.Message != "Link your account" || q.Name != "pay" {
						t.Errorf("asked %+v", q)
					}
				}
			})
		})
	}
}

// Whoever goes on after a restart sends it: what was accepted is on disk.
func TestPagesThatWereVisitedAreRemembered(t *testing.T) {
	f := fakeServer(t, map[string]saying{
		"server/discover": refusal(-32601, "no such method", ""), "initialize": result(initialized),
		"tools/call": inTurn(refusal(-32042, "first", `{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://bank.test/","message":"m"}]}`), result(`{"content":[]}`)),
	})
	m := openMemory(t, memoryPath(t))
	asked := make(chan client.Question, 1)
	p := &person{answer: func(ctx context.Context, q client.Question) (client.Answer, error) {
		asked <- q
		return silent(ctx, q)
	}}
	h, err := f.client(client.Options{Memory: m, Answerer: p}).Start(t.Context(), "pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := <-asked
	h.Detach()
	yes, err := client.Accept(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Answer(t.Context(), h.ID(), q.ID, yes); err != nil {
		t.Fatal(err)
	}
	again, err := f.client(client.Options{Memory: m}).Attach(t.Context(), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Wait(t.Context()); err != nil || len(f.got("tools/call")) != 2 {
		t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
	}
}
