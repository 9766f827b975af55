package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A front is what all transports share: which requests are admitted, which are
// the handler's, and how an answer of the handler becomes a message.
type front struct {
	handler    Handler
	limits     Limits
	log        *slog.Logger
	serverInfo json.RawMessage
	supported  []string
	// Clients say the same of themselves in each request.
	capabilities remembered[*mcp.ClientCapabilities]
	clients      remembered[*mcp.Implementation]
}

func newFront(h Handler, limits Limits, log *slog.Logger, serverInfo json.RawMessage, supported []string) *front {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if len(supported) == 0 {
		supported = []string{Version}
	}
	return &front{handler: h, limits: limits.withDefaults(), log: log, serverInfo: serverInfo, supported: supported}
}

// removed are requests of earlier revisions that the SDK may still know.
var removed = []string{
	"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
	"tasks/list", "tasks/result",
}

// noRequest reports whether a method is not one of this revision's requests,
// whatever the SDK thinks of it.
func noRequest(method string) bool {
	return strings.HasPrefix(method, "notifications/") || slices.Contains(removed, method)
}

func methodNotFound(method string) *Error {
	return Errorf(CodeMethodNotFound, "method %s does not exist in revision %s", short(method), Version)
}

func (f *front) unsupportedVersion(requested string) *Error {
	return &Error{
		Code:    CodeUnsupportedVersion,
		Message: "protocol version " + short(requested) + " is not supported",
		Data:    map[string]any{"supported": f.supported, "requested": requested},
	}
}

// admit checks a modern request, its headers apart, and makes the handler's
// view of it. The capability gate of tasks/* is here, before anything could
// look a task up, so that it tells nothing about which tasks exist.
func (f *front) admit(m message, p params) (*Request, *Error) {
	if noRequest(m.Method) {
		return nil, methodNotFound(m.Method)
	}
	version, present, err := p.version()
	switch {
	case err != nil:
		return nil, err
	case !present:
		return nil, Errorf(CodeInvalidParams, "_meta %q is missing", mcp.MetaKeyProtocolVersion)
	case version != Version:
		return nil, f.unsupportedVersion(version)
	}
	r := &Request{ID: m.ID, Method: m.Method, Params: p.raw, Meta: p.meta}
	if r.Capabilities, err = p.capabilities(&f.capabilities); err != nil {
		return nil, err
	}
	if r.ClientInfo, err = p.clientInfo(&f.clients); err != nil {
		return nil, err
	}
	if m.Method == MethodListen {
		return r, f.admitListen(r, p)
	}
	if nameMember(m.Method) == "" {
		return r, nil
	}
	if r.Name, err = p.name(m.Method); err != nil {
		return nil, err
	}
	if isTaskMethod(m.Method) && !r.DeclaresTasks() {
		return nil, missingTasks()
	}
	if m.Method == MethodCallTool || m.Method == MethodGetPrompt {
		if r.Arguments, err = p.arguments(f.limits); err != nil {
			return nil, err
		}
	}
	if r.InputResponses, err = p.inputResponses(f.limits); err != nil {
		return nil, err
	}
	if r.RequestState, r.HasRequestState, err = p.requestState(f.limits); err != nil {
		return nil, err
	}
	return r, nil
}

func missingTasks() *Error {
	return MissingCapability("this request needs the Tasks extension: declare it in clientCapabilities.extensions",
		map[string]any{"extensions": map[string]any{TasksExtension: map[string]any{}}})
}

func isTaskMethod(method string) bool {
	return method == MethodTaskGet || method == MethodTaskUpdate || method == MethodTaskCancel
}

// owns reports whether the admitted request goes to the handler.
func (f *front) owns(r *Request) bool {
	return (nameMember(r.Method) != "" || r.Method == MethodListen) && f.handler.Owns(r.Method, r.Name)
}

// handle runs the handler and returns either the result, complete and within
// its limit, or the error to send. A panic of the handler ends its own request
// only.
func (f *front) handle(ctx context.Context, r *Request) (result json.RawMessage, failed *Error) {
	defer func() {
		if v := recover(); v != nil {
			failed = f.internal(r.Method, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	resp, err := f.handler.Handle(ctx, r)
	if err != nil {
		if known, ok := errors.AsType[*Error](err); ok && known != nil {
			return nil, known
		}
		if ctx.Err() != nil {
			// Nobody reads the answer, or the server is going away: no fault.
			f.log.Debug("request cancelled", "method", r.Method, "cause", context.Cause(ctx))
			return nil, Errorf(CodeInternal, "the request was cancelled")
		}
		return nil, f.internal(r.Method, err)
	}
	result, err = encodeResult(resp, f.serverInfo)
	if err != nil {
		return nil, f.internal(r.Method, fmt.Errorf("encoding the result: %w", err))
	}
	if len(result) > f.limits.ResultBytes {
		e := tooLarge(CodeInternal, "the result", "ResultBytes", int64(f.limits.ResultBytes))
		e.Status = 0
		f.log.Error("result over the limit", "method", r.Method, "bytes", len(result), "limit", f.limits.ResultBytes)
		return nil, e
	}
	return result, nil
}

// internal logs what went wrong under a fresh id and returns the error that
// carries nothing but that id.
func (f *front) internal(method string, err error) *Error {
	id := rand.Text()
	f.log.Error("request failed", "method", method, "correlation_id", id, "error", err)
	return &Error{
		Code:    CodeInternal,
		Message: "internal error; the server's log has the detail under this correlation id",
		Data:    map[string]any{"correlationId": id},
	}
}
