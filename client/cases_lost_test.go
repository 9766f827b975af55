package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
)

// ways in which a response is lost after the request has arrived.
func lostWays() map[string]saying {
	return map[string]saying{
		"the connection ends":         hangUp(""),
		"in the middle of a header":   hangUp("HTTP/1.1 200 OK\r\nContent-Ty"),
		"in the middle of a body":     hangUp("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"jsonrpc\":"),
		"in the middle of a chunk":    hangUp("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{\"jsonrpc\":"),
		"in the middle of an event":   hangUp("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nff\r\ndata: {\"jsonrpc\":"),
		"a stream that ends":          stream(func(func(string), request) {}),
		"a stream that only reports":  stream(func(send func(string), r request) { send(progressOf(r, 1, 2, "half")) }),
		"a bad gateway":               status(http.StatusBadGateway),
		"an internal error":           status(http.StatusInternalServerError),
		"a gateway that timed out":    status(http.StatusGatewayTimeout),
		"no time":                     status(http.StatusServiceUnavailable),
		"a page":                      func(w http.ResponseWriter, _ request) { fmt.Fprint(w, "<html>hello</html>") },
		"accepted and nothing more":   status(http.StatusAccepted),
		"no content":                  func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusNoContent) },
		"the response of another one": func(w http.ResponseWriter, r request) { r.ID = []byte(`"other"`); result(done)(w, r) },
	}
}

func progressOf(r request, done, total float64, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%v,"total":%v,"message":%q}}`,
		r.param("_meta", "progressToken"), done, total, message)
}

// case S20, S24, S25: bytes may have left, so it is not sent again by itself.
func TestWhatMayHaveBeenDoneIsNotSentAgain(t *testing.T) {
	for name, lose := range lostWays() {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(lose, result(done))})
			c := f.client(client.Options{Limits: client.Limits{Request: time.Second}})
			_, err := c.Call(t.Context(), "pay", nil)
			e := wants(t, err, client.ErrUnknown)
			if n := len(f.got("tools/call")); n != 1 {
				t.Fatalf("it was sent %d times", n)
			}
			h, err := c.Attach(t.Context(), e.ID)
			if err != nil {
				t.Fatal(err)
			}
			_, err = h.Wait(t.Context()) // it stays so
			wants(t, err, client.ErrUnknown)
			if h, err = h.Again(t.Context()); err != nil { // unless its caller knows better
				t.Fatal(err)
			}
			if _, err := h.Wait(t.Context()); err != nil || len(f.got("tools/call")) != 2 {
				t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
			}
		})
	}
}

// case S20: it is, to a server that knows it again by its key.
func TestWithAKeptKeyItIsSentAgain(t *testing.T) {
	for name, lose := range lostWays() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{"tools/call": inTurn(lose, asking(form("k"), `"s"`), lose, result(done))})
				f.discover = keepingServer
				p := yes()
				c := f.client(client.Options{Answerer: p, Limits: client.Limits{Request: time.Second}})
				if _, err := c.Call(t.Context(), "pay", map[string]int{"n": 1}); err != nil {
					t.Fatal(err)
				}
				all := f.got("tools/call")
				if len(all) != 4 || p.times() != 1 {
					t.Fatalf("sent %d times, asked %d times", len(all), p.times())
				}
				for i := range 2 {
					first, again := all[2*i], all[2*i+1]
					for _, member := range [][]string{{"_meta", "tallystick/idempotencyKey"}, {"arguments"}, {"requestState"}, {"inputResponses"}} {
						if first.param(member...) != again.param(member...) {
							t.Errorf("%v: %s, and again %s", member, first.param(member...), again.param(member...))
						}
					}
					if string(first.ID) == string(again.ID) {
						t.Errorf("both have the id %s", first.ID)
					}
				}
				if all[0].param("_meta", "tallystick/idempotencyKey") == "" {
					t.Error("there is no key")
				}
			})
		})
	}
}

// case S24, S26
func TestAKeyIsGoodForAsLongAsTheServerKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": status(http.StatusBadGateway)})
		c := f.client(client.Options{KeysKept: 20 * time.Second, Limits: client.Limits{Outage: time.Hour}})
		began := time.Now()
		_, err := c.Call(t.Context(), "pay", nil)
		wants(t, err, client.ErrUnknown)
		all := f.got("tools/call")
		if last := all[len(all)-1].At.Sub(all[0].At); last >= 20*time.Second || len(all) < 4 || time.Since(began) > time.Minute {
			t.Errorf("sent %d times, the last time after %v", len(all), last)
		}
	})
}

// case S21, S24: whatever the server has said is an end, keys or not.
func TestWhatTheServerHasSaidIsNotAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		say saying
		err error
	}{
		"an error":           {refusal(-32602, "no such order", `{"order":"1"}`), client.ErrFailed},
		"an internal error":  {refusal(-32603, "oh", ""), client.ErrFailed},
		"a bad request":      {status(http.StatusBadRequest), client.ErrFailed},
		"not found":          {status(http.StatusNotFound), client.ErrFailed},
		"too large":          {status(http.StatusRequestEntityTooLarge), client.ErrFailed},
		"unauthorised":       {status(http.StatusUnauthorized), client.ErrUnauthorized},
		"forbidden":          {status(http.StatusForbidden), client.ErrUnauthorized},
		"a tool's own error": {result(`{"content":[{"type":"text","text":"half done"}],"isError":true}`), nil},
		"no result":          {result(`{"resultType":"?"}`), client.ErrInvalidResponse},
		"a result twice":     {result(`{"content":[],"content":[]}`), client.ErrInvalidResponse},
		"no object":          {result(`[]`), client.ErrInvalidResponse},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": c.say})
			f.discover = keepingServer
			r, err := f.client(client.Options{}).Call(t.Context(), "pay", nil)
			if c.err != nil {
				wants(t, err, c.err)
			} else if err != nil || !r.IsError {
				t.Errorf("%v, %v", r, err)
			}
			if n := len(f.got("tools/call")); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// case S24: what certainly was not looked at is sent again by itself.
func TestWhatNeverArrivedIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": inTurn(
			status(http.StatusTooManyRequests, "Retry-After", "17"), status(http.StatusTooManyRequests), result(done))})
		var dials atomic.Int32
		c := f.client(client.Options{Transport: func() (mcp.Transport, error) {
			next := f.net.roundTripper(t)
			dial := next.DialContext
			next.DisableKeepAlives = true
			next.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if n := dials.Add(1); n == 2 || n == 3 { // the first is server/discover's
					return nil, errors.New("connection refused")
				}
				return dial(ctx, network, addr)
			}
			return &mcp.StreamableClientTransport{Endpoint: "http://fake.test/", HTTPClient: &http.Client{Transport: next}}, nil
		}})
		if _, err := c.Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		all := f.got("tools/call")
		if len(all) != 3 || dials.Load() != 6 {
			t.Fatalf("it arrived %d times, over %d dials", len(all), dials.Load())
		}
		if gap := all[1].At.Sub(all[0].At); gap < 17*time.Second {
			t.Errorf("Retry-After 17 was followed after %v", gap)
		}
	})
}

func TestAServerThatCannotBeReachedLeavesTheCallOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeServer(t, map[string]saying{"tools/call": result(done)})
		var there atomic.Bool
		c := f.client(client.Options{Transport: func() (mcp.Transport, error) {
			if !there.Load() {
				return nil, errors.New("the host is asleep")
			}
			return f.transport()
		}})
		began := time.Now()
		_, err := c.Call(t.Context(), "pay", nil)
		e := wants(t, err, client.ErrUnreachable, "asleep")
		if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
			t.Errorf("it was tried for %v, not a minute", took)
		}
		there.Store(true)
		h, err := c.Attach(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil || len(f.got("tools/call")) != 1 {
			t.Errorf("%v, sent %d times", err, len(f.got("tools/call")))
		}
	})
}

// untraced is a RoundTripper that tells nothing of its connections.
type untraced struct {
	f func(*http.Request) (*http.Response, error)
}

func (u untraced) RoundTrip(r *http.Request) (*http.Response, error) { return u.f(r) }

// case S20: what cannot be known is taken for the worse.
func TestARoundTripperThatTellsNothingMayHaveSentIt(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": result(done)})
	c := f.client(client.Options{Transport: func() (mcp.Transport, error) {
		next := f.net.roundTripper(t)
		return &mcp.StreamableClientTransport{Endpoint: "http://fake.test/", HTTPClient: &http.Client{Transport: untraced{func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			inner, err := http.NewRequest(r.Method, r.URL.String(), strings.NewReader(string(body)))
			if err != nil {
				return nil, err
			}
			inner.Header = r.Header
			resp, err := next.RoundTrip(inner)
			if err == nil && strings.Contains(string(body), `"tools/call"`) {
				resp.Body.Close()
				return nil, errors.New("stream error")
			}
			return resp, err
		}}}}, nil
	}})
	_, err := c.Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrUnknown)
	if n := len(f.got("tools/call")); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

// case S25: connections die at every moment, and no call is left hanging, done
// twice, or without a record.
func TestEachCallEndsInOneWayWhateverBecomesOfTheConnection(t *testing.T) {
	const calls = 60
	ways := []saying{}
	for _, w := range lostWays() {
		ways = append(ways, w)
	}
	var n atomic.Int32
	var mu sync.Mutex
	arrived := map[string]int{}
	f := fakeServer(t, map[string]saying{"tools/call": func(w http.ResponseWriter, r request) {
		mu.Lock()
		arrived[r.param("arguments", "n")]++
		mu.Unlock()
		if i := int(n.Add(1)); i%2 == 0 {
			ways[i/2%len(ways)](w, r)
			return
		}
		result(done)(w, r)
	}})
	m := openMemory(t, memoryPath(t))
	c := f.client(client.Options{Memory: m, Limits: client.Limits{Request: time.Second}})
	var all sync.WaitGroup
	var ok, unknown atomic.Int32
	for i := range calls {
		all.Go(func() {
			switch _, err := c.Call(t.Context(), "pay", map[string]int{"n": i}); {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, client.ErrUnknown):
				unknown.Add(1)
			default:
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if ok.Load()+unknown.Load() != calls || ok.Load() == 0 || unknown.Load() == 0 {
		t.Errorf("%d have a result, %d are unknown", ok.Load(), unknown.Load())
	}
	for i, times := range arrived {
		if times != 1 {
			t.Errorf("call %s arrived %d times", i, times)
		}
	}
	list, err := m.List(t.Context())
	if err != nil || len(list) != calls {
		t.Fatalf("%d are on record, %v", len(list), err)
	}
	for _, s := range list {
		if !s.State.Final() {
			t.Errorf("%s is %s", s.ID, s.State)
		}
	}
}

// case S97, S75: reports keep a request from being given up in silence, and not
// for ever.
func TestReportsKeepARequestAliveWithinItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		reports int
		err     error
	}{"for 80 s": {80, nil}, "for ever": {1 << 30, client.ErrUnknown}, "not at all": {0, client.ErrUnknown}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeServer(t, map[string]saying{"tools/call": stream(func(send func(string), r request) {
					for i := range c.reports {
						select {
						case <-time.After(time.Second):
							send(progressOf(r, float64(i), 0, "step "+fmt.Sprint(i)))
						case <-r.HTTP.Context().Done():
							return
						}
					}
					if c.reports == 0 {
						silence(nil, r)
						return
					}
					send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, done))
				})})
				var told atomic.Int32
				cl := f.client(client.Options{Limits: client.Limits{Request: 10 * time.Second, Work: 5 * time.Minute}, Notify: func(s client.Status) {
					if strings.HasPrefix(s.Message, "step ") {
						told.Add(1)
					}
				}})
				began := time.Now()
				_, err := cl.Call(t.Context(), "pay", nil)
				if c.err == nil && err != nil {
					t.Error(err)
				} else if c.err != nil {
					wants(t, err, c.err)
				}
				if took := time.Since(began); took > 5*time.Minute+time.Second || c.reports == 0 && took > 11*time.Second {
					t.Errorf("it took %v", took)
				}
				if c.reports > 0 && int(told.Load()) < min(c.reports, 200) {
					t.Errorf("Notify was told %d times", told.Load())
				}
			})
		})
	}
}
