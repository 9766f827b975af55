package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick"
)

var (
	requesters = []string{"ann/acme", "bob/acme", "fay/acme/finance", "zed/evil"}
	deciders   = []string{"fay/acme/finance", "flo/acme/finance", "fin/acme/finance", "eve/acme", "zoe/evil/finance", "zac/evil/finance"}
	forms      = `{"elicitation":{}}`
	tasks      = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// A ticket is a state, or a task id, and whose it is.
type ticket struct {
	token, caps, tool, order string
	call                     string // its id, if known
	state                    string
	round                    int // of the call, counting from its first state
	keys                     []string
	task                     bool
}

// told is what somebody did, and was told.
type told struct {
	began, ended time.Time
	token        string
	method       string
	ticket       ticket // with what it was sent
	keyed        string // the idempotency key it was sent with
	answers      map[string]any
	decision     *tallystick.Decision
	lost         bool // no response was heard
	status       int
	raw          string
	reply        reply
	err          string // of Decide
	thief        bool   // it is none of theirs
	listens      time.Duration
	notes        []note // of a listen
}

// A note is a notification, and when it was sent.
type note struct {
	at     time.Time
	method string
	params result
	tasks  []string // of an acknowledgement
}

type reply struct {
	Result *result   `json:"result"`
	Error  *rpcError `json:"error"`
}

type result struct {
	ResultType    string                     `json:"resultType"`
	Content       []struct{ Text string }    `json:"content"`
	Structured    json.RawMessage            `json:"structuredContent"`
	IsError       bool                       `json:"isError"`
	State         string                     `json:"requestState"`
	InputRequests map[string]json.RawMessage `json:"inputRequests"`
	Meta          map[string]any             `json:"_meta"`
	TaskID        string                     `json:"taskId"`
	Status        string                     `json:"status"`
	StatusMessage string                     `json:"statusMessage"`
	TTL           int64                      `json:"ttlMs"`
	Result        json.RawMessage            `json:"result"`
	Error         json.RawMessage            `json:"error"`
}

type rpcError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

func (t told) outcome() string {
	if t.reply.Result == nil {
		return ""
	}
	s, _ := t.reply.Result.Meta["tallystick/outcome"].(string)
	return s
}

// broken reports whether the server failed, as it said itself.
func (t told) broken() bool {
	return t.status >= 500 || t.reply.Error != nil && t.reply.Error.Code == -32603
}

// slow reports whether the reply came as a stream, since it took long.
func (t told) slow() bool { return strings.HasPrefix(t.raw, ":") }

// final reports whether the reply tells how the call has ended.
func (t told) final() bool {
	if t.reply.Result == nil || t.reply.Result.ResultType != "complete" || t.reply.Result.Status != "" {
		return false
	}
	return !slices.Contains([]string{"pending", "working", "held", "busy", "not_allowed"}, t.outcome())
}

func (t told) ok() bool { return !t.lost && t.reply.Result != nil }

var callIDs = regexp.MustCompile(`[A-Z2-7]{26}`)

// replica is one that serves, or nil.
func (w *world) replica(r *rand.Rand) *replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.replicas) == 0 {
		return nil
	}
	return w.replicas[r.IntN(len(w.replicas))]
}

// send puts a request through a replica's handler. The sender may hang up.
func (w *world) send(r *rand.Rand, sent told, params map[string]any) (o told) {
	o = sent
	rep := w.replica(r)
	o.began = time.Now()
	hangUp := time.Duration(0)
	if w.weather.lossy > 0 && !w.calmNow() && r.Float64() < w.weather.lossy {
		hangUp = time.Duration(r.Int64N(int64([]time.Duration{time.Millisecond, time.Second, inline}[r.IntN(3)])))
	}
	defer func() { o.ended = time.Now() }()
	base := context.WithValue(context.Background(), lineage{}, fmt.Sprint(r.Uint32()))
	if rep == nil || rest(base, w.lagOf(r)) != nil || rep.move(base, "hears") != nil {
		o.lost = true
		return o
	}
	ctx, cancel := context.WithCancel(base)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/mcp", bytes.NewReader(w.body(o, params)))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": o.method, "Authorization": o.token,
	} {
		req.Header.Set(k, v)
	}
	switch {
	case o.listens > 0:
		hangUp = o.listens
	case strings.HasPrefix(o.method, "tasks/"):
		req.Header.Set("Mcp-Name", o.ticket.call)
	default:
		req.Header.Set("Mcp-Name", o.ticket.tool)
	}
	out := &stream{ResponseRecorder: httptest.NewRecorder()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rep.web.ServeHTTP(out, req)
	}()
	var gone <-chan time.Time
	if hangUp > 0 {
		t := time.NewTimer(hangUp)
		defer t.Stop()
		gone = t.C
	}
	select {
	case <-done:
	case <-rep.life.Done():
		o.lost = true
	case <-gone:
		o.lost = true
	}
	if o.lost {
		end := time.Now()
		cancel()
		<-done
		o.notes = out.notes(end)
		_ = rest(base, w.lagOf(r)) // many may lose their connection at one moment
		return o
	}
	o.notes = out.notes(never)
	if rep.move(base, "speaks") != nil {
		o.lost = true
		return o
	}
	_ = rest(base, w.lagOf(r))
	o.status, o.raw = out.Code, out.Body.String()
	o.read(out.Header().Get("Content-Type"), out.Body.Bytes())
	return o
}

// A stream is a response, with the moment at which each part of it was sent.
type stream struct {
	*httptest.ResponseRecorder
	times []time.Time
	ends  []int
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.ResponseRecorder.Write(b)
	s.times, s.ends = append(s.times, time.Now()), append(s.ends, s.Body.Len())
	return n, err
}

// notes are the notifications that were sent before that moment.
func (s *stream) notes(before time.Time) []note {
	var all []note
	from := 0
	for i, at := range s.times {
		part := s.Body.Bytes()[from:s.ends[i]]
		from = s.ends[i]
		for line := range bytes.Lines(part) {
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			var m struct {
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			}
			if !ok || json.Unmarshal(data, &m) != nil || m.Method == "" || !at.Before(before) {
				continue
			}
			n := note{at: at, method: m.Method}
			var agreed struct {
				Notifications struct{ TaskIDs []string }
			}
			if json.Unmarshal(m.Params, &n.params) == nil && json.Unmarshal(m.Params, &agreed) == nil {
				n.tasks = agreed.Notifications.TaskIDs
			}
			all = append(all, n)
		}
	}
	return all
}

func (o *told) read(kind string, raw []byte) {
	if strings.HasPrefix(kind, "text/event-stream") {
		for line := range bytes.Lines(bytes.Clone(raw)) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				raw = data
			}
		}
	}
	if json.Unmarshal(raw, &o.reply) != nil && o.status != http.StatusServiceUnavailable {
		o.reply = reply{}
	}
}

func (w *world) body(o told, more map[string]any) []byte {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(o.ticket.caps),
	}
	params := map[string]any{}
	maps.Copy(params, more)
	if o.keyed != "" {
		meta["tallystick/idempotencyKey"] = o.keyed
	}
	params["_meta"] = meta
	switch {
	case o.listens > 0:
	case strings.HasPrefix(o.method, "tasks/"):
		params["taskId"] = o.ticket.call
	default:
		params["name"] = o.ticket.tool
		params["arguments"] = map[string]any{"order": o.ticket.order}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": o.method, "params": params})
	if err != nil {
		w.t.Fatal(err)
	}
	return body
}

// hear remembers what somebody was told, and what it gives them.
func (w *world) hear(o told) told {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := o.ticket
	if res := o.reply.Result; res != nil && !o.thief {
		switch {
		case res.ResultType == "task":
			t.call, t.task, t.state = res.TaskID, true, ""
			w.tickets = append(w.tickets, t)
		case res.ResultType == "input_required" && res.State != "":
			if t.state != "" {
				t.round++
			}
			t.state, t.keys = res.State, slices.Sorted(maps.Keys(res.InputRequests))
			if id := callIDs.FindString(o.raw); id != "" && t.tool != "look" {
				t.call = id
			}
			w.tickets = append(w.tickets, t)
		case t.call == "":
			t.call = callIDs.FindString(string(res.Structured))
		}
		if t.call != "" && w.owners[t.call] == "" {
			w.owners[t.call] = t.token
		}
	}
	if o.ticket.call == "" {
		o.ticket.call = t.call
	}
	w.told = append(w.told, o)
	said := "nothing"
	switch {
	case o.listens > 0:
		said = fmt.Sprintf("%d notes", len(o.notes))
	case o.err != "":
		said = o.err
	case o.decision != nil && !o.lost:
		said = "done"
	case o.reply.Error != nil:
		said = fmt.Sprintf("error %d %s", o.reply.Error.Code, o.reply.Error.Message)
	case o.reply.Result != nil:
		said = strings.Join([]string{o.reply.Result.ResultType, o.reply.Result.Status, o.outcome()}, " ")
	case !o.lost:
		said = fmt.Sprint(o.status)
	}
	w.sayLocked("%s: %s %s %s of %s with %v since %.3f: %s", o.token, o.method, t.tool, t.order, name(t.call), o.answers, o.began.Sub(w.began).Seconds(), said)
	return o
}

// A person does one thing after another.
func (w *world) person(i int) {
	r := w.rand(fmt.Sprint("person ", i))
	for range 4 + r.IntN(7) {
		think := []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second, time.Minute}[r.IntN(4)]
		if r.IntN(40) == 0 {
			think = 20 * time.Minute
		}
		_ = rest(context.Background(), time.Duration(r.Int64N(int64(think)))+w.lagOf(r))
		switch r.IntN(13) {
		case 12:
			w.listen(r)
		case 0, 1, 2:
			w.call(r)
		case 3, 4, 5:
			w.retry(r)
		case 6:
			w.look(r)
		case 7, 8:
			w.update(r)
		case 9, 10:
			w.decide(r)
		default:
			w.cancel(r)
		}
	}
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

var tools = []string{"pay", "pay", "gift", "wire", "batch", "ship", "export", "parcel", "hasty", "look", "form"}

func (w *world) call(r *rand.Rand) {
	o := told{method: "tools/call", token: pick(r, requesters), ticket: ticket{tool: pick(r, tools), order: fmt.Sprint("o", r.IntN(orders)), caps: tasks}}
	if r.IntN(4) == 0 {
		o.ticket.caps = forms
	}
	o.ticket.token = o.token
	if r.IntN(2) == 0 {
		o.keyed = fmt.Sprint("k", r.IntN(3))
	}
	o = w.hear(w.send(r, o, nil))
	if o.keyed != "" && (o.lost || r.IntN(4) == 0) { // again, as a client does that has heard nothing
		o.ticket.call = ""
		w.hear(w.send(r, told{method: o.method, token: o.token, ticket: o.ticket, keyed: o.keyed}, nil))
	}
}

// ticket finds one of those, of late if possible.
func (w *world) ticket(r *rand.Rand, task bool) (ticket, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var of []ticket
	for _, t := range w.tickets {
		if t.task == task {
			of = append(of, t)
		}
	}
	if len(of) == 0 {
		return ticket{}, false
	}
	if r.IntN(3) > 0 {
		return of[len(of)-1], true
	}
	return pick(r, of), true
}

// answers to some of the keys: right, wrong, for others, none.
func answers(r *rand.Rand, tool string, keys []string) map[string]any {
	yes := func(key string) any {
		content := map[string]any{"confirm": true}
		switch {
		case tool == "form" && strings.HasPrefix(key, "size"):
			content = map[string]any{"size": 1 + r.IntN(2)}
		case tool == "form":
			content = map[string]any{"color": pick(r, []string{"red", "blue"})}
		}
		return map[string]any{"action": "accept", "content": content}
	}
	out := map[string]any{}
	for _, k := range keys {
		switch n := r.IntN(20); {
		case n < 13:
			out[k] = yes(k)
		case n == 13:
			out[k] = map[string]any{"action": "accept", "content": map[string]any{"confirm": false, "size": 3, "color": "none"}}
		case n == 14:
			out[k] = map[string]any{"action": "decline"}
		case n == 15:
			out[k] = map[string]any{"action": "cancel"}
		case n == 16:
			out[k] = map[string]any{"action": "accept", "content": map[string]any{"confirm": "yes", "size": "big", "color": 7}}
		case n == 17:
			out[k] = map[string]any{"role": "assistant", "content": map[string]any{"type": "text", "text": "yes"}, "model": "m"}
		case n == 18:
			out[k+"~2"], out["other"] = yes(k), yes(k)
		}
	}
	return out
}

// retry goes on with a round: once, twice, at the same time, with other answers,
// or as somebody else, who is told what nobody is told.
func (w *world) retry(r *rand.Rand) {
	t, ok := w.ticket(r, false)
	if !ok {
		return
	}
	o := told{method: "tools/call", token: t.token, ticket: t, answers: answers(r, t.tool, t.keys)}
	params := map[string]any{"requestState": t.state, "inputResponses": o.answers}
	switch n := r.IntN(10); {
	case n < 5:
		o = w.hear(w.send(r, o, params))
		if o.lost || r.IntN(3) == 0 { // the same again
			w.hear(w.send(r, told{method: o.method, token: t.token, ticket: t, answers: o.answers}, params))
		}
	case n < 8: // at the same time, the same or something else
		other := o
		if r.IntN(2) == 0 {
			other.answers = answers(r, t.tool, t.keys)
		}
		done, second := make(chan struct{}), rand.New(rand.NewPCG(r.Uint64(), 0))
		go func() {
			defer close(done)
			_ = rest(context.Background(), w.lagOf(second))
			w.hear(w.send(second, other, map[string]any{"requestState": t.state, "inputResponses": other.answers}))
		}()
		w.hear(w.send(r, o, params))
		<-done
	default:
		o.token, o.thief = pick(r, slices.Concat(requesters, deciders)), true
		if o.token == t.token {
			params["arguments"] = nil // body puts the order in
			o.ticket.order = "o9"     // the owner bends it
		}
		got := w.hear(w.send(r, o, params))
		params["requestState"] = "v1.nothing"
		w.same(got, w.hear(w.send(r, o, params)))
	}
}

// same blames a server that tells a thief more than that there is nothing.
func (w *world) same(got, nothing told) {
	if !got.ok() && got.reply.Error == nil || !nothing.ok() && nothing.reply.Error == nil || got.broken() || nothing.broken() {
		return
	}
	if !reflect.DeepEqual(got.reply, nothing.reply) || got.status != nothing.status && !got.slow() && !nothing.slow() {
		w.blame(8, "what is another's reads\n%s\nwhat is nobody's\n%s", got.raw, nothing.raw)
	}
	if got.reply.Error == nil {
		w.blame(1, "%s could use what is %s's: %s", got.token, got.ticket.token, got.raw)
	}
}

// task does something to a task, as its owner or as a thief.
func (w *world) task(r *rand.Rand, method string, t ticket, given map[string]any) told {
	o := told{method: method, token: t.token, ticket: t, answers: given}
	var params map[string]any
	if given != nil {
		params = map[string]any{"inputResponses": given}
	}
	if r.IntN(6) == 0 {
		if o.token, o.thief = pick(r, slices.Concat(requesters, deciders)), true; o.token != t.token {
			got := w.hear(w.send(r, o, params))
			o.ticket.call = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
			w.same(got, w.hear(w.send(r, o, params)))
			return got
		}
		o.thief = false
	}
	return w.hear(w.send(r, o, params))
}

func (w *world) look(r *rand.Rand) {
	if t, ok := w.ticket(r, true); ok {
		w.task(r, "tasks/get", t, nil)
	}
}

// listen watches a task for a while, its own or another's.
func (w *world) listen(r *rand.Rand) {
	t, ok := w.ticket(r, true)
	if !ok {
		return
	}
	o := told{method: "subscriptions/listen", token: t.token, ticket: t, listens: time.Duration(1 + r.Int64N(int64(2*time.Minute)))}
	if r.IntN(6) == 0 {
		o.token = pick(r, slices.Concat(requesters, deciders))
		o.thief = o.token != t.token
	}
	w.hear(w.send(r, o, map[string]any{"notifications": map[string]any{"taskIds": []string{t.call, "AAAAAAAAAAAAAAAAAAAAAAAAAA"}}}))
}

func (w *world) cancel(r *rand.Rand) {
	if t, ok := w.ticket(r, true); ok && r.IntN(2) == 0 {
		w.task(r, "tasks/cancel", t, nil)
	}
}

func (w *world) update(r *rand.Rand) {
	t, ok := w.ticket(r, true)
	if !ok {
		return
	}
	keys := []string{"go"}
	if r.IntN(2) == 0 {
		if o := w.task(r, "tasks/get", t, nil); o.ok() && len(o.reply.Result.InputRequests) > 0 {
			keys = slices.Sorted(maps.Keys(o.reply.Result.InputRequests))
		}
	}
	given := answers(r, t.tool, keys)
	if o := w.task(r, "tasks/update", t, given); o.lost || r.IntN(4) == 0 {
		w.task(r, "tasks/update", t, given)
	}
}

// decide settles out of band what waits for one of the deciders, or a held
// effect, as somebody who may or not.
func (w *world) decide(r *rand.Rand) {
	who := pick(r, deciders)
	waiting := w.waiting(r, who)
	for range min(len(waiting), 2) {
		q := pick(r, waiting)
		d := &tallystick.Decision{CallID: q.CallID, Key: q.Key, Digest: q.Digest, Accept: r.IntN(5) > 0}
		by := who
		if r.IntN(6) == 0 {
			by = pick(r, deciders)
		}
		if q.Requester.Tenant != identity(who).Tenant {
			w.blame(8, "%s is shown a call of %+v", who, q.Requester)
		}
		w.settle(r, by, d)
	}
}

func (w *world) waiting(r *rand.Rand, who string) []tallystick.Waiting {
	rep := w.replica(r)
	if rep == nil {
		return nil
	}
	list, err := rep.server.Waiting(context.WithValue(rep.life, lineage{}, fmt.Sprint(r.Uint32())), identity(who))
	if err != nil {
		return nil
	}
	return list
}

func (w *world) settle(r *rand.Rand, by string, d *tallystick.Decision) {
	rep := w.replica(r)
	if rep == nil {
		return
	}
	o := told{method: "decide", token: by, ticket: ticket{call: d.CallID, keys: []string{d.Key}}, decision: d, began: time.Now()}
	err := rep.server.Decide(context.WithValue(rep.life, lineage{}, fmt.Sprint(r.Uint32())), identity(by), *d)
	o.ended = time.Now()
	if err != nil {
		o.err = err.Error()
	}
	o.lost = rep.isDead()
	w.hear(o)
}

// operate has the operators look at what is held, and at the ledger, once
// nothing can arrive any more.
func (w *world) operate(r *rand.Rand) {
	for _, who := range []string{"opal/acme/operator", "oz/evil/operator"} {
		for _, q := range w.waiting(r, who) {
			if q.Effect == "" || !w.heldLong(q.CallID+q.Effect+q.Subject) {
				continue
			}
			d := &tallystick.Decision{CallID: q.CallID, Effect: q.Effect, Subject: q.Subject, Happened: w.happened(q.Requester.Tenant, q.Effect, q.Subject)}
			if d.Happened {
				d.Result = json.RawMessage("0")
			}
			w.settle(r, who, d)
		}
	}
}

func (w *world) heldLong(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heldAt[what].IsZero() {
		w.heldAt[what] = time.Now()
	}
	return time.Since(w.heldAt[what]) > 5*farthest
}
