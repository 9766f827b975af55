//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/record"
)

// askLive sends one question to the client of a 2025-era session and waits for
// the answer.
func (x *exchange) askLive(ctx context.Context, q *record.Question) (*given, error) {
	result, err := x.send(ctx, q)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	g, wrong := readAnswer(q, raw)
	if wrong != nil {
		return nil, fmt.Errorf("its answer does not fit: %v", wrong)
	}
	return &g, nil
}

func (x *exchange) send(ctx context.Context, q *record.Question) (any, error) {
	ss := x.r.Session
	switch q.Kind {
	case record.KindRoots:
		return ss.ListRoots(ctx, &mcp.ListRootsParams{})
	case record.KindSampling:
		var p mcp.CreateMessageWithToolsParams
		if err := json.Unmarshal(q.Request, &p); err != nil {
			return nil, err
		}
		return ss.CreateMessageWithTools(ctx, &p)
	case record.KindForm, record.KindURL:
		var p struct {
			Mode    string          `json:"mode"`
			Message string          `json:"message"`
			Schema  json.RawMessage `json:"requestedSchema"`
			URL     string          `json:"url"`
			ID      string          `json:"elicitationId"`
		}
		if err := json.Unmarshal(q.Request, &p); err != nil {
			return nil, err
		}
		ep := &mcp.ElicitParams{Mode: p.Mode, Message: p.Message, URL: p.URL, ElicitationID: p.ID}
		if q.Kind == record.KindForm {
			ep.RequestedSchema = p.Schema
		} else if ep.ElicitationID == "" {
			ep.ElicitationID = q.WireKey // that era requires one
		}
		return ss.Elicit(ctx, ep)
	}
	return nil, errors.New("unknown kind of question")
}
