package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/client"
)

// declared is what a request says that its client can be asked.
func declared(r request) string {
	return r.param("_meta", "io.modelcontextprotocol/clientCapabilities")
}

// case S51, S56: what is declared can be answered, from the first request on.
func TestWhatCanBeAnsweredIsDeclaredForEachCall(t *testing.T) {
	const tasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	reply := &client.Answer{Result: json.RawMessage(`{"roots":[]}`)}
	all := &person{kinds: []client.Kind{client.Form, client.URL, client.Sampling, client.Roots}, answer: yes().answer}
	for name, c := range map[string]struct {
		answerer client.Answerer
		policy   client.Policy
		want     string
	}{
		"nobody is there":        {nil, nil, `{` + tasks + `}`},
		"forms and URLs":         {yes(), nil, `{"elicitation":{"form":{},"url":{}},` + tasks + `}`},
		"forms alone":            {&person{kinds: []client.Kind{client.Form}, answer: yes().answer}, nil, `{"elicitation":{"form":{}},` + tasks + `}`},
		"the rest is off":        {all, nil, `{"elicitation":{"form":{},"url":{}},` + tasks + `}`},
		"sampling by a rule":     {all, client.Policy{{Kind: client.Sampling, Do: client.Ask}}, `{"elicitation":{"form":{},"url":{}},` + tasks + `,"sampling":{}}`},
		"a rule without anybody": {nil, client.Policy{{Kind: client.Sampling, Do: client.Ask}}, `{` + tasks + `}`},
		"roots by a rule":        {nil, client.Policy{{Kind: client.Roots, Do: client.Reply, Answer: reply}}, `{` + tasks + `,"roots":{}}`},
		"for another tool":       {nil, client.Policy{{Name: "read", Kind: client.Roots, Do: client.Reply, Answer: reply}}, `{` + tasks + `}`},
		"for another server":     {nil, client.Policy{{Server: "shop", Kind: client.Roots, Do: client.Reply, Answer: reply}}, `{` + tasks + `}`},
		"by a pattern":           {nil, client.Policy{{Server: "d*", Name: "p?y", Kind: client.Roots, Do: client.Reply, Answer: reply}}, `{` + tasks + `,"roots":{}}`},
		"forms are refused":      {yes(), client.Policy{{Kind: client.Form, Do: client.Refuse}}, `{"elicitation":{"url":{}},` + tasks + `}`},
		"all are refused here":   {yes(), client.Policy{{Name: "pay", Do: client.Refuse}}, `{` + tasks + `}`},
		"some keys are refused":  {yes(), client.Policy{{Key: "admin*", Do: client.Refuse}}, `{"elicitation":{"form":{},"url":{}},` + tasks + `}`},
		"one key is answered":    {nil, client.Policy{{Key: "ok", Kind: client.Form, Do: client.Reply, Answer: new(client.Decline())}, {Do: client.Refuse}}, `{"elicitation":{"form":{}},` + tasks + `}`},
	} {
		f := fakeServer(t, map[string]saying{"tools/call": result(done)})
		if _, err := f.client(client.Options{Answerer: c.answerer, Policy: c.policy}).Call(t.Context(), "pay", nil); err != nil {
			t.Fatal(err)
		}
		if got := declared(f.got("tools/call")[0]); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
}

// case S47: schemas that suggest answers get none that nobody gave.
func TestNothingIsInvented(t *testing.T) {
	const schema = `{"type":"object","properties":{"delete_all":{"type":"boolean","default":true},"why":{"type":"string","default":"cleaning"},` +
		`"how":{"type":"string","enum":["soft","hard"],"default":"hard"}},"required":["delete_all"]}`
	ask := `{"k":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":` + schema + `}}}`
	for name, c := range map[string]struct {
		answer any
		sent   string // empty: nothing is
	}{
		"an empty object":       {map[string]any{}, ""},
		"nothing at all":        {nil, ""},
		"an array":              {[]int{1}, ""},
		"a string for a choice": {map[string]any{"delete_all": "true"}, ""},
		"another choice":        {map[string]any{"delete_all": true, "how": "rm -rf"}, ""},
		"a no":                  {map[string]any{"delete_all": false}, `{"k":{"action":"accept","content":{"delete_all":false}}}`},
		"all of it":             {json.RawMessage(`{"why":"<b>1e400</b>","delete_all":true}`), `{"k":{"action":"accept","content":{"why":"<b>1e400</b>","delete_all":true}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(ask, `"s"`), result(done))})
			p := says(c.answer)
			_, err := f.client(client.Options{Answerer: p}).Call(t.Context(), "pay", nil)
			if all := f.got("tools/call"); c.sent == "" {
				wants(t, err, client.ErrNeedsInput)
				if len(all) != 1 || p.times() != 2 || p.asked[1].Problem == "" {
					t.Errorf("%d requests, asked %d times, the second time with the problem %q", len(all), p.times(), p.asked[1].Problem)
				}
			} else if err != nil || all[1].param("inputResponses") != c.sent {
				t.Errorf("%v, sent %s", err, all[1].param("inputResponses"))
			}
		})
	}
}

func TestEachRulingDoesWhatItSays(t *testing.T) {
	const forms = `{"a":{"method":"elicitation/create","params":{"message":"A?","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}},` +
		`"b":{"method":"elicitation/create","params":{"mode":"url","message":"B?","url":"https://bank.test/"}}}`
	const sampling = `{"s":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}`
	accept := &client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":true}`)}
	wrong := &client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":"yes"}`)}
	text := &client.Answer{Result: json.RawMessage(`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`)}
	all := &person{kinds: []client.Kind{client.Form, client.URL, client.Sampling}, answer: yes().answer}
	for name, c := range map[string]struct {
		asks     string
		policy   client.Policy
		answerer client.Answerer
		sent     string
		err      error
	}{
		"the first rule decides": {forms, client.Policy{{Key: "a", Do: client.Reply, Answer: accept}, {Do: client.Refuse}}, nil,
			`{"a":{"action":"accept","content":{"confirm":true}},"b":{"action":"decline"}}`, nil},
		"by kind":                      {forms, client.Policy{{Kind: client.URL, Do: client.Refuse}}, all, `{"a":{"action":"accept","content":{"confirm":true}},"b":{"action":"decline"}}`, nil},
		"an answer that does not fit":  {forms, client.Policy{{Key: "a", Do: client.Reply, Answer: wrong}, {Do: client.Refuse}}, nil, "", client.ErrNeedsInput},
		"nobody there":                 {forms, client.Policy{{Key: "a", Do: client.Reply, Answer: accept}}, nil, "", client.ErrNeedsInput},
		"sampling is not declared":     {sampling, nil, all, "", client.ErrInvalidResponse},
		"sampling by a rule's answer":  {sampling, client.Policy{{Kind: client.Sampling, Do: client.Reply, Answer: text}}, nil, `{"s":` + string(text.Result) + `}`, nil},
		"sampling of one key, refused": {sampling, client.Policy{{Kind: client.Sampling, Key: "s", Do: client.Refuse}, {Kind: client.Sampling, Do: client.Ask}}, all, "", client.ErrNeedsInput},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(c.asks, `"s"`), result(done))})
			_, err := f.client(client.Options{Answerer: c.answerer, Policy: c.policy}).Call(t.Context(), "pay", nil)
			requests := f.got("tools/call")
			if c.err != nil {
				wants(t, err, c.err)
				if len(requests) != 1 {
					t.Errorf("%d requests were sent", len(requests))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := requests[1].param("inputResponses"); got != c.sent {
				t.Errorf("sent %s, not %s", got, c.sent)
			}
		})
	}
}

// case S16, S51: typed, at once, and the call can go on.
func TestNobodyToAskIsSaidAtOnceForEachMethod(t *testing.T) {
	for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
		for name, say := range map[string]saying{
			"it asks all the same": asking(form("k"), `"s"`),
			"it refuses":           refusal(-32021, "the client cannot be asked", `{"requiredCapabilities":{"elicitation":{"form":{}}}}`),
		} {
			f := fakeServer(t, map[string]saying{method: say})
			c := f.client(client.Options{})
			var err error
			switch method {
			case "tools/call":
				_, err = c.Call(t.Context(), "pay", nil)
			case "prompts/get":
				_, err = c.GetPrompt(t.Context(), "pay", map[string]string{"a": "b"})
			default:
				_, err = c.ReadResource(t.Context(), "shop://orders/1")
			}
			e := wants(t, err, client.ErrNeedsInput, "nobody here can answer")
			if caps := declared(f.got(method)[0]); strings.Contains(caps, "elicitation") || (method != "tools/call") == strings.Contains(caps, "tasks") {
				t.Errorf("%s: declared %s", method, caps)
			}
			h, err := c.Attach(t.Context(), e.ID)
			if err != nil {
				t.Fatalf("%s, %s: %v", method, name, err)
			}
			_, err = h.Wait(t.Context())
			wants(t, err, client.ErrNeedsInput)
		}
	}
}

func TestAnAnswererThatMisbehavesHarmsItsQuestionOnly(t *testing.T) {
	for name, answer := range map[string]func(context.Context, client.Question) (client.Answer, error){
		"panics":        func(context.Context, client.Question) (client.Answer, error) { panic("oh") },
		"panics of nil": func(context.Context, client.Question) (client.Answer, error) { panic(fmt.Errorf("oh")) },
		"errs": func(context.Context, client.Question) (client.Answer, error) {
			return client.Decline(), errors.New("no screen")
		},
		"has none": func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{}, client.ErrNoAnswer
		},
		"no action": func(context.Context, client.Question) (client.Answer, error) { return client.Answer{}, nil },
		"odd action": func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{Action: "yes"}, nil
		},
		"no JSON": func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":`)}, nil
		},
		"a name twice": func(context.Context, client.Question) (client.Answer, error) {
			return client.Answer{Action: "accept", Content: json.RawMessage(`{"confirm":false,"confirm":true}`)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeServer(t, map[string]saying{"tools/call": inTurn(asking(form("k"), `"s"`), result(done))})
			p := &person{answer: answer}
			c := f.client(client.Options{Answerer: p})
			h, err := c.Start(t.Context(), "pay", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = h.Wait(t.Context())
			e := wants(t, err, client.ErrNeedsInput)
			if len(e.Questions) != 1 || len(f.got("tools/call")) != 1 {
				t.Fatalf("open are %v, after %d requests", e.Questions, len(f.got("tools/call")))
			}
			times := 2 // what does not fit is given back once
			if strings.HasPrefix(name, "panics") || name == "errs" || name == "has none" {
				times = 1
			}
			if p.times() != times {
				t.Errorf("asked %d times", p.times())
			}
			if err := h.Answer(t.Context(), "k", client.Decline()); err != nil { // somebody else can
				t.Fatal(err)
			}
			if h, err = c.Attach(t.Context(), e.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := f.got("tools/call")[1].param("inputResponses"); got != `{"k":{"action":"decline"}}` {
				t.Errorf("sent %s", got)
			}
		})
	}
}

// case S48: a form without fields is a plain choice.
func TestAnEmptyFormCanBeAccepted(t *testing.T) {
	f := fakeServer(t, map[string]saying{"tools/call": inTurn(
		asking(`{"k":{"method":"elicitation/create","params":{"message":"Go on?","requestedSchema":{"type":"object","properties":{}}}}}`, `"s"`), result(done))})
	if _, err := f.client(client.Options{Answerer: says(struct{}{})}).Call(t.Context(), "pay", nil); err != nil {
		t.Fatal(err)
	}
	if got := f.got("tools/call")[1].param("inputResponses"); got != `{"k":{"action":"accept","content":{}}}` {
		t.Errorf("sent %s", got)
	}
}

func TestOptionsThatCannotBeMeantAreRefused(t *testing.T) {
	f := fakeServer(t, nil)
	m := openMemory(t, memoryPath(t))
	whole := func() client.Options { return client.Options{Memory: m, Server: "desk", Transport: f.transport} }
	for name, change := range map[string]func(*client.Options){
		"no memory":          func(o *client.Options) { o.Memory = nil },
		"no server":          func(o *client.Options) { o.Server = "" },
		"no transport":       func(o *client.Options) { o.Transport = nil },
		"keys below zero":    func(o *client.Options) { o.KeysKept = -1 },
		"a negative limit":   func(o *client.Options) { o.Limits.Rounds = -1 },
		"a negative time":    func(o *client.Options) { o.Limits.Work = -1 },
		"a bad pattern":      func(o *client.Options) { o.Policy = client.Policy{{Name: "[", Do: client.Ask}} },
		"no such kind":       func(o *client.Options) { o.Policy = client.Policy{{Kind: "voice", Do: client.Ask}} },
		"no ruling":          func(o *client.Options) { o.Policy = client.Policy{{Name: "pay"}} },
		"reply with nothing": func(o *client.Options) { o.Policy = client.Policy{{Do: client.Reply}} },
		"ask with an answer": func(o *client.Options) { o.Policy = client.Policy{{Do: client.Ask, Answer: new(client.Decline())}} },
		"an answer of no action": func(o *client.Options) {
			o.Policy = client.Policy{{Kind: client.Form, Do: client.Reply, Answer: &client.Answer{Action: "ok"}}}
		},
		"no result for sampling": func(o *client.Options) {
			o.Policy = client.Policy{{Kind: client.Sampling, Do: client.Reply, Answer: new(client.Decline())}}
		},
	} {
		o := whole()
		change(&o)
		if c, err := client.New(o); err == nil {
			t.Errorf("%s: no error", name)
			_ = c.Close()
		}
	}
	c, err := client.New(whole())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, err = c.Call(t.Context(), "pay", nil)
	wants(t, err, client.ErrClosed)
}
