// Package exit is what the command's exit codes mean.
package exit

import "strconv"

// A Code is an exit code of the command. The numbers do not change.
type Code int

// Codes.
const (
	Completed   Code = 0
	Failed      Code = 1
	Usage       Code = 2
	ToolError   Code = 3
	Declined    Code = 4
	Dismissed   Code = 5
	Cancelled   Code = 6
	Expired     Code = 7
	Held        Code = 8
	NeedsInput  Code = 9
	Auth        Code = 10
	Unreachable Code = 11
	Detached    Code = 12
	NotWritten  Code = 13
)

// An Entry says of a code what it is called in --json, and what it means.
type Entry struct {
	Code    Code
	Name    string
	Meaning string
}

// Table has every code.
var Table = []Entry{
	{Completed, "completed", "done: the tool's result is on standard output"},
	{Failed, "failed", "the server said that the call failed, or broke the protocol, or nobody can say whether the call was done; the text tells which"},
	{Usage, "usage", "the command was not understood, or its settings are wrong; nothing was sent"},
	{ToolError, "tool_error", "the tool ran, and its result says that it failed"},
	{Declined, "declined", "somebody said no"},
	{Dismissed, "dismissed", "somebody closed the question without a choice"},
	{Cancelled, "cancelled", "the call was cancelled"},
	{Expired, "expired", "nobody answered in time, or the call's deadline has passed"},
	{Held, "held", "an effect was started, and nobody knows whether it happened; a person has to look"},
	{NeedsInput, "needs_input", "a question is open and cannot be answered here, or nobody could be asked"},
	{Auth, "auth", "the server wants credentials, or others"},
	{Unreachable, "unreachable", "the server could not be reached, and the request was not done"},
	{Detached, "detached", "the command has let go of the call, which goes on or waits: it can be resumed"},
	{NotWritten, "not_written", "the command has done its work, and what it had to print could not be written; the text says how to see it"},
}

// Name is the code's name in --json.
func (c Code) Name() string {
	for _, e := range Table {
		if e.Code == c {
			return e.Name
		}
	}
	return strconv.Itoa(int(c))
}
