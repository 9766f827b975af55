package tallystick

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/seal"
)

// probeMethod is a request that the server sends itself once, to see who else
// would handle it.
const probeMethod = "tallystick/probe"

type probeParams struct {
	mcp.ParamsBase
	Nonce string `json:"nonce"`
}

type probeResult struct {
	mcp.ResultBase
	Foreign string `json:"foreign"`
}

// discover lets the SDK server tell of the Tasks extension and, to whom keys are
// kept for, of idempotency keys.
func (s *Server) discover() {
	if s.opts.Store == nil {
		return
	}
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			switch r := res.(type) {
			case *mcp.DiscoverResult:
				if err == nil && r != nil && r.Capabilities != nil {
					r.Capabilities.AddExtension(wire.TasksExtension, map[string]any{})
					if kept := s.keysKept(ctx, req); kept != nil {
						r.Capabilities.AddExtension(keyMeta, kept)
						r.CacheScope = "private" // it depends on who asks
					}
				}
			case *mcp.InitializeResult:
				if err == nil && r != nil && r.Capabilities != nil {
					if kept := s.keysKept(ctx, req); kept != nil {
						if r.Capabilities.Experimental == nil {
							r.Capabilities.Experimental = map[string]any{}
						}
						r.Capabilities.Experimental[keyMeta] = kept
					}
				}
			}
			return res, err
		}
	})
}

// keysKept is what a client is told of idempotency keys: for how many
// milliseconds from a key's first use on the same request surely means the same
// call. Nil for somebody unknown, whose keys are ignored, and where Identify
// cannot cope: the server's own first question, in memory, has no token.
func (s *Server) keysKept(ctx context.Context, req mcp.Request) (kept map[string]any) {
	defer func() {
		if recover() != nil {
			kept = nil
		}
	}()
	extra := req.GetExtra()
	if extra == nil {
		extra = new(mcp.RequestExtra)
	}
	id, err := s.opts.Identify(ctx, extra)
	if err != nil || id.Subject == "" {
		return nil
	}
	return map[string]any{"keptMs": s.limits.Retention.Milliseconds()}
}

// start learns the SDK server's name and makes sure that no middleware of it
// is passed by.
func (s *Server) start(ctx context.Context) error {
	nonce := rand.Text()
	err := mcp.AddReceivingCustomMethod(s.mcp, probeMethod, func(_ context.Context, _ *mcp.ServerSession, p *probeParams) (*probeResult, error) {
		if p == nil || p.Nonce != nonce {
			return nil, &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: "method not found"}
		}
		return &probeResult{Foreign: foreignFrame()}, nil
	})
	if err != nil {
		return err
	}
	var info struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var probe probeResult
	err = s.askSDK(ctx, nonce, &info, &probe)
	if err != nil && !(s.opts.SkipSDKMiddleware && s.opts.Name != "") {
		return fmt.Errorf("tallystick: probing the SDK server: %w: receiving middleware of the mcp.Server must let server/discover and %s pass from a connection in memory, which has no token; or set both Options.SkipSDKMiddleware and Options.Name", err, probeMethod)
	}
	if probe.Foreign != "" && !s.opts.SkipSDKMiddleware {
		return fmt.Errorf("tallystick: the mcp.Server has receiving middleware (%s), which the calls of tallystick's tools would pass by: put it into Server.Use, or set Options.SkipSDKMiddleware", probe.Foreign)
	}
	s.serverInfo = info.Meta[mcp.MetaKeyServerInfo]
	name := s.opts.Name
	if name == "" {
		var impl struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(s.serverInfo, &impl); err != nil {
			return fmt.Errorf("tallystick: the SDK server does not say its name; set Options.Name: %w", err)
		}
		name = impl.Name
	}
	s.sealer, err = seal.NewSealer(s.opts.Keys, seal.Audience(name, s.opts.Deployment))
	if err != nil {
		return err
	}
	s.sealer = s.sealer.WithLimit(s.limits.StateBytes)
	return nil
}

// foreignFrame names the first function on the stack, between the SDK's
// receiving a request and this handler, that is neither the SDK's nor ours.
func foreignFrame() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "github.com/modelcontextprotocol/go-sdk/mcp.handleReceive"):
			return ""
		case strings.HasPrefix(f.Function, "github.com/modelcontextprotocol/go-sdk/"),
			strings.HasPrefix(f.Function, "github.com/tallystick/tallystick."),
			strings.HasPrefix(f.Function, "runtime."):
		default:
			return f.Function
		}
		if !more {
			return ""
		}
	}
}

// askSDK asks the SDK server, over a connection in memory, who it is, and sends
// it the probe.
func (s *Server) askSDK(ctx context.Context, nonce string, info, probe any) error {
	ours, theirs := mcp.NewInMemoryTransports()
	session, err := s.mcp.Connect(ctx, theirs, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	conn, err := ours.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	meta := map[string]any{
		mcp.MetaKeyProtocolVersion: wire.Version, mcp.MetaKeyClientCapabilities: map[string]any{},
		mcp.MetaKeyClientInfo: map[string]any{"name": "tallystick", "version": "1"},
	}
	ask := func(id int64, method string, params map[string]any, result any) error {
		params["_meta"] = meta
		raw, err := json.Marshal(params)
		if err != nil {
			return err
		}
		rid, err := jsonrpc.MakeID(float64(id))
		if err != nil {
			return err
		}
		if err := conn.Write(ctx, &jsonrpc.Request{ID: rid, Method: method, Params: raw}); err != nil {
			return err
		}
		for {
			msg, err := conn.Read(ctx)
			if err != nil {
				return err
			}
			resp, ok := msg.(*jsonrpc.Response)
			if !ok {
				continue
			}
			if resp.Error != nil {
				return errors.Join(fmt.Errorf("%s failed", method), resp.Error)
			}
			return json.Unmarshal(resp.Result, result)
		}
	}
	if err := ask(1, "server/discover", map[string]any{}, info); err != nil {
		return err
	}
	return ask(2, probeMethod, map[string]any{"nonce": nonce}, probe)
}
