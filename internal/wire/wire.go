// Package wire reads and writes MCP revision 2026-07-28: one POST in, one JSON
// object or SSE stream out, and the same messages over any go-sdk transport.
//
// It parses each request once, strictly, checks it against its headers and
// bounds, and hands it to a [Handler]. It knows the protocol and nothing of
// what a call means.
package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Version is the protocol revision that this package speaks.
const Version = "2026-07-28"

// TasksExtension names the Tasks extension in capabilities.
const TasksExtension = "io.modelcontextprotocol/tasks"

// Methods that this package hands to its [Handler]. Every other method goes to
// the SDK server behind it.
const (
	MethodCallTool     = "tools/call"
	MethodGetPrompt    = "prompts/get"
	MethodReadResource = "resources/read"
	MethodTaskGet      = "tasks/get"
	MethodTaskUpdate   = "tasks/update"
	MethodTaskCancel   = "tasks/cancel"
	MethodListen       = "subscriptions/listen"
)

// JSON-RPC error codes of MCP revision 2026-07-28.
const (
	CodeParseError         = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// A Handler answers the requests that are not the SDK's. It must be safe for
// concurrent use. The error it returns is sent to the peer if it is an
// [*Error]; any other error becomes [CodeInternal] without its text.
type Handler interface {
	// Owns reports whether the request is this handler's: tasks/* and
	// subscriptions/listen always, tools/call, prompts/get and resources/read
	// when the named thing was registered with it. What it does not own goes to
	// the SDK.
	Owns(method, name string) bool
	// Handle answers one request. ctx ends with the client's connection.
	Handle(ctx context.Context, r *Request) (*Response, error)
	// ParamHeaders returns the Mcp-Param bindings of the named tool, whoever
	// owns it: those whose arguments must equal a request header.
	ParamHeaders(tool string) []ParamHeader
}

// A ParamHeader ties one tool argument to the header Mcp-Param-{Header}.
type ParamHeader struct {
	Path   []string // property names from the arguments' root
	Header string
}

// A Request is one parsed request of either era. Its byte slices are the very
// bytes that arrived (compare [Request.Arguments]); they must not be modified.
type Request struct {
	ID     json.RawMessage // the JSON-RPC id, as it came
	Method string
	Name   string          // tool or prompt name, resource URI, or task id
	Params json.RawMessage // the whole params object

	// Arguments of tools/call and prompts/get; nil when absent.
	Arguments json.RawMessage
	// InputResponses by wire key; nil when the member is absent. A member that
	// is null or no object is refused with CodeInvalidParams before Handle.
	InputResponses map[string]json.RawMessage
	// RequestState and whether the member was present.
	RequestState    string
	HasRequestState bool

	// Filter of subscriptions/listen; nil for other methods.
	Filter *Filter

	// Meta is the request's _meta object, member by member.
	Meta map[string]json.RawMessage
	// Capabilities this request's client declared: per request in the modern
	// era, per session in the 2025 era. Never nil.
	Capabilities *mcp.ClientCapabilities
	// ClientInfo as the client states it; nil when it does not. Never trust it.
	ClientInfo *mcp.Implementation

	// Legacy is true for a request of a 2025-era session; Session is then the
	// live session, through which the client can be asked.
	Legacy  bool
	Session *mcp.ServerSession

	// Extra is what the HTTP layer knows: token and headers. Never nil.
	Extra *mcp.RequestExtra

	// Notify sends a notification on this request's own response stream
	// (notifications/progress, those of a listen). It may be called until Handle
	// returns, from any goroutine, and blocks while the client does not read,
	// for a bounded time over HTTP. Nil when the transport has no stream.
	Notify func(ctx context.Context, method string, params any) error
}

// DeclaresTasks reports whether this request's client declares the Tasks
// extension. The 2025 era's own tasks capability does not count.
func (r *Request) DeclaresTasks() bool {
	if r.Legacy || r.Capabilities == nil {
		return false
	}
	v, ok := r.Capabilities.Extensions[TasksExtension]
	return ok && v != nil
}

// Token returns the verified bearer token's facts, or nil.
func (r *Request) Token() *auth.TokenInfo {
	if r.Extra == nil {
		return nil
	}
	return r.Extra.TokenInfo
}

// Header returns the HTTP headers, or nil on other transports.
func (r *Request) Header() http.Header {
	if r.Extra == nil {
		return nil
	}
	return r.Extra.Header
}

// A Response is a JSON-RPC result. Result must marshal to a JSON object that
// has resultType; the wire adds _meta serverInfo if it is absent.
type Response struct {
	Result any
	// Meta are members that its _meta gets, those apart that it has.
	Meta []MetaMember
}

// A MetaMember is one member of a _meta.
type MetaMember struct {
	Name  string
	Value json.RawMessage
}

// An Error is a JSON-RPC error. Status is the HTTP status it travels with; zero
// means the one that goes with its code ([CodeMethodNotFound] 404,
// [CodeInternal] 500, all others 400).
type Error struct {
	Code    int64
	Message string
	Data    any // marshalled as error.data; nil when there is none
	Status  int
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Errorf makes an [*Error] with a formatted message.
func Errorf(code int64, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// MissingCapability is the -32021 error for capabilities that a request needs
// and does not declare; required is the shape of ClientCapabilities.
func MissingCapability(message string, required map[string]any) *Error {
	return &Error{Code: CodeMissingCapability, Message: message, Data: map[string]any{"requiredCapabilities": required}}
}
