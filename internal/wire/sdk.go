package wire

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// FromToolCall makes a [Request] out of a tools/call that the SDK received in a
// 2025-era session. ID is nil, for the SDK does not show it. Arguments are the
// bytes that arrived, checked as strictly as those of the modern era, within
// limits. Notify sends notifications/progress and
// notifications/message on the session; its context must be derived from the
// SDK handler's for them to reach the request's own stream.
//
// A modern request is an error: it is here because the server was served
// without [NewHTTP] or [NewTransport].
func FromToolCall(req *mcp.CallToolRequest, limits Limits) (*Request, error) {
	r, err := fromSDK(req, MethodCallTool)
	if err != nil {
		return nil, err
	}
	r.Name = req.Params.Name
	if len(req.Params.Arguments) == 0 || string(req.Params.Arguments) == "null" {
		return r, nil // some clients of that era send null for none
	}
	r.Arguments = req.Params.Arguments
	limits = limits.withDefaults()
	if nesting(r.Arguments, limits.Nesting-2) {
		return nil, Errorf(CodeInvalidParams, "nesting is over the limit of %d levels (Limits.Nesting)", limits.Nesting)
	}
	if len(r.Arguments) > limits.ArgumentsBytes {
		return nil, tooLarge(CodeInvalidParams, "params.arguments", "ArgumentsBytes", int64(limits.ArgumentsBytes))
	}
	if _, bad := object("params.arguments", r.Arguments, nil); bad != nil {
		return nil, bad
	}
	return r, nil
}

// FromPrompt is [FromToolCall] for prompts/get.
func FromPrompt(req *mcp.GetPromptRequest, limits Limits) (*Request, error) {
	r, err := fromSDK(req, MethodGetPrompt)
	if err != nil {
		return nil, err
	}
	r.Name = req.Params.Name
	if req.Params.Arguments != nil {
		if r.Arguments, err = marshal(req.Params.Arguments); err != nil {
			return nil, fmt.Errorf("encoding arguments: %w", err)
		}
		if limits = limits.withDefaults(); len(r.Arguments) > limits.ArgumentsBytes {
			return nil, tooLarge(CodeInvalidParams, "params.arguments", "ArgumentsBytes", int64(limits.ArgumentsBytes))
		}
	}
	return r, nil
}

// FromResource is [FromToolCall] for resources/read.
func FromResource(req *mcp.ReadResourceRequest) (*Request, error) {
	r, err := fromSDK(req, MethodReadResource)
	if err != nil {
		return nil, err
	}
	r.Name = req.Params.URI
	return r, nil
}

// fromSDK fills what the three kinds have in common.
func fromSDK[P mcp.Params](req *mcp.ServerRequest[P], method string) (*Request, error) {
	if req.ProtocolVersion() >= Version {
		return nil, Errorf(CodeInternal, "a request of revision %s reached the SDK: serve with Handler or Transport", Version)
	}
	r := &Request{
		Method:       method,
		Capabilities: req.ClientCapabilities(),
		ClientInfo:   req.ClientInfo(),
		Legacy:       true,
		Session:      req.Session,
		Extra:        req.Extra,
		Meta:         map[string]json.RawMessage{},
	}
	if r.Capabilities == nil {
		r.Capabilities = &mcp.ClientCapabilities{}
	}
	if r.Extra == nil {
		// Nobody says who sent it: it came past the transports of this package,
		// and must not pass for one of a local user's.
		return nil, Errorf(CodeInternal, "a request reached the SDK by a transport that does not say who sent it: serve with Handler or Transport")
	}
	if req.Session != nil {
		r.Notify = func(ctx context.Context, method string, params any) error {
			return notifySession(ctx, req.Session, method, params)
		}
	}
	for name, v := range req.Params.GetMeta() {
		b, err := marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encoding _meta: %w", err)
		}
		r.Meta[name] = b
	}
	var err error
	if r.Params, err = marshal(req.Params); err != nil {
		return nil, fmt.Errorf("encoding params: %w", err)
	}
	return r, nil
}

func notifySession(ctx context.Context, s *mcp.ServerSession, method string, params any) error {
	b, err := marshal(params)
	if err != nil {
		return err
	}
	switch method {
	case "notifications/progress":
		var p mcp.ProgressNotificationParams
		if err := json.Unmarshal(b, &p); err != nil {
			return err
		}
		return s.NotifyProgress(ctx, &p)
	case "notifications/message":
		//lint:ignore SA1019 the 2025 era has no other way
		var p mcp.LoggingMessageParams
		if err := json.Unmarshal(b, &p); err != nil {
			return err
		}
		//lint:ignore SA1019 the 2025 era has no other way
		return s.Log(ctx, &p)
	}
	return fmt.Errorf("notification %q cannot be sent on a session", method)
}
