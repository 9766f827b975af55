package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// FuzzReadReply: any bytes are a result, a round or a task, or an error; never
// more than one of them.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{
		`{"resultType":"complete","content":[{"type":"text","text":"done"}]}`, `{"content":[],"isError":true}`,
		`{"resultType":"input_required","requestState":"s"}`, `{"resultType":"input_required"}`, `{"resultType":7}`,
		`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}}},"requestState":""}`,
		`{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"javascript:alert(1)"}},"r":{"method":"roots/list"},"s":{"method":"sampling/createMessage","params":{}}}}`,
		`{"resultType":"task","taskId":"t","status":"working","ttlMs":null,"pollIntervalMs":9223372036854775807}`,
		`{"ResultType":"task","resulttype":"x","resultType":"complete","resultType":"task"}`,
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, taskable bool) {
		const limit = 8
		r, err := readReply(raw, taskable, limit)
		if err != nil {
			if !errors.Is(err, ErrInvalidResponse) || len(err.Error()) > 4<<10+2*len(raw) {
				t.Fatalf("%d bytes of %T: %v", len(err.Error()), err, err)
			}
			return
		}
		shapes := 0
		for _, is := range []bool{r.complete != nil, r.asks != nil, r.task != nil} {
			if is {
				shapes++
			}
		}
		if shapes != 1 || !isObject(raw) || r.task != nil && !taskable {
			t.Fatalf("%d shapes at once of %q", shapes, raw)
		}
		if r.asks == nil {
			return
		}
		if len(r.asks.questions) > limit || len(r.asks.questions) == 0 && r.asks.state == nil {
			t.Fatalf("%+v", r.asks)
		}
		for i := range r.asks.questions {
			q := &r.asks.questions[i]
			decline := Decline()
			response, err := decline.response(q.Kind)
			if q.Kind == Form || q.Kind == URL {
				if err != nil || fits(q, response) != nil { // a no always fits
					t.Fatalf("%+v cannot be declined: %v", q, err)
				}
			}
			if got := responses([]question{{Key: q.Key, Response: json.RawMessage("1")}}); !isObject(got) {
				t.Fatalf("the key %q cannot be answered: %s", q.Key, got)
			}
		}
		if s := r.asks.state; s != nil { // it goes back as the string that it is
			b, err := marshal(*s)
			var back string
			if err != nil || unmarshal(b, &back) != nil || back != *s {
				t.Fatalf("%q goes back as %s", *s, b)
			}
		}
	})
}

// FuzzReadTask: any bytes are a task that can be merged into what is known, or
// an error.
func FuzzReadTask(f *testing.F) {
	for _, seed := range []string{
		`{"taskId":"t","status":"working","ttlMs":60000,"pollIntervalMs":1000,"statusMessage":"half"}`,
		`{"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`,
		`{"taskId":"t","status":"completed","result":{"content":[]}}`, `{"taskId":"t","status":"failed","error":{"code":-32603,"message":"oh","data":{"outcome":"expired"}}}`,
		`{"taskId":"t","status":"cancelled"}`, `{"taskId":"","status":"working"}`, `{"taskId":"t","status":"working","ttlMs":1e3}`,
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, polled bool) {
		m, err := readTask(raw, 8)
		if err != nil {
			if !errors.Is(err, ErrInvalidResponse) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if m.ID == "" || m.Poll < 0 || m.TTL != nil && *m.TTL < 0 || len(m.Questions) > 8 {
			t.Fatalf("%+v", m)
		}
		e := &entry{ID: "c", Stage: stageWatching, Task: newTask(m)}
		e.merge(m, polled)
		open := len(e.status().Open)
		if open != len(m.Questions) || interval(e.Task) < leastPoll {
			t.Fatalf("%d are asked, %d are open; polled each %v", len(m.Questions), open, interval(e.Task))
		}
		if e.clone().merge(m, polled) { // the same again is nothing new
			t.Fatalf("%q changes it twice", raw)
		}
		again, err := json.Marshal(e)
		if err != nil || !isObject(again) {
			t.Fatalf("it cannot be kept: %v", err)
		}
	})
}

// FuzzEvents: a stream is read within its limit, the same in whatever pieces it
// comes.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"id: 1\nevent: message\ndata: {}\n\n", "data: a\ndata: b\r\n\r\n", ": comment\n\ndata\n\n", "data: no end", "id\ndata:x\n\nretry: 5\n\n", "\n\n\n", "data:" + strings.Repeat("x", 100) + "\n\n",
	} {
		f.Add([]byte(seed), 64)
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit int) {
		if limit < 1 || limit > 4<<10 {
			return
		}
		type event struct {
			id   string
			data string
		}
		read := func(piece int) (all []event, err error) {
			err = events(&pieces{raw, piece}, limit, func(id string, data []byte) error {
				if len(data) > limit {
					t.Fatalf("%d bytes, over the limit %d", len(data), limit)
				}
				all = append(all, event{id, string(data)})
				return nil
			})
			return all, err
		}
		whole, err1 := read(len(raw) + 1)
		parts, err2 := read(1)
		if len(whole) != len(parts) || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%d events (%v) at once, %d (%v) byte by byte", len(whole), err1, len(parts), err2)
		}
		for i := range whole {
			if whole[i] != parts[i] {
				t.Fatalf("%q at once, %q byte by byte", whole[i], parts[i])
			}
		}
		stop := errors.New("stop")
		if err := events(bytes.NewReader(raw), limit, func(string, []byte) error { return stop }); len(whole) > 0 && err != stop {
			t.Fatalf("it went on: %v", err)
		}
	})
}

// pieces gives so many bytes at a time.
type pieces struct {
	raw []byte
	n   int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.raw) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.raw)
	p.raw = p.raw[n:]
	return n, nil
}

// FuzzSieve: of a response's events only those come through that are messages,
// within the limit, the same in whatever pieces they come.
func FuzzSieve(f *testing.F) {
	for _, seed := range []string{
		"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"ts-1\",\"result\":{}}\n\n", "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"x\"}\r\n\r\n",
		": comment\n\n", "event: other\ndata: no message\n\n", "data: no message\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", "data\n\n", "data:\n\n",
		"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":" + strings.Repeat("[", 600), "id: 1\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\ndata: x\n\n",
	} {
		f.Add([]byte(seed), 256)
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit int) {
		if limit < 1 || limit > 4<<10 {
			return
		}
		read := func(piece int) (string, bool, error) {
			broke := false
			s := newSieve(io.NopCloser(&pieces{raw, piece}), limit, func(error) { broke = true })
			all, err := io.ReadAll(s)
			return string(all), broke, err
		}
		whole, broke, err := read(len(raw) + 1)
		parts, broke1, err1 := read(1)
		if whole != parts || broke != broke1 || (err == nil) != (err1 == nil) {
			t.Fatalf("%q (%v, %v) at once, %q (%v, %v) byte by byte", whole, broke, err, parts, broke1, err1)
		}
		for event := range strings.SplitSeq(whole, "\n\n") {
			if len(event) > limit {
				t.Fatalf("an event of %d bytes, over the limit %d", len(event), limit)
			}
			name, data := "", ""
			for line := range strings.SplitSeq(event, "\n") {
				field, value, _ := strings.Cut(line, ":")
				switch field {
				case "event":
					name = strings.TrimSpace(value)
				case "data":
					data += strings.TrimSpace(value) + "\n"
				}
			}
			if (name == "" || name == "message") && strings.TrimSpace(data) != "" && !isRPC([]byte(data)) {
				t.Fatalf("%q comes through", event)
			}
		}
	})
}
