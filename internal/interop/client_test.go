package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"
)

// A plan is what client.mjs is to do.
type plan struct {
	Era      string         `json:"era"`
	Token    string         `json:"token"`
	Unlisted bool           `json:"unlisted"`
	Calls    []planned      `json:"calls"`
	Answers  map[string]any `json:"answers"`
}

type planned struct {
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
	Repeat    bool           `json:"repeat,omitempty"`
	Prompt    string         `json:"prompt,omitempty"`
	Resource  string         `json:"resource,omitempty"`
}

// A line is what client.mjs prints: one member of it.
type line struct {
	Era    string  `json:"era"`
	Asked  string  `json:"asked"`
	Result *result `json:"result"`
	Error  *struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	} `json:"error"`
}

type result struct {
	Type    string `json:"resultType"`
	IsError bool   `json:"isError"`
	Meta    struct {
		Outcome string `json:"tallystick/outcome"`
		Call    string `json:"tallystick/call"`
	} `json:"_meta"`
	Content    []said          `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	Messages   []struct {
		Content said `json:"content"`
	} `json:"messages"`
	Contents []said `json:"contents"`
}

type said struct {
	Text string `json:"text"`
}

// String is a line in short: what was asked, or what came of a call.
func (l line) String() string {
	switch {
	case l.Asked != "":
		return "asked: " + l.Asked
	case l.Error != nil:
		return fmt.Sprintf("error %v: %s", l.Error.Code, l.Error.Message)
	case l.Result == nil:
		return "connected: " + l.Era
	}
	r := l.Result
	texts := append(slices.Clone(r.Content), r.Contents...)
	for _, m := range r.Messages {
		texts = append(texts, m.Content)
	}
	word := "result"
	if r.Type == "input_required" {
		word = "input_required"
	}
	if r.IsError {
		word = "isError"
	}
	switch {
	case r.Meta.Outcome != "":
		return word + ": outcome " + r.Meta.Outcome
	case len(r.Structured) > 0:
		return word + ": " + string(r.Structured)
	case len(texts) == 0:
		return word
	}
	return word + ": " + texts[0].Text
}

// run has the official TypeScript client carry out a plan, against a URL or a
// command, and returns what it printed.
func run(t *testing.T, p plan, target ...string) []line {
	t.Helper()
	arg, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := install(t).Command(ctx, "client.mjs", append([]string{string(arg)}, target...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("client.mjs: %v\n%s%s", err, out, stderr.Bytes())
	}
	if bytes.Contains(stderr.Bytes(), []byte("DATA RACE")) { // of a server that it started
		t.Errorf("%s", stderr.Bytes())
	}
	var lines []line
	for printed := range bytes.Lines(out) {
		var l line
		if err := json.Unmarshal(printed, &l); err != nil {
			t.Fatalf("client.mjs printed %s: %v", printed, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// short is each line in short. Questions of one round come in any order, and are
// sorted.
func short(lines []line) []string {
	var all []string
	asked := 0 // so many at the end are questions
	for _, l := range lines {
		all = append(all, l.String())
		if asked++; l.Asked == "" {
			asked = 0
		}
		slices.Sort(all[len(all)-asked:])
	}
	return all
}

// wantLines compares, a line each.
func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func order(id string) map[string]any { return map[string]any{"order": id} }

// answered accepts with a form of one field.
func answered(name string, value any) any {
	return map[string]any{"action": "accept", "content": map[string]any{name: value}}
}

var decline = map[string]any{"action": "decline"}

// everyKind has a call of every kind, and what comes of it.
var everyKind = plan{
	Token: "ann",
	Calls: []planned{
		{Tool: "add", Arguments: map[string]any{"a": 1, "b": 2}},
		{Tool: "broken"},
		{Tool: "refund", Arguments: order("yes")},
		{Tool: "refund", Arguments: order("no")},
		{Tool: "refund", Arguments: order("unticked")},
		{Tool: "refund", Arguments: order("dismissed")},
		{Tool: "refund", Arguments: order("yes")},
		{Tool: "deliver"},
		{Tool: "travel"},
		{Tool: "explain"},
		{Prompt: "letter"},
		{Resource: "desk://note"},
	},
	Answers: map[string]any{
		"Refund order yes?":      answered("confirm", true),
		"Refund order no?":       decline,
		"Refund order unticked?": answered("confirm", false),
		"Where to?":              map[string]any{"action": "accept", "content": map[string]any{"street": "Main 1", "floor": 3, "lift": true}},
		"Which seat?":            answered("seat", "1A"),
		"Which meal?":            answered("meal", "soup"),
		"Why seat 1A?":           answered("reason", "the view"),
		"Why?":                   answered("reason", "rain"),
		"What is it about?":      answered("reason", "rain"),
		"Why do you read it?":    answered("reason", "rain"),
	},
}

var everyEnd = []string{
	"result: 3",
	"isError: it is broken",
	"asked: Refund order yes?", `result: {"order":"yes"}`,
	"asked: Refund order no?", "isError: outcome declined",
	"asked: Refund order unticked?", "isError: outcome declined",
	"asked: Refund order dismissed?", "isError: outcome dismissed",
	"asked: Refund order yes?", `result: {"order":"yes"}`, // the receipt that it has
	"asked: Where to?", "result: to Main 1, floor 3, lift true",
	"asked: Which meal?", "asked: Which seat?", "asked: Why seat 1A?", "result: seat 1A, meal soup, because the view",
	"asked: Why?", "result: because rain",
	"asked: What is it about?", "result: A letter about rain",
	"asked: Why do you read it?", "result: read because of rain",
}

func TestTheTypeScriptClientGetsTheSameInEachEraOverEachTransport(t *testing.T) {
	install(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, era := range []string{"modern", "legacy"} {
		for _, transport := range []string{"http", "stdio"} {
			t.Run(era+" "+transport, func(t *testing.T) {
				d, p, who := newDesk(t), everyKind, "ann"
				p.Era = era
				var lines []line
				if transport == "http" {
					url, end := d.serve(t)
					lines = run(t, p, url)
					end()
				} else {
					lines, who = run(t, p, d.binary, "-stdio", "-data", d.data), me.Username
				}
				wantLines(t, "the client printed", short(lines), append([]string{"connected: " + era}, everyEnd...))
				d.wantRefunds(t, "yes")

				channel := map[string]string{"modern": "round", "legacy": "live"}[era]
				by := "answered by " + who + " " + channel + ": "
				recorded := d.trail(t, "answered")
				slices.Sort(recorded) // those of one round are in no order
				wantLines(t, "answers on record", recorded, []string{
					by + "address accept",
					by + "approve accept", by + "approve accept", by + "approve cancel", by + "approve decline", by + "approve decline",
					by + "meal accept", by + "reason accept", by + "seat accept",
				})
			})
		}
	}
}

// A client whose response was lost sends the same again.
func TestARetryThatTheTypeScriptClientRepeatsActsOnce(t *testing.T) {
	install(t)
	d := newDesk(t)
	url, end := d.serve(t)
	lines := run(t, plan{
		Era: "modern", Token: "ann", Unlisted: true,
		Calls:   []planned{{Tool: "refund", Arguments: order("7"), Repeat: true}, {Tool: "travel", Repeat: true}},
		Answers: map[string]any{"Refund order 7?": answered("confirm", true), "Which seat?": answered("seat", "2B"), "Which meal?": answered("meal", "rice"), "Why seat 2B?": answered("reason", "none")},
	}, url)
	end()
	wantLines(t, "the client printed", short(lines), []string{
		"connected: modern",
		"input_required", "asked: Refund order 7?", `result: {"order":"7"}`, `result: {"order":"7"}`,
		"input_required", "asked: Which meal?", "asked: Which seat?",
		"input_required", "input_required", "asked: Why seat 2B?",
		"result: seat 2B, meal rice, because none", "result: seat 2B, meal rice, because none",
	})
	d.wantRefunds(t, "7")
	wantLines(t, "effects on record", d.trail(t, "effect started", "effect ended"), []string{
		"effect started by ann run: refund [7] ", "effect ended by ann run: refund [7] done",
	})
}

// The client holds results against output schemas, and this one has to say
// pending, and of which call, all the same.
func TestTheTypeScriptClientIsToldThatACallIsPending(t *testing.T) {
	install(t)
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			d := newDesk(t)
			url, _ := d.serve(t)
			lines := run(t, plan{Era: era, Token: "ann", Calls: []planned{{Tool: "refund_large", Arguments: order("8")}}}, url)
			wantLines(t, "the client printed", short(lines), []string{"connected: " + era, "isError: outcome pending"})
			if r := lines[len(lines)-1].Result; r == nil || r.Meta.Call == "" || !strings.Contains(r.Content[0].Text, "call_status") {
				t.Errorf("how to go on is not told: %+v", r)
			}
			d.wantRefunds(t)
		})
	}
}

func TestTheTypeScriptClientWithoutATokenIsRefused(t *testing.T) {
	install(t)
	url, _ := newDesk(t).serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := install(t).Command(ctx, "client.mjs", `{"era":"modern","token":"nobody","calls":[]}`, url).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "401") {
		t.Errorf("%v: %s", err, out)
	}
}
