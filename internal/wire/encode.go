package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// status is the HTTP status that the error travels with.
func (e *Error) status() int {
	switch {
	case e.Status != 0:
		return e.Status
	case e.Code == CodeMethodNotFound:
		return http.StatusNotFound
	case e.Code == CodeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// marshal is encoding/json, for which the SDK's types are made, without its
// HTML escaping. The output is one line, as SSE and stdio need.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// encodeResult makes a result object complete: it gets resultType, for the
// SDK's own types cannot say it, and _meta serverInfo, unless it has them.
func encodeResult(r *Response, serverInfo json.RawMessage) (json.RawMessage, error) {
	if r == nil {
		return nil, errors.New("no response")
	}
	more := r.Meta
	if len(serverInfo) > 0 && !slices.ContainsFunc(more, func(m MetaMember) bool { return m.Name == mcp.MetaKeyServerInfo }) {
		more = append(slices.Clip(more), MetaMember{mcp.MetaKeyServerInfo, serverInfo})
	}
	b, err := resultObject(r.Result)
	if err != nil {
		return nil, err
	}
	resultType, asks, metaStart, metaEnd := false, false, 0, 0
	split(b, resultMembers, func(name string, _ bool, start, end int) {
		switch name {
		case "resultType":
			resultType = true
		case "inputRequests", "requestState":
			asks = true
		case "_meta":
			metaStart, metaEnd = start, end
		}
	})
	if asks && !resultType {
		return nil, errors.New("a result with inputRequests or requestState has no resultType")
	}
	if metaEnd > 0 && len(more) > 0 { // first, while its place is known
		own, bad := membersOf("_meta of the result", b[metaStart:metaEnd], nil, true)
		if bad != nil {
			return nil, bad
		}
		b = slices.Concat(b[:metaStart], addMeta(b[metaStart:metaEnd], own, more), b[metaEnd:])
	}
	if !resultType {
		b = addMember(b, "resultType", []byte(`"complete"`))
	}
	if metaEnd == 0 && len(more) > 0 {
		b = addMember(b, "_meta", addMeta([]byte("{}"), nil, more))
	}
	return b, nil
}

// addMeta adds to a _meta the members that it does not have.
func addMeta(meta []byte, own map[string]json.RawMessage, more []MetaMember) []byte {
	for _, m := range more {
		if _, ok := own[m.Name]; !ok {
			meta = addMember(meta, m.Name, m.Value)
		}
	}
	return meta
}

// resultMembers are the members of a result that mean something here.
var resultMembers = []string{"resultType", "_meta", "inputRequests", "requestState"}

// resultObject is a result as an object that is [wellFormed] and compact as far
// as it has to be: it is one line, and has no space before its end.
func resultObject(result any) (json.RawMessage, error) {
	if raw, ok := result.(json.RawMessage); ok && isLine(raw) && wellFormed(raw) {
		return raw, nil
	}
	b, err := marshal(result)
	switch {
	case err != nil:
		return nil, err
	case !isLine(b):
		return nil, errors.New("the result is not a JSON object")
	case !wellFormed(b):
		return nil, describe(jsontext.NewDecoder(bytes.NewBuffer(b)).SkipValue())
	}
	return b, nil
}

// isLine reports whether b, if it is JSON, is one object on one line.
func isLine(b []byte) bool {
	return len(b) > 1 && b[0] == '{' && b[len(b)-1] == '}' && bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0
}

// addMember appends a member to a JSON object that does not have it and ends
// with its brace.
func addMember(object []byte, name string, value []byte) []byte {
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	out = append(out, object[:len(object)-1]...)
	if len(bytes.TrimSpace(object[1:len(object)-1])) > 0 {
		out = append(out, ',')
	}
	out, _ = jsontext.AppendQuote(out, name)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, '}')
}

// encodeResponse frames a result.
func encodeResponse(id, result json.RawMessage) []byte {
	b := make([]byte, 0, len(result)+len(id)+40)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	return append(b, '}')
}

// encodeError frames an error. A nil id is left out: the revision's schema
// knows no null id.
func encodeError(id json.RawMessage, e *Error) []byte {
	b := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		b = append(b, `"id":`...)
		b = append(b, id...)
		b = append(b, ',')
	}
	type object struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}
	o, err := marshal(object{e.Code, e.Message, e.data()})
	if err != nil { // a string, an integer and valid JSON cannot fail
		panic(err)
	}
	b = append(b, `"error":`...)
	b = append(b, o...)
	return append(b, '}')
}

// data is error.data as JSON. Data that cannot be marshalled is left out: the
// error itself matters more.
func (e *Error) data() json.RawMessage {
	if e.Data == nil {
		return nil
	}
	b, err := marshal(e.Data)
	if err != nil {
		return nil
	}
	return b
}

// encodeNotification frames a notification.
func encodeNotification(method string, params any) ([]byte, error) {
	type object struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}
	return marshal(object{"2.0", method, params})
}
