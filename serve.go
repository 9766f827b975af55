package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
)

// endpoint is the server as the wire sees it.
type endpoint Server

// Owns implements [wire.Handler].
func (e *endpoint) Owns(method, name string) bool {
	s := (*Server)(e)
	switch method {
	case wire.MethodTaskGet, wire.MethodTaskUpdate, wire.MethodTaskCancel:
		return s.opts.Store != nil
	case wire.MethodListen:
		return true
	}
	return s.feature(method, name) != nil
}

// ParamHeaders implements [wire.Handler].
func (e *endpoint) ParamHeaders(tool string) []wire.ParamHeader {
	s := (*Server)(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headers[tool]
}

// Handle implements [wire.Handler].
func (e *endpoint) Handle(ctx context.Context, r *wire.Request) (*wire.Response, error) {
	s := (*Server)(e)
	if !s.isReady() { // over HTTP it has not come this far
		return nil, &wire.Error{Code: wire.CodeInternal, Message: "the server is not ready, or shutting down", Status: 503}
	}
	s.mu.Lock()
	use := s.use
	s.mu.Unlock()
	handle := func(ctx context.Context, q *Request) (json.RawMessage, error) { return s.serve(ctx, q.wire) }
	for _, m := range slices.Backward(use) {
		handle = m(handle)
	}
	ctx, span := s.observer.Round(ctx, r.Meta, s.called(r))
	code := int64(wire.CodeInternal) // if it panics
	defer func() { span.End(code) }()
	raw, err := handle(ctx, &Request{Method: r.Method, Name: r.Name, Arguments: r.Arguments, Extra: r.Extra, wire: r})
	if err != nil {
		err = wireError(err)
		code = codeOf(err)
		return nil, err
	}
	code = 0
	return &wire.Response{Result: raw, Meta: s.meta(ctx)}, nil
}

// called is what a request is for, by the name that it was registered under.
func (s *Server) called(r *wire.Request) record.Action {
	a := record.Action{Method: r.Method}
	if f := s.feature(r.Method, r.Name); f != nil {
		a.Name = f.name
	}
	return a
}

// meta are the members that each result's _meta gets.
func (s *Server) meta(ctx context.Context) []wire.MetaMember {
	var members []wire.MetaMember
	if len(s.serverInfo) > 0 {
		members = append(members, wire.MetaMember{Name: mcp.MetaKeyServerInfo, Value: s.serverInfo})
	}
	trace := s.observer.Give(ctx)
	for _, name := range slices.Sorted(maps.Keys(trace)) {
		members = append(members, wire.MetaMember{Name: name, Value: trace[name]})
	}
	return members
}

// codeOf is the code that an error goes out with.
func codeOf(err error) int64 {
	var we *wire.Error
	if errors.As(err, &we) {
		return we.Code
	}
	return wire.CodeInternal
}

// wireError passes JSON-RPC errors on; the wire hides all others.
func wireError(err error) error {
	var we *wire.Error
	var je *jsonrpc.Error
	switch {
	case errors.As(err, &we):
		return we
	case errors.As(err, &je):
		w := &wire.Error{Code: je.Code, Message: je.Message}
		if len(je.Data) > 0 {
			w.Data = je.Data
		}
		return w
	}
	return err
}

// signed adds the server's name to a result's _meta.
func (s *Server) signed(raw json.RawMessage) json.RawMessage {
	if len(s.serverInfo) == 0 {
		return raw
	}
	var result map[string]json.RawMessage
	if json.Unmarshal(raw, &result) != nil {
		return raw
	}
	meta := map[string]json.RawMessage{}
	if m := result["_meta"]; len(m) > 0 && json.Unmarshal(m, &meta) != nil {
		return raw
	}
	if _, ok := meta[mcp.MetaKeyServerInfo]; ok {
		return raw
	}
	meta[mcp.MetaKeyServerInfo] = s.serverInfo
	result["_meta"], _ = json.Marshal(meta)
	out, err := json.Marshal(result)
	if err != nil {
		return raw
	}
	return out
}

func (s *Server) serve(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case wire.MethodTaskGet:
		return s.taskGet(ctx, r)
	case wire.MethodTaskUpdate:
		return s.taskUpdate(ctx, r)
	case wire.MethodTaskCancel:
		return s.taskCancel(ctx, r)
	case wire.MethodListen:
		var res json.RawMessage
		err := errPanicked
		s.engine.Here(func() { res, err = s.listen(ctx, r) }) // which a drain waits for
		return res, err
	}
	return s.call(ctx, r)
}

// call serves one request of a tool, prompt or resource: the first, or a retry.
func (s *Server) call(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	f := s.feature(r.Method, r.Name)
	if f == nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown %s %q", r.Method, r.Name)
	}
	id, err := s.identify(ctx, r)
	if err != nil {
		return nil, err
	}
	toolErr, err := f.check(r.Arguments)
	if err != nil {
		return nil, err
	}
	if toolErr != nil {
		return toolFailure(toolErr, "", ""), nil
	}
	sum, err := canon.Digest(r.Arguments)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "arguments: %v", err)
	}
	x := &exchange{
		s: s, f: f, r: r, id: id, kinds: kindsOf(r.Capabilities), values: context.WithoutCancel(ctx), client: ctx,
		action: record.Action{Method: r.Method, Name: r.Name, ArgsDigest: sum, Version: f.version},
	}
	x.by = id.actor(record.ChannelRound)
	if r.Legacy {
		x.by.Channel = record.ChannelLive
	}
	if !f.readOnly && id.Subject == "" && !s.opts.AnonymousEffects {
		s.refused(record.ReasonNotAllowed, id.Tenant)
		return x.failure(fmt.Errorf("%w: this needs a caller who is known", errNotAllowed), "")
	}
	serve := x.begin
	if r.HasRequestState {
		serve = x.retry
	}
	res, err := serve(ctx)
	return res, x.storeError(err)
}

// legacy serves a request of a 2025-era session, which comes by way of the SDK.
func legacy[R any](ctx context.Context, s *Server, r *wire.Request, err error) (*R, error) {
	if err != nil {
		return nil, sdkError(err)
	}
	if !r.Legacy {
		return nil, &jsonrpc.Error{Code: wire.CodeInternal, Message: "the server must be served by tallystick's Handler or Transport"}
	}
	resp, err := (*endpoint)(s).Handle(ctx, r)
	if err != nil {
		return nil, sdkError(err)
	}
	var members map[string]json.RawMessage
	raw, _ := resp.Result.(json.RawMessage)
	raw = s.signed(raw)
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	delete(members, "resultType") // that era knows of none
	if err := addTrace(members, resp.Meta); err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(members); err != nil {
		return nil, err
	}
	res := new(R)
	if tool, ok := any(res).(*mcp.CallToolResult); ok {
		return res, exactly(raw, tool)
	}
	return res, json.Unmarshal(raw, res)
}

// addTrace gives a result of the 2025 era the trace context, and no serverInfo,
// which that era has in its initialize.
func addTrace(members map[string]json.RawMessage, more []wire.MetaMember) error {
	meta := map[string]json.RawMessage{}
	if own := members["_meta"]; len(own) > 0 {
		if err := json.Unmarshal(own, &meta); err != nil {
			return err
		}
	}
	for _, m := range more {
		if _, ok := meta[m.Name]; !ok && m.Name != mcp.MetaKeyServerInfo {
			meta[m.Name] = m.Value
		}
	}
	if len(meta) == 0 {
		return nil
	}
	raw, err := json.Marshal(meta)
	members["_meta"] = raw
	return err
}

// sdkError makes an error that the SDK sends as it is. It hides what the wire
// hides.
func sdkError(err error) error {
	var we *wire.Error
	if !errors.As(wireError(err), &we) {
		return &jsonrpc.Error{Code: wire.CodeInternal, Message: "internal error"}
	}
	je := &jsonrpc.Error{Code: we.Code, Message: we.Message}
	if we.Data != nil {
		je.Data, _ = json.Marshal(we.Data)
	}
	return je
}
