package tallystick_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
)

// An answer is all that somebody gets: messages on the wire, or an error and a
// list of Decide and Waiting.
type answer struct {
	status int
	header string // without what differs from one response to the next
	raw    string // without the request's id
	last   reply
	ids    []string // of calls that Waiting lists
}

// TestWhoMayDoWhat goes through the whole table. Whoever may not do something
// gets, of a call that is there, of one that was purged and of none, the same
// answer, byte by byte; nothing of the call is in it, and nothing has changed
// but that the attempt is on the call's record.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	keys, err := seal.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	expected := expectations(t)
	tried := 0
	same := map[string]map[string]string{} // the one answer: by way, kind, method, people and word
	for _, kind := range []string{"task", "inline", "carried"} {
		for _, state := range matrixStates {
			if noSuchCell(kind, "", "", state) != "" {
				tried += len(matrixMethods[kind]) * len(matrixPeople)
				continue
			}
			t.Run(kind+"/"+state, func(t *testing.T) {
				s := newStand(t, kind, state, keys)
				kept := s.subject(t, keys)                    // for who may not change it
				for _, refused := range []bool{true, false} { // the others make calls of their own, and many
					for _, method := range matrixMethods[kind] {
						for people := range matrixPeople {
							c := cell{kind, method, people, state}
							e := expected[c]
							if slices.Contains(refusalWords, e.word) != refused {
								continue
							}
							if tried++; e.word != "-" {
								s.try(t, c, e, kept, keys, same)
							}
						}
					}
				}
			})
		}
	}
	if tried != len(expected) && !t.Failed() {
		t.Errorf("%d of %d cells were tried", tried, len(expected))
	}
	for what, answers := range same {
		if len(answers) != 1 {
			t.Errorf("%s: %d answers that can be told apart: %q", what, len(answers), answers)
		}
	}
}

// refusals of the table: who gets one may not do it, and must not learn whether
// the call is there.
var refusalWords = []string{"none", "bad-state", "not-allowed", "401", "own", "nothing"}

func (s *stand) try(t *testing.T, c cell, e expectation, kept subject, keys *seal.Keyset, same map[string]map[string]string) {
	t.Helper()
	refused := slices.Contains(refusalWords, e.word)
	ways := []string{"http", "memory"}
	switch {
	case strings.HasPrefix(c.method, "decide ") || c.method == "waiting":
		ways = []string{"called"}
	case c.people == "expired":
		ways = []string{"http"} // there are no tokens elsewhere
	}
	for _, way := range ways {
		call := kept
		if !refused && s.kind != "carried" {
			call = s.subject(t, keys) // it may be changed
		}
		var before picture
		if refused {
			before = s.snapshot(t, call)
		}
		s.deny.Store(c.people == "withdrawn")
		got := s.ask(t, way, c, call)
		s.deny.Store(false)
		what := fmt.Sprintf("%s: %s of %s %s by %s", way, c.method, c.kind, c.state, c.people)
		if word := got.word(c, call); word != e.word {
			t.Errorf("%s: %s, want %s: %d %s", what, word, e.word, got.status, got.raw)
			continue
		}
		if !refused {
			continue
		}
		if s.onlyRefused(t, what, before, s.snapshot(t, call), e.onRecord, c) && e.word != "own" {
			got.tellsNothing(t, what, call, c)
		}
		group := strings.Join([]string{way, c.kind, c.method, c.people, e.word}, " ")
		if same[group] == nil {
			same[group] = map[string]string{}
		}
		text := fmt.Sprintf("%d %s %s", got.status, got.header, changing.ReplaceAllString(got.raw, `"$1":"…"`))
		if e.word == "own" {
			text = "" // its own call has its own ids and times
		}
		same[group][text] = c.state
	}
}

// tellsNothing checks that nothing of the call is in the answer. Its owner,
// permission or not, knows the id.
func (a answer) tellsNothing(t *testing.T, what string, call subject, c cell) {
	t.Helper()
	for _, secret := range []string{call.id, call.account, ownerName, secretWords, "transfer", "moved", "approve"} {
		if secret != "" && strings.Contains(a.raw+a.header, secret) && (secret != call.id || c.people != "withdrawn") {
			t.Errorf("%s: %q is in %s %s", what, secret, a.header, a.raw)
		}
	}
}

// A picture of what the store has of a call, and of how many there are.
type picture struct {
	call, marks string
	calls       int
	trail       []record.Entry
}

func (s *stand) snapshot(t *testing.T, c subject) picture {
	t.Helper()
	var p picture
	call, err := s.store.Load(context.Background(), c.id)
	if err == nil {
		raw, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		p.call = string(raw) + string(call.Args) + string(call.Result)
		p.trail = s.trail(c.id)
	} else if !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	m, err := s.store.Mark(context.Background(), record.KeyMark(record.Principal{Issuer: "test", Tenant: "acme", Subject: ownerName, Client: "cli"}, "transfer-"+s.kind, c.key))
	p.marks = fmt.Sprintf("%+v %v", m, err)
	for _, tenant := range []string{"acme", "other", ""} {
		all, err := s.store.List(context.Background(), store.Filter{Tenant: tenant, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		p.calls += len(all)
	}
	return p
}

// onlyRefused checks that nothing has changed but for a refusal on record.
func (s *stand) onlyRefused(t *testing.T, what string, before, after picture, onRecord int, c cell) bool {
	t.Helper()
	if c.method == "key" && matrixPeople[c.people].id.Subject != "" {
		after.calls = before.calls // it may have made a call of its own
	}
	if before.call != after.call || before.marks != after.marks || before.calls != after.calls {
		t.Errorf("%s changed the store:\n%+v\n%+v", what, before, after)
		return false
	}
	if before.call == "" || c.state == "purged" || c.state == "absent" {
		onRecord = 0
	}
	more := after.trail[len(before.trail):]
	who := matrixPeople[c.people].id
	for _, entry := range more {
		if entry.Event != "refused" || entry.By.Subject != who.Subject || who.Subject != "" && entry.By.Tenant != who.Tenant {
			t.Errorf("%s is on record as %+v", what, entry)
		}
	}
	if len(more) != onRecord {
		t.Errorf("%s: %d refusals on record, want %d: %+v", what, len(more), onRecord, more)
	}
	return true
}

// ask does what the cell says.
func (s *stand) ask(t *testing.T, way string, c cell, call subject) answer {
	t.Helper()
	if way == "called" {
		return s.called(t, c, call)
	}
	method, caps := c.method, map[string]string{"task": capsTasks, "inline": capsForm, "carried": capsForm}[c.kind]
	params := map[string]any{}
	name := ""
	switch c.method {
	case "call_status":
		method, name = "tools/call", "call_status"
		params["arguments"] = map[string]any{"callId": call.id}
	case "retry":
		method, name = "tools/call", "transfer-"+c.kind
		params["arguments"], params["requestState"], params["inputResponses"] = call.args, call.state, call.answers
	case "key":
		method, name = "tools/call", "transfer-"+c.kind
		params["arguments"] = call.args
	case "subscriptions/listen":
		caps = capsTasks
		params["notifications"] = taskIDs(call.id)
	case "tasks/get", "tasks/update", "tasks/cancel":
		name, caps = call.id, capsTasks
		params["taskId"] = call.id
		if c.method == "tasks/update" {
			params["inputResponses"] = map[string]any{call.mine: yes}
		}
	default:
		name = carriedMethods[c.method]
		params["requestState"], params["inputResponses"] = call.carried[c.method], call.answers
	}
	switch {
	case method == "resources/read":
		params["uri"] = name
	case params["taskId"] == nil && name != "":
		params["name"] = name
	}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(caps),
	}
	if c.method == "key" {
		meta[keyMember] = call.key
	}
	params["_meta"] = meta
	if way == "memory" {
		return s.overMemory(t, c.people, method, params)
	}
	return s.overHTTP(t, c.people, method, name, params)
}

// matrixID is the id of every request of the matrix, so that responses can be
// compared as they are.
const matrixID = "m"

// heardEnough reports whether a listen has said what there is to be compared:
// the state of a task. One without a task ends by itself.
func heardEnough(method string, message []byte) bool {
	return method == "subscriptions/listen" && bytes.Contains(message, []byte(`"notifications/tasks"`))
}

func (s *stand) overHTTP(t *testing.T, people, method, name string, params map[string]any) answer {
	t.Helper()
	ctx, hangUp := context.WithTimeout(context.Background(), 30*time.Second)
	defer hangUp()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": matrixID, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method,
	}
	if name != "" {
		headers["Mcp-Name"] = name
	}
	if tok := matrixPeople[people].token; tok != "" {
		headers["Authorization"] = "Bearer " + tok
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		a.raw += string(line)
		message := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
		a.take(message)
		if err != nil || heardEnough(method, message) {
			break
		}
	}
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	a.header = fmt.Sprint(resp.Header)
	return a
}

func (s *stand) overMemory(t *testing.T, people, method string, params map[string]any) answer {
	t.Helper()
	who := matrixPeople[people].id
	s.who.Store(&who)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn := s.conn
	if conn == nil || method == "subscriptions/listen" {
		ours, theirs := mcp.NewInMemoryTransports()
		ss, err := s.sdk.Connect(ctx, s.srv.Transport(theirs), nil)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err = ours.Connect(ctx); err != nil {
			t.Fatal(err)
		}
		hangUp := func() { conn.Close(); ss.Close() }
		if method == "subscriptions/listen" { // one that is not over is given up
			defer hangUp()
		} else {
			s.conn = conn
			t.Cleanup(hangUp)
		}
	}
	id, err := jsonrpc.MakeID(matrixID)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, &jsonrpc.Request{ID: id, Method: method, Params: raw}); err != nil {
		t.Fatal(err)
	}
	var a answer
	for {
		msg, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		line, err := jsonrpc.EncodeMessage(msg)
		if err != nil {
			t.Fatal(err)
		}
		a.raw += string(line) + "\n"
		a.take(line)
		if _, over := msg.(*jsonrpc.Response); over || heardEnough(method, line) {
			return a
		}
	}
}

// take reads a message: the last one counts.
func (a *answer) take(message []byte) {
	var m struct {
		Method string
		Params map[string]any
		Result map[string]any
		Error  *rpcError
	}
	if json.Unmarshal(message, &m) != nil {
		return
	}
	a.last = reply{status: a.status, result: m.Result, err: m.Error, raw: string(message)}
	if m.Method == "notifications/tasks" {
		a.last.result = m.Params
	}
}

func (s *stand) called(t *testing.T, c cell, call subject) answer {
	t.Helper()
	by := matrixPeople[c.people].id
	if c.method == "waiting" {
		all, err := s.srv.Waiting(context.Background(), by)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		for _, w := range all {
			a.ids = append(a.ids, w.CallID)
		}
		if !slices.Contains(a.ids, call.id) {
			a.raw = "nothing"
		}
		return a
	}
	d := tallystick.Decision{CallID: call.id, Accept: true}
	switch c.method {
	case "decide mine":
		d.Key = call.mine
	case "decide theirs":
		d.Key = call.theirs
	case "decide effect":
		d.Accept, d.Effect, d.Subject, d.Happened, d.Result = false, "transfer", call.account, true, json.RawMessage(`"found"`)
	}
	err := s.srv.Decide(context.Background(), by, d)
	switch {
	case err == nil:
		return answer{raw: "decided"}
	case errors.Is(err, tallystick.ErrSettled):
		return answer{raw: "settled"}
	case errors.Is(err, tallystick.ErrNoQuestion):
		return answer{raw: "none: " + err.Error()}
	}
	return answer{raw: err.Error()}
}

var bareAck = regexp.MustCompile(`"taskIds"`)

// word is the table's word for an answer.
func (a answer) word(c cell, call subject) string {
	r := a.last
	_, isTask := r.result["status"]
	switch {
	case c.method == "waiting" && a.raw == "":
		return "listed"
	case r.raw == "" && a.status == 0: // called
		word, _, _ := strings.Cut(a.raw, ":")
		return word
	case a.status == http.StatusUnauthorized:
		return "401"
	case a.status != 0 && (a.status == http.StatusOK) != (r.err == nil):
		return fmt.Sprint("an error with status ", a.status)
	case r.err != nil:
		return errorWord(r.err)
	case c.method == "subscriptions/listen" && !isTask:
		if bareAck.MatchString(a.raw) || !strings.Contains(a.raw, "acknowledged") || r.typ() != "complete" {
			return "an acknowledgement"
		}
		return "none"
	case c.method == "key" && c.people != "owner" && c.people != "withdrawn":
		if r.outcome() == "" && (r.text() == "own" || r.typ() == "task") && !strings.Contains(a.raw, call.id) {
			return "own"
		}
	}
	switch {
	case isTask && r.typ() != "task":
		return r.result["status"].(string)
	case r.typ() == "input_required":
		if c.method == "key" && !strings.Contains(a.raw, `"more"`) {
			return "anew"
		}
		return "input_required"
	case r.typ() == "task":
		if r.result["taskId"] != call.id {
			return "another task"
		}
		return "task"
	case strings.HasPrefix(c.method, "tasks/"):
		return "acked"
	case r.outcome() != "":
		return strings.ReplaceAll(r.outcome(), "_", "-")
	case r.isError() && r.text() == "no such call":
		return "none"
	case strings.Contains(a.raw, "moved") && !r.isError():
		return "completed"
	}
	return "something else"
}

func errorWord(e *rpcError) string {
	switch {
	case e.Code == -32602 && e.Data["reason"] == "invalid_request_state":
		return "bad-state"
	case e.Code == -32602 && e.Message == "no such task":
		return "none"
	case e.Code == -32603 && strings.Contains(e.Message, "still being worked on"):
		return "in-flight"
	case e.Code == 4711:
		return "failed"
	case e.Code == tallystick.CodeExpired:
		return "expired"
	case e.Code == tallystick.CodeNotAllowed:
		return "not-allowed"
	}
	return fmt.Sprint("error ", e.Code, ": ", e.Message)
}
