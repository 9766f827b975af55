//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/record"
)

// strictDecode decodes like encoding/json, but matches names by case, and
// refuses duplicate names and invalid UTF-8.
func strictDecode(raw []byte, dst any, more ...jsonv2.Options) error {
	return jsonv2.Unmarshal(raw, dst, jsonv1.DefaultOptionsV1(),
		jsonv2.MatchCaseInsensitiveNames(false), jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false), jsonv2.JoinOptions(more...))
}

// methodOf names the request by which a kind of question is asked.
func methodOf(k record.Kind) string {
	switch k {
	case record.KindSampling:
		return "sampling/createMessage"
	case record.KindRoots:
		return "roots/list"
	}
	return "elicitation/create"
}

// kindsOf lists the kinds of question that a client declares. An elicitation
// capability that names no mode means forms.
func kindsOf(c *mcp.ClientCapabilities) []record.Kind {
	var kinds []record.Kind
	if e := c.Elicitation; e != nil {
		if e.Form != nil || e.URL == nil {
			kinds = append(kinds, record.KindForm)
		}
		if e.URL != nil {
			kinds = append(kinds, record.KindURL)
		}
	}
	if c.Sampling != nil {
		kinds = append(kinds, record.KindSampling)
	}
	if c.RootsV2 != nil {
		kinds = append(kinds, record.KindRoots)
	}
	return kinds
}

// capabilityOf is the client capability that a kind needs.
func capabilityOf(k record.Kind) (name string, required map[string]any) {
	switch k {
	case record.KindURL:
		return "elicitation.url", map[string]any{"elicitation": map[string]any{"url": map[string]any{}}}
	case record.KindSampling:
		return "sampling", map[string]any{"sampling": map[string]any{}}
	case record.KindRoots:
		return "roots", map[string]any{"roots": map[string]any{}}
	}
	return "elicitation.form", map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}
}

// requestOf turns an input request into what is stored and sent of it.
func requestOf(r mcp.InputRequest, message string) (record.Kind, []byte, string, error) {
	switch p := r.(type) {
	case *mcp.ElicitParams:
		return elicitOf(p, message)
	case *mcp.CreateMessageParams:
		if len(p.Messages) == 0 || p.MaxTokens <= 0 {
			return "", nil, "", errors.New("a sampling request needs messages and maxTokens")
		}
		raw, err := json.Marshal(p)
		return record.KindSampling, raw, message, err
	case *mcp.CreateMessageWithToolsParams:
		if len(p.Messages) == 0 || p.MaxTokens <= 0 {
			return "", nil, "", errors.New("a sampling request needs messages and maxTokens")
		}
		raw, err := json.Marshal(p)
		return record.KindSampling, raw, message, err
	case *mcp.ListRootsParams:
		return record.KindRoots, []byte("{}"), message, nil
	}
	return "", nil, "", fmt.Errorf("%T cannot be asked", r)
}

func elicitOf(p *mcp.ElicitParams, message string) (record.Kind, []byte, string, error) {
	if p.Message != "" {
		message = p.Message
	}
	if p.Mode == "url" || p.Mode == "" && p.URL != "" {
		if u, err := url.Parse(p.URL); err != nil || !u.IsAbs() || u.Host == "" {
			return "", nil, "", errors.New("URL mode needs an absolute URL with a host")
		}
		if message == "" {
			return "", nil, "", errors.New("URL mode needs a message")
		}
		raw, err := json.Marshal(struct {
			Mode    string `json:"mode"`
			Message string `json:"message"`
			URL     string `json:"url"`
			ID      string `json:"elicitationId,omitempty"`
		}{"url", message, p.URL, p.ElicitationID})
		return record.KindURL, raw, message, err
	}
	schema, err := json.Marshal(p.RequestedSchema)
	if err != nil {
		return "", nil, "", err
	}
	f, err := parseForm(schema)
	if err != nil {
		return "", nil, "", err
	}
	return record.KindForm, f.request(message), message, nil
}

// formIn finds the form in a stored request.
func formIn(request []byte) (*form, error) {
	var p struct {
		Schema json.RawMessage `json:"requestedSchema"`
	}
	if err := json.Unmarshal(request, &p); err != nil {
		return nil, err
	}
	return askedForms.parse(p.Schema)
}

// responseOf turns a recorded answer into what Input returns.
func responseOf(kind record.Kind, request, value []byte) (mcp.InputResponse, error) {
	switch kind {
	case record.KindSampling:
		var r mcp.CreateMessageWithToolsResult
		return &r, json.Unmarshal(value, &r)
	case record.KindRoots:
		var r mcp.ListRootsResult
		return &r, strictDecode(value, &r) // as it was checked: "URI" is no uri
	}
	r := &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}
	if kind == record.KindURL {
		if len(value) == 0 {
			return r, nil
		}
		return r, json.Unmarshal(value, &r.Content)
	}
	f, err := formIn(request)
	if err != nil {
		return nil, err
	}
	return r, f.read(value, &r.Content)
}

// A given is one response to a question, as a client relays it.
type given struct {
	record.Responded
	consent bool // to open a URL: no answer yet
}

// A misfit says what is wrong with an answer, by field, without quoting it.
type misfit map[string]string

// readAnswer reads a client's response to a question, by the kind that was
// asked. What does not fit is told by field.
func readAnswer(q *record.Question, raw json.RawMessage) (given, misfit) {
	g := given{Responded: record.Responded{WireKey: q.WireKey, Action: record.Accept, Value: raw}}
	switch q.Kind {
	case record.KindSampling:
		var r struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Model   string          `json:"model"`
		}
		var full mcp.CreateMessageWithToolsResult
		if strictDecode(raw, &r) != nil || r.Role == "" || len(r.Content) == 0 || json.Unmarshal(raw, &full) != nil {
			return g, misfit{"": "is no sampling/createMessage result"}
		}
		return g, nil
	case record.KindRoots:
		var r mcp.ListRootsResult
		if strictDecode(raw, &r) != nil || r.Roots == nil || slices.Contains(r.Roots, nil) {
			return g, misfit{"": "is no roots/list result"}
		}
		for _, root := range r.Roots {
			if u, err := url.Parse(root.URI); err != nil || u.Scheme != "file" {
				return g, misfit{"roots": "has a root that is no file:// URI"}
			}
		}
		return g, nil
	}
	return readElicitation(q, raw)
}

func readElicitation(q *record.Question, raw json.RawMessage) (given, misfit) {
	var r struct {
		Action  record.AnswerAction `json:"action"`
		Content json.RawMessage     `json:"content"`
	}
	if err := strictDecode(raw, &r); err != nil || !slices.Contains([]record.AnswerAction{record.Accept, record.Decline, record.Dismiss}, r.Action) {
		return given{}, misfit{"action": "is not among accept, decline and cancel"}
	}
	g := given{Responded: record.Responded{WireKey: q.WireKey, Action: r.Action}}
	if r.Action != record.Accept {
		return g, nil
	}
	if q.Kind == record.KindURL {
		g.consent = true
		return g, nil
	}
	var wrong misfit
	g.Responded, wrong = acceptForm(q, r.Content)
	return g, wrong
}

// acceptForm is an accepted form. A no to Confirm is a decline, however said.
func acceptForm(q *record.Question, content []byte) (record.Responded, misfit) {
	r := record.Responded{WireKey: q.WireKey, Action: record.Accept}
	f, err := formIn(q.Request)
	if err != nil {
		return r, misfit{"": "the question has no form"}
	}
	clean, wrong := f.check(content)
	if wrong != nil {
		return r, wrong
	}
	if q.Confirm {
		var c confirmation
		if err := f.read(clean, &c); err != nil {
			return r, misfit{"confirm": "is no boolean"}
		}
		if !c.Confirm {
			return record.Responded{WireKey: q.WireKey, Action: record.Decline}, nil
		}
	}
	r.Value = clean
	return r, nil
}

// unasked finds an answer that came before its question was asked.
type unasked func(q record.Question) (record.Responded, record.Actor, bool)
