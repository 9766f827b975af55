package tallystick_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tallystick/tallystick/internal/wire/shape"
)

// judged holds all that h answers to requests of revision 2026-07-28 against
// the schemas: of every test that has a desk, whatever the test is about.
func judged(t *testing.T, h http.Handler) http.Handler {
	judge, err := shape.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &copied{ReadCloser: r.Body}
		r.Body = body
		sent := &recorded{ResponseWriter: w}
		h.ServeHTTP(sent, r)
		request := body.bytes()
		if r.Method != http.MethodPost || !modern(r, request) {
			return
		}
		status, contentType, answer := sent.all()
		if err := judge.Response(request, status, contentType, answer); err != nil {
			t.Errorf("the answer to %.500s: %v", request, err)
		}
	})
}

// modern says whether a request is of revision 2026-07-28.
func modern(r *http.Request, body []byte) bool {
	var m struct {
		Params struct {
			Meta map[string]any `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m) // some bodies are bad on purpose
	_, inBody := m.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	return inBody || r.Header.Get("MCP-Protocol-Version") == "2026-07-28"
}

// copied is a body that keeps what was read of it.
type copied struct {
	io.ReadCloser
	mu   sync.Mutex
	read []byte
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, p[:n]...)
	return n, err
}

func (c *copied) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.read)
}

// recorded is a ResponseWriter that keeps what was written to it.
type recorded struct {
	http.ResponseWriter
	mu     sync.Mutex
	status int
	body   []byte
}

func (w *recorded) WriteHeader(status int) {
	w.mu.Lock()
	if w.status == 0 {
		w.status = status
	}
	w.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorded) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.body = append(w.body, p...)
	w.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController], Flush for who asks for a Flusher.
func (w *recorded) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *recorded) Flush()                      { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *recorded) all() (status int, contentType string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status, w.Header().Get("Content-Type"), bytes.Clone(w.body)
}

// What the schemas would object to is seen, though nothing else looks at it.
func TestEveryAnswerOfADeskIsJudged(t *testing.T) {
	judge, err := shape.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the official schemas judge too: %t", judge.Official())
	d := newDesk(t, setup{tools: addKinds})
	r := d.as("ann/acme", capsForm).call("form", nil)
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"form","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	for what, change := range map[string]func(map[string]any){
		"nothing":            nil,
		"no resultType":      func(m map[string]any) { delete(m, "resultType") },
		"neither of the two": func(m map[string]any) { delete(m, "inputRequests"); delete(m, "requestState") },
		"another request":    func(m map[string]any) { m["inputRequests"] = map[string]any{"k": map[string]any{"method": "ping"}} },
		"a task as well":     func(m map[string]any) { m["taskId"] = "t" },
	} {
		if change != nil {
			change(r.result)
		}
		body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "result": r.result})
		if err := judge.Response(request, r.status, "application/json", body); (err == nil) != (change == nil) {
			if change == nil {
				continue // a change came before it
			}
			t.Errorf("%s: %v", what, err)
		}
		r = d.as("ann/acme", capsForm).call("form", nil)
	}
}

// judgeMessage judges what came over a connection that is not HTTP.
func judgeMessage(t *testing.T, req *jsonrpc.Request, msg jsonrpc.Message) {
	t.Helper()
	judge, err := shape.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	asked, err := jsonrpc.EncodeMessage(req)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		t.Fatal(err)
	}
	if err := judge.Message(asked, sent); err != nil {
		t.Errorf("the answer to %.500s: %v", asked, err)
	}
}
