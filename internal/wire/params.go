package wire

import (
	"bytes"
	"encoding/json"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// params are the strictly parsed params of one request.
type params struct {
	raw     json.RawMessage            // nil when absent
	members map[string]json.RawMessage // never nil
	meta    map[string]json.RawMessage // _meta; nil when absent
}

// The members of params and _meta that mean something to this protocol, in
// either era: one that equals them only by case folding is refused.
var (
	paramMembers = []string{
		"_meta", "name", "uri", "taskId", "arguments", "inputResponses", "requestState",
		"notifications", "cursor", "ref", "argument", "context", "level", "requestId", "reason",
		"progressToken", "progress", "total", "message", "task",
		"protocolVersion", "capabilities", "clientInfo",
	}
	metaMembers = []string{
		mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientCapabilities, mcp.MetaKeyClientInfo,
		//lint:ignore SA1019 the revision still defines the key
		mcp.MetaKeyLogLevel,
		mcp.MetaKeySubscriptionID, mcp.MetaKeyServerInfo, "progressToken",
	}
)

// parseParams splits params and its _meta. Its errors are the same whichever
// transport raw came from. strict says that raw is part of what is [wellFormed].
func parseParams(raw json.RawMessage, strict bool, limits Limits) (params, *Error) {
	p := params{raw: raw, members: map[string]json.RawMessage{}}
	if raw == nil || string(raw) == "null" {
		p.raw = nil
		return p, nil
	}
	if nesting(raw, limits.Nesting-1) {
		return p, Errorf(CodeInvalidParams, "nesting is over the limit of %d levels (Limits.Nesting)", limits.Nesting)
	}
	var err *Error
	if p.members, err = membersOf("params", raw, paramMembers, strict); err != nil {
		return p, err
	}
	if meta, ok := p.members["_meta"]; ok {
		if p.meta, err = membersOf("_meta", meta, metaMembers, strict); err != nil {
			return p, err
		}
	}
	// In its error for an unknown resource the SDK quotes the URI as Go does. A
	// response that is thereby no JSON would end the connection, or the session.
	if uri, ok := unquote(p.members["uri"]); ok && !json.Valid(strconv.AppendQuote(nil, uri)) {
		return p, Errorf(CodeInvalidParams, "params.uri has characters that no URI has")
	}
	return p, nil
}

// membersOf is [object], for which less is to be looked at if v is part of what is
// [wellFormed].
func membersOf(what string, v json.RawMessage, known []string, strict bool) (map[string]json.RawMessage, *Error) {
	if !strict || len(v) == 0 || v[0] != '{' {
		return object(what, v, known)
	}
	return splitMembers(v, known, func(name, k string) *Error { return foldedMember(what, name, k) })
}

func foldedMember(what, name, known string) *Error {
	return Errorf(CodeInvalidParams, "member name %s of %s differs from %q only in case", short(name), what, known)
}

// object splits the object v, refusing repeated names at any depth and names
// that fold to known ones.
func object(what string, v json.RawMessage, known []string) (map[string]json.RawMessage, *Error) {
	members := map[string]json.RawMessage{}
	if len(v) == 0 || v[0] != '{' {
		return members, Errorf(CodeInvalidParams, "%s must be an object", what)
	}
	var folded, to string
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	err := eachMember(d, v, func(name string, value json.RawMessage) {
		if k := foldsTo(name, known); k != "" {
			folded, to = name, k
		}
		members[name] = value
	})
	if err != nil {
		return map[string]json.RawMessage{}, Errorf(CodeInvalidParams, "invalid %s: %s", what, describe(err))
	}
	if to != "" {
		return members, foldedMember(what, folded, to)
	}
	return members, nil
}

// version returns the protocol version of _meta. Modern requests have it;
// present says whether the member is there at all.
func (p *params) version() (version string, present bool, err *Error) {
	v, present := p.meta[mcp.MetaKeyProtocolVersion]
	if !present {
		return "", false, nil
	}
	if string(v) == `"`+Version+`"` {
		return Version, true, nil
	}
	version, ok := unquote(v)
	if !ok {
		return "", true, Errorf(CodeInvalidParams, "_meta %q must be a string", mcp.MetaKeyProtocolVersion)
	}
	return version, true, nil
}

// nameMember returns the params member that names what the method acts on: the
// one that Mcp-Name repeats. It is empty for methods without one.
func nameMember(method string) string {
	switch method {
	case MethodCallTool, MethodGetPrompt:
		return "name"
	case MethodReadResource:
		return "uri"
	case MethodTaskGet, MethodTaskUpdate, MethodTaskCancel:
		return "taskId"
	}
	return ""
}

// name returns the value of the method's [nameMember].
func (p *params) name(method string) (string, *Error) {
	member := nameMember(method)
	if member == "" {
		return "", nil
	}
	name, ok := unquote(p.members[member])
	if !ok || name == "" {
		return "", Errorf(CodeInvalidParams, "params.%s must be a string that is not empty", member)
	}
	return name, nil
}

// arguments returns params.arguments, which must be an object within limits.
func (p *params) arguments(limits Limits) (json.RawMessage, *Error) {
	v, ok := p.members["arguments"]
	switch {
	case !ok:
		return nil, nil
	case v[0] != '{':
		return nil, Errorf(CodeInvalidParams, "params.arguments must be an object")
	case len(v) > limits.ArgumentsBytes:
		return nil, tooLarge(CodeInvalidParams, "params.arguments", "ArgumentsBytes", int64(limits.ArgumentsBytes))
	}
	return v, nil
}

// inputResponses returns params.inputResponses, nil when absent.
func (p *params) inputResponses(limits Limits) (map[string]json.RawMessage, *Error) {
	v, ok := p.members["inputResponses"]
	if !ok {
		return nil, nil
	}
	answers, err := object("params.inputResponses", v, nil)
	if err != nil {
		return nil, err
	}
	for key, a := range answers {
		if a[0] != '{' {
			return nil, Errorf(CodeInvalidParams, "params.inputResponses[%s] must be an object", short(key))
		}
		if len(a) > limits.AnswerBytes {
			return nil, tooLarge(CodeInvalidParams, "params.inputResponses["+short(key)+"]", "AnswerBytes", int64(limits.AnswerBytes))
		}
	}
	return answers, nil
}

// requestState returns params.requestState and whether it is there.
func (p *params) requestState(limits Limits) (string, bool, *Error) {
	v, ok := p.members["requestState"]
	if !ok {
		return "", false, nil
	}
	if v[0] != '"' {
		return "", true, Errorf(CodeInvalidParams, "params.requestState must be a string")
	}
	if len(v) > limits.StateBytes+2 { // its quotes
		return "", true, tooLarge(CodeInvalidParams, "params.requestState", "StateBytes", int64(limits.StateBytes))
	}
	state, ok := unquote(v)
	if !ok {
		return "", true, Errorf(CodeInvalidParams, "params.requestState must be a string")
	}
	return state, true, nil
}

// capabilities decodes the client's capabilities of this request, which the
// revision requires.
func (p *params) capabilities(seen *remembered[*mcp.ClientCapabilities]) (*mcp.ClientCapabilities, *Error) {
	v, ok := p.meta[mcp.MetaKeyClientCapabilities]
	if !ok || v[0] != '{' {
		return nil, Errorf(CodeInvalidParams, "_meta %q must be an object", mcp.MetaKeyClientCapabilities)
	}
	if caps, ok := seen.of(v); ok {
		return caps, nil
	}
	caps, err := decodeCapabilities(v)
	if err != nil {
		return nil, Errorf(CodeInvalidParams, "_meta %q is malformed", mcp.MetaKeyClientCapabilities)
	}
	for name, settings := range caps.Extensions {
		// null would otherwise read as declared in one place and not in another.
		if _, ok := settings.(map[string]any); !ok {
			return nil, Errorf(CodeInvalidParams, "extension %s in _meta %q must be an object", short(name), mcp.MetaKeyClientCapabilities)
		}
	}
	seen.keep(v, caps)
	return caps, nil
}

// decodeCapabilities fills both forms that the SDK has for roots, as its own
// decoder does.
func decodeCapabilities(v json.RawMessage) (*mcp.ClientCapabilities, error) {
	var caps mcp.ClientCapabilities
	if err := jsonv2.Unmarshal(v, &caps); err != nil {
		return nil, err
	}
	members, bad := object("capabilities", v, nil)
	if bad != nil {
		return nil, bad
	}
	if roots := members["roots"]; len(roots) > 0 && roots[0] == '{' {
		//lint:ignore SA1019 deprecated for use, still part of the revision
		caps.RootsV2 = &mcp.RootCapabilities{ListChanged: caps.Roots.ListChanged}
	}
	return &caps, nil
}

// clientInfo decodes what the client says of itself; nil when it says nothing.
func (p *params) clientInfo(seen *remembered[*mcp.Implementation]) (*mcp.Implementation, *Error) {
	v, ok := p.meta[mcp.MetaKeyClientInfo]
	if !ok {
		return nil, nil
	}
	if info, ok := seen.of(v); ok {
		return info, nil
	}
	var info mcp.Implementation
	if v[0] != '{' || jsonv2.Unmarshal(v, &info) != nil {
		return nil, Errorf(CodeInvalidParams, "_meta %q is malformed", mcp.MetaKeyClientInfo)
	}
	seen.keep(v, &info)
	return &info, nil
}
