package tour

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// A reply is what a server answered to one MCP request.
type reply struct {
	Result rpcResult
	Error  *rpcError
	raw    json.RawMessage // the result, as it came
}

// rpcResult has the members that the tour looks at, of all kinds of results.
type rpcResult struct {
	ResultType    string                  `json:"resultType"`
	InputRequests map[string]inputRequest `json:"inputRequests"`
	RequestState  string                  `json:"requestState"`
	Content       []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Meta       struct {
		Outcome string `json:"tallystick/outcome"`
		Call    string `json:"tallystick/call"`
	} `json:"_meta"`
	// Of tasks.
	TaskID        string          `json:"taskId"`
	Status        string          `json:"status"`
	StatusMessage string          `json:"statusMessage"`
	Final         json.RawMessage `json:"result"`
}

type inputRequest struct {
	Params struct {
		Message string `json:"message"`
	} `json:"params"`
}

type rpcError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

// readReply reads a response body: one JSON object, or the last event of a
// stream.
func readReply(contentType string, body []byte) (reply, error) {
	if strings.HasPrefix(contentType, "text/event-stream") {
		var last []byte
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				last = data
			}
		}
		body = last
	}
	var message struct {
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return reply{}, fmt.Errorf("the response is no JSON: %s", safetext.Short(string(body), 100))
	}
	if len(message.Result) == 0 {
		return reply{Error: message.Error}, nil
	}
	return replyOf(message.Result)
}

// replyOf reads a result.
func replyOf(raw json.RawMessage) (reply, error) {
	r := reply{raw: raw}
	if err := json.Unmarshal(raw, &r.Result); err != nil {
		return r, fmt.Errorf("reading the result: %w", err)
	}
	return r, nil
}

// text is the result's text for people.
func (r reply) text() string {
	if len(r.Result.Content) == 0 {
		return ""
	}
	return r.Result.Content[0].Text
}

// receipt is the number of the receipt that the result holds.
func (r reply) receipt() string {
	var out struct {
		Receipt string `json:"receipt"`
	}
	raw := r.Result.Structured
	if len(r.Result.Final) > 0 {
		var final rpcResult
		if json.Unmarshal(r.Result.Final, &final) != nil {
			return ""
		}
		raw = final.Structured
	}
	if json.Unmarshal(raw, &out) != nil {
		return ""
	}
	return out.Receipt
}

// String is the reply in short, safe to print.
func (r reply) String() string {
	res := r.Result
	switch {
	case r.Error != nil:
		return safetext.Line(strings.TrimSpace(fmt.Sprintf("error %d %q %s", r.Error.Code, r.Error.Message, r.Error.Data.Reason)))
	case res.ResultType == "input_required" || len(res.InputRequests) > 0:
		var asked []string
		for _, key := range slices.Sorted(maps.Keys(res.InputRequests)) {
			asked = append(asked, fmt.Sprintf("%s %q", key, res.InputRequests[key].Params.Message))
		}
		return safetext.Line("input_required " + strings.Join(asked, ", "))
	case res.TaskID != "":
		s := cmp.Or(res.ResultType, "task") + " " + shortID(res.TaskID) + " " + res.Status
		if res.ResultType != "task" {
			s = res.Status
		}
		if res.StatusMessage != "" {
			s += ": " + safetext.Short(res.StatusMessage, 230)
		}
		if len(res.Final) > 0 {
			var final rpcResult
			if json.Unmarshal(res.Final, &final) == nil {
				s += " " + reply{Result: final}.String()
			}
		}
		return safetext.Line(s)
	case len(res.Content) == 0:
		return safetext.Line(cmp.Or(res.ResultType, "complete"))
	}
	s := cmp.Or(res.ResultType, "complete")
	if res.IsError {
		s += " isError"
	}
	if res.Meta.Outcome != "" {
		s += " (" + res.Meta.Outcome + ")"
	}
	return safetext.Line(s + " " + safetext.Short(r.text(), 230))
}

// described is a request's body in short, safe to print: what is asked for,
// and what is answered.
func described(body []byte) string {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name      string                     `json:"name"`
			Arguments json.RawMessage            `json:"arguments"`
			TaskID    string                     `json:"taskId"`
			State     string                     `json:"requestState"`
			Responses map[string]json.RawMessage `json:"inputResponses"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil {
		return "?"
	}
	parts := []string{m.Method}
	for _, s := range []string{m.Params.Name, string(m.Params.Arguments), shortID(m.Params.TaskID)} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if m.Params.State != "" {
		parts = append(parts, "+ state "+short(m.Params.State, 8))
	}
	for _, key := range slices.Sorted(maps.Keys(m.Params.Responses)) {
		var given struct {
			Action string `json:"action"`
		}
		_ = json.Unmarshal(m.Params.Responses[key], &given)
		parts = append(parts, "+ "+key+": "+given.Action)
	}
	return safetext.Line(strings.Join(parts, " "))
}

// shortID is enough of an id to know it again by.
func shortID(id string) string { return short(id, 6) }
