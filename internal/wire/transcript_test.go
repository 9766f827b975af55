package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/txtar"
)

// An exchange is one request of a transcript and what must come back, the same
// on every transport that it is for.
type exchange struct {
	title    string
	request  string
	headers  []string // HTTP: "Name: value" adds or replaces, "Name:" removes
	status   int      // HTTP; zero means 200
	messages []string // in order, the response last; "*" in them matches anything
	only     string   // transports, by name; empty means all
}

// readTranscript reads a txtar file: a section "request TITLE" begins an
// exchange, and headers, status, response and only belong to it.
func readTranscript(t *testing.T, file string) []exchange {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	for _, f := range archive.Files {
		text := strings.TrimSpace(string(f.Data))
		kind, title, _ := strings.Cut(f.Name, " ")
		if kind == "request" {
			all = append(all, exchange{title: title, request: text})
			continue
		}
		e := &all[len(all)-1]
		switch kind {
		case "headers":
			e.headers = strings.Split(text, "\n")
		case "status":
			if e.status, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		case "response":
			e.messages = strings.Split(text, "\n")
		case "only":
			e.only = text
		default:
			t.Fatalf("%s: unknown section %q", file, f.Name)
		}
	}
	return all
}

// case S101: testdata/params.txtar has the members that fold to known ones.
func TestTranscriptsReadTheSameOnEveryTransport(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	carriers := map[string]func(*testing.T) carrier{"http": newHTTPCarrier, "memory": newMemoryCarrier, "stdio": newStdioCarrier}
	for name, make := range carriers {
		t.Run(name, func(t *testing.T) {
			c := make(t)
			for _, file := range files {
				for _, e := range readTranscript(t, file) {
					if e.only != "" && !strings.Contains(e.only, name) {
						continue
					}
					t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+e.title, func(t *testing.T) {
						got := c.exchange(t, e)
						compare(t, e, got)
						judgeMessages(t, e.request, got)
					})
				}
			}
		})
	}
}

// A carrier takes exchanges over one transport.
type carrier interface {
	exchange(t *testing.T, e exchange) (messages []string)
}

func compare(t *testing.T, e exchange, got []string) {
	t.Helper()
	if len(got) != len(e.messages) {
		t.Fatalf("got %d messages, want %d:\n%s", len(got), len(e.messages), strings.Join(got, "\n"))
	}
	for i := range got {
		if !matches(decode(t, e.messages[i]), decode(t, got[i])) {
			t.Errorf("message %d:\n got %s\nwant %s", i, got[i], e.messages[i])
		}
	}
}

func decode(t *testing.T, s string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	return v
}

func matches(want, got any) bool {
	if want == "*" {
		return true
	}
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(want, got)
	}
	g, ok := got.(map[string]any)
	if !ok || len(g) != len(w) {
		return false
	}
	for k, v := range w {
		x, ok := g[k]
		if !ok || !matches(v, x) {
			return false
		}
	}
	return true
}

type httpCarrier struct{ server *httptest.Server }

func newHTTPCarrier(t *testing.T) carrier {
	_, server := newHTTPServer(t, newFake(), nil)
	return httpCarrier{server}
}

func (c httpCarrier) exchange(t *testing.T, e exchange) []string {
	req := newPost(t, c.server.URL, e.request)
	for _, line := range e.headers {
		name, value, _ := strings.Cut(line, ":")
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, strings.TrimPrefix(value, " "))
		}
	}
	status, messages := send(t, c.server, req)
	if want := max(e.status, http.StatusOK); status != want {
		t.Errorf("status %d, want %d", status, want)
	}
	return messages
}

// newPost is a POST with the headers that its body asks for.
func newPost(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	var m struct {
		Method string
		Params struct {
			Name, URI, TaskID any
			Meta              map[string]any `json:"_meta"`
		}
	}
	_ = json.Unmarshal([]byte(body), &m) // some bodies are bad on purpose
	if v, ok := m.Params.Meta[mcp.MetaKeyProtocolVersion].(string); ok {
		req.Header.Set(headerVersion, v)
		req.Header.Set(headerMethod, m.Method)
	}
	for _, v := range []any{m.Params.Name, m.Params.URI, m.Params.TaskID} {
		if name, ok := v.(string); ok {
			req.Header.Set(headerName, name)
		}
	}
	return req
}

// send returns the status and the messages of a response, of either form.
func send(t *testing.T, server *httptest.Server, req *http.Request) (int, []string) {
	t.Helper()
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	judgeResponse(t, req, resp, body)
	var messages []string
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.SplitSeq(string(body), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				messages = append(messages, data)
			}
		}
	} else if len(body) > 0 {
		messages = []string{string(body)}
	}
	return resp.StatusCode, messages
}

// connect connects an SDK server to t, wrapped, until the test ends.
func connect(t *testing.T, transport mcp.Transport, h Handler) *mcp.ServerSession {
	t.Helper()
	wrapped := NewTransport(transport, h, TransportOptions{ServerInfo: json.RawMessage(serverInfo)})
	session, err := newSDKServer().Connect(context.Background(), wrapped, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

type memoryCarrier struct{ client mcp.Connection }

func newMemoryCarrier(t *testing.T) carrier {
	ours, theirs := mcp.NewInMemoryTransports()
	session := connect(t, ours, newFake())
	client, err := theirs.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		_ = session.Wait()
	})
	return memoryCarrier{client}
}

func (c memoryCarrier) exchange(t *testing.T, e exchange) []string {
	msg, err := jsonrpc.DecodeMessage([]byte(e.request))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.client.Write(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	var messages []string
	for range e.messages {
		msg, err := c.client.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := jsonrpc.EncodeMessage(msg)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(b))
	}
	return messages
}

// A stdioCarrier is the client's ends of two pipes.
type stdioCarrier struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newStdioCarrier(t *testing.T) carrier {
	c, _ := newStdio(t, newFake(), 0)
	return c
}

func newStdio(t *testing.T, h Handler, maxLine int) (*stdioCarrier, *mcp.ServerSession) {
	t.Helper()
	serverIn, clientOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	clientIn, serverOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	session := connect(t, Stdio(serverIn, serverOut, Limits{BodyBytes: int64(maxLine)}), h)
	t.Cleanup(func() {
		clientOut.Close()
		_ = session.Wait()
		clientIn.Close()
	})
	return &stdioCarrier{clientOut, bufio.NewReaderSize(clientIn, 1<<20)}, session
}

func (c *stdioCarrier) exchange(t *testing.T, e exchange) []string {
	c.write(t, e.request)
	var messages []string
	for range e.messages {
		messages = append(messages, c.read(t))
	}
	return messages
}

func (c *stdioCarrier) write(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *stdioCarrier) read(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(line, []byte("\n")))
}
