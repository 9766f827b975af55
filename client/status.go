package client

import (
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A State is where a call stands.
type State string

// States. Those from Completed on are final.
const (
	Working       State = "working"        // the server is at it, or will be asked
	InputRequired State = "input_required" // questions are open
	Completed     State = "completed"      // there is a result, be it a tool's error
	Failed        State = "failed"         // the server said so
	Expired       State = "expired"        // its time is over
	Cancelled     State = "cancelled"
	Unknown       State = "unknown" // the request may have been done, and nobody can say
)

// Final reports whether nothing more comes.
func (s State) Final() bool { return s != Working && s != InputRequired }

// A Status is what is known of a call here. Everything that comes from the
// server is hostile: escape it before you show it.
type Status struct {
	ID        string // of the handle
	Server    string // Options.Server
	Method    string
	Name      string // of the tool or prompt, or the URI
	Arguments json.RawMessage
	Task      string // the server's task id, if there is one

	State   State
	Message string  // the server's latest
	Done    float64 // progress, if Total or Done is not zero
	Total   float64 // zero: not known
	Open    []Question
	Rounds  int // how often the server has answered that it needs input, questions or none

	Created time.Time
	Updated time.Time
	Expires time.Time // the call's deadline here, or the task's end of life if that is sooner
	// Driver says who drives the call at the moment: empty nobody, "here" this
	// client, else another process by its host and number.
	Driver string
	// Seen: a caller has had the outcome. Such calls are forgotten after
	// Limits.Keep.
	Seen bool
}

// A Result is the ordinary result of a call that has completed.
type Result struct {
	ID  string          // of the handle
	Raw json.RawMessage // as it came, with all its digits
	// IsError: it is a tool's result, and says that the tool failed.
	IsError bool
	// Outcome and ServerCall are what a tallystick server says of a result that
	// is no ordinary one: "declined", "dismissed", "expired", "pending", "held".
	Outcome, ServerCall string
}

// Tool decodes the result of a tools/call.
func (r *Result) Tool() (*mcp.CallToolResult, error) { return decode[mcp.CallToolResult](r) }

// Prompt decodes the result of a prompts/get.
func (r *Result) Prompt() (*mcp.GetPromptResult, error) { return decode[mcp.GetPromptResult](r) }

// Resource decodes the result of a resources/read.
func (r *Result) Resource() (*mcp.ReadResourceResult, error) {
	return decode[mcp.ReadResourceResult](r)
}
