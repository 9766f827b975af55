package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/exit"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// callInfo is a call in --json.
type callInfo struct {
	Event     string         `json:"event,omitzero"` // "status" or "end", where there is a line for each
	ID        string         `json:"id"`
	Server    string         `json:"server"`
	Method    string         `json:"method"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Task      string         `json:"task,omitzero"`
	State     client.State   `json:"state"`
	Message   string         `json:"message,omitzero"`
	Progress  *progressInfo  `json:"progress,omitzero"`
	Questions []questionInfo `json:"questions,omitzero"`
	Rounds    int            `json:"rounds"`
	Driver    string         `json:"driver,omitzero"`
	Seen      bool           `json:"seen,omitzero"`
	Created   string         `json:"created"`
	Updated   string         `json:"updated"`
	Expires   string         `json:"expires,omitzero"`

	// Of a call whose end, or whose going on, the command has to tell.
	Outcome string         `json:"outcome,omitzero"`
	Exit    *exit.Code     `json:"exit,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   *errorInfo     `json:"error,omitzero"`
	Next    []string       `json:"next,omitzero"`
}

type progressInfo struct {
	Done  float64 `json:"done"`
	Total float64 `json:"total,omitzero"`
}

type questionInfo struct {
	ID      string         `json:"id"`
	Key     string         `json:"key"`
	Kind    client.Kind    `json:"kind"`
	Message string         `json:"message,omitzero"`
	Schema  jsontext.Value `json:"schema,omitzero"`
	URL     string         `json:"url,omitzero"`
	Request jsontext.Value `json:"request"`
	Expires string         `json:"expires,omitzero"`
}

// infoOf is what is known of a call.
func infoOf(st client.Status) callInfo {
	c := callInfo{
		ID: st.ID, Server: st.Server, Method: st.Method, Name: st.Name, Arguments: valid(st.Arguments), Task: st.Task,
		State: st.State, Message: st.Message, Rounds: st.Rounds, Driver: st.Driver, Seen: st.Seen,
		Created: stamp(st.Created), Updated: stamp(st.Updated), Expires: stamp(st.Expires),
	}
	if st.State.Final() {
		c.Driver = "" // who was at it
	}
	if st.Done != 0 || st.Total != 0 {
		c.Progress = &progressInfo{st.Done, st.Total}
	}
	for _, q := range st.Open {
		c.Questions = append(c.Questions, questionInfo{
			ID: q.ID, Key: q.Key, Kind: q.Kind, Message: q.Message, Schema: valid(q.Schema), URL: q.URL, Request: valid(q.Request), Expires: stamp(q.Expires),
		})
	}
	return c
}

// infoOfEnd is infoOf, and how the call has ended.
func (a *app) infoOfEnd(st client.Status, e end) callInfo {
	c := infoOf(st)
	c.Outcome, c.Exit, c.Error, c.Next = e.code.Name(), &e.code, e.document(), commands(a.next(e, st.Server))
	if e.result != nil {
		c.Result = valid(e.result.Raw)
	}
	return c
}

func valid(raw []byte) jsontext.Value {
	if v := jsontext.Value(raw); len(v) > 0 && v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return v
	}
	return nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// show prints how a call has ended. event is for --json.
func (a *app) show(st client.Status, e end, event string) error {
	if a.json {
		info := a.infoOfEnd(st, e)
		info.Event = event
		if err := a.print(info); err != nil {
			return a.notWritten(st, err)
		}
	} else if e.result != nil {
		a.screen.Clear()
		if err := a.printResult(st.Method, e.result); err != nil {
			return a.notWritten(st, err)
		}
	}
	a.explain(st, e)
	return nil
}

// explain says on standard error what is not in a result: why there is none,
// what is asked, and what to do.
func (a *app) explain(st client.Status, e end) {
	if e.code == exit.Completed {
		return
	}
	if e.text == "" {
		e.text = map[exit.Code]string{
			exit.ToolError: "the tool says that it failed", exit.Declined: "declined: it was not done", exit.Dismissed: "the question was dismissed: it was not done",
			exit.Expired: "the question has expired: it was not done", exit.NeedsInput: "somebody else has to answer, or elsewhere: see above",
			exit.Held: "held: nobody knows whether it was done; do not repeat it before somebody has looked", exit.Cancelled: "cancelled",
		}[e.code]
	}
	if len(st.Open) > 0 && e.code == exit.NeedsInput && !a.interactive() {
		a.cards(st)
	}
	a.say("tallystick: %s (exit %d, %s)", e.text, e.code, e.code.Name())
	for _, s := range a.next(e, st.Server) {
		a.hint("  %s", s)
	}
}

// printResult prints a result for people: text as it is but for what would
// drive the terminal, and of everything else what it is. A result that cannot be
// read is printed as it came: how the call ended does not depend on it.
func (a *app) printResult(method string, r *client.Result) error {
	lines, err := resultLines(method, r)
	if err != nil {
		lines = []string{"[not to be shown as text; as it came:]", safetext.Frame{Mark: "  "}.JSON(r.Raw)}
	}
	if len(lines) == 0 {
		return nil
	}
	return a.write(strings.Join(lines, "\n"))
}

// resultLines are those of a result, safe.
func resultLines(method string, r *client.Result) (lines []string, err error) {
	switch method {
	case "prompts/get":
		p, err := r.Prompt()
		if err != nil {
			return nil, err
		}
		for _, m := range p.Messages {
			lines = append(lines, safetext.Line(string(m.Role))+":", safetext.Frame{Mark: "  "}.Block(contentText(m.Content)))
		}
	case "resources/read":
		p, err := r.Resource()
		if err != nil {
			return nil, err
		}
		for _, c := range p.Contents {
			lines = append(lines, safetext.Frame{}.Block(resourceText(c)))
		}
	default:
		t, err := r.Tool()
		if err != nil {
			return nil, err
		}
		for _, c := range t.Content {
			lines = append(lines, safetext.Frame{}.Block(contentText(c)))
		}
		if len(t.Content) == 0 && t.StructuredContent != nil { // in which numbers are rounded
			var raw struct {
				StructuredContent jsontext.Value `json:"structuredContent"`
			}
			if err := json.Unmarshal(r.Raw, &raw); err != nil {
				return nil, err
			}
			lines = append(lines, safetext.Frame{}.JSON(raw.StructuredContent))
		}
	}
	return lines, nil
}

// contentText is a block of content as text, not yet safe.
func contentText(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image, %s, %d bytes; --json has it]", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[sound, %s, %d bytes; --json has it]", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[resource %s]", c.URI)
	case *mcp.EmbeddedResource:
		return resourceText(c.Resource)
	}
	return fmt.Sprintf("[%T; --json has it]", c)
}

func resourceText(c *mcp.ResourceContents) string {
	if c == nil {
		return "[nothing]"
	}
	if c.Text != "" || len(c.Blob) == 0 {
		return c.Text
	}
	return fmt.Sprintf("[%s, %s, %d bytes; --json has it]", c.URI, c.MIMEType, len(c.Blob))
}
