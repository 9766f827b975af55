package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// callStatusTool is the follow-up tool of results that say pending.
const callStatusTool = "call_status"

type callStatusArgs struct {
	CallID string `json:"callId" jsonschema:"the call id that the pending result named"`
}

// addCallStatus adds the tool by which a caller that got "pending" finds out
// what has become of its call. It answers the owner only.
func (s *Server) addCallStatus() {
	AddTool(s, &mcp.Tool{
		Name:        callStatusTool,
		Description: "Tells what has become of a call that was answered with \"pending\", and gives its result once there is one.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}, nil, s.callStatus)
}

func (s *Server) callStatus(ctx context.Context, call *Call, in callStatusArgs) (*mcp.CallToolResult, any, error) {
	noCall := errors.New("no such call")
	owner := call.journal.Call()
	c, err := s.engine.Load(ctx, in.CallID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, noCall
	}
	if err != nil { // the store's words are for the log
		id := newID()
		s.log.Error("a call could not be looked up", "call", in.CallID, "correlation", id, "err", err)
		return nil, nil, &jsonrpc.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("internal error (correlation id %s)", id)}
	}
	by := record.Actor{Principal: owner.Owner, Roles: owner.Roles, Channel: record.ChannelRound}
	if c.Owner != owner.Owner {
		s.engine.Refuse(ctx, c.ID, by, "call_of_another_principal", callStatusTool)
		return nil, nil, noCall
	}
	if s.authorize(ctx, accessTo(c, Watch, identityOf(owner))) != nil {
		return nil, nil, noCall
	}
	if c.State == record.Ended && c.Outcome == record.Completed {
		res := new(mcp.CallToolResult)
		if err := exactly(c.Result, res); err != nil {
			return nil, nil, err
		}
		if res.Meta == nil {
			res.Meta = mcp.Meta{}
		}
		if _, ok := res.Meta[metaOutcome]; !ok {
			res.Meta[metaOutcome] = string(record.Completed)
		}
		return res, nil, nil
	}
	word, text, isError := s.words(c)
	if c.State == record.Ended && c.Error != nil && c.Outcome == record.Failed {
		word, text, isError = "failed", "Failed: "+c.Error.Message, true
		if c.Error.Outcome != "" {
			word = c.Error.Outcome
		}
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: isError,
		Meta: mcp.Meta{metaOutcome: word, metaCall: c.ID},
	}, nil, nil
}

// exactly decodes a tool result so that its structured content stays what it
// is, every digit of it.
func exactly(raw json.RawMessage, res *mcp.CallToolResult) error {
	if err := json.Unmarshal(raw, res); err != nil {
		return err
	}
	var as struct {
		Content json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &as); err != nil {
		return err
	}
	if len(as.Content) > 0 {
		res.StructuredContent = as.Content
	}
	return nil
}
