package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// ledger is the file in which effects write what they did, a line each: what
// was done twice stands in it twice.
type ledger string

// An entry is a line of the ledger.
type entry struct {
	Order   string   `json:"order"`
	Answers []answer `json:"answers"` // that the effect rests on
}

type answer struct {
	Action string `json:"action"`
	Value  string `json:"value"`
}

func (l ledger) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(string(l), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

type (
	orderArgs struct {
		Order string `json:"order" jsonschema:"the order"`
	}
	receipt struct {
		Order string `json:"order"`
	}
	address struct {
		Street string `json:"street" jsonschema:"street and number"`
		Floor  int    `json:"floor"`
		Lift   bool   `json:"lift"`
	}
	seat struct {
		Seat string `json:"seat"`
	}
	meal struct {
		Meal string `json:"meal"`
	}
	reason struct {
		Reason string `json:"reason"`
	}
	sum struct {
		A int `json:"a"`
		B int `json:"b"`
	}
)

// add adds what is on offer at the desk.
func add(s *tallystick.Server, l ledger) {
	refunds := func(key string, who tallystick.Who) tallystick.ToolHandler[orderArgs, receipt] {
		return func(ctx context.Context, call *tallystick.Call, in orderArgs) (*mcp.CallToolResult, receipt, error) {
			if err := call.Confirm(tallystick.Question{
				Key: key, Message: "Refund order " + in.Order + "?", Facts: in.Order, Who: who, Within: 10 * time.Minute,
			}); err != nil {
				return nil, receipt{}, err
			}
			r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.Order},
				func(context.Context, string) (receipt, error) {
					e := entry{Order: in.Order}
					for _, a := range call.Answers(key) {
						e.Answers = append(e.Answers, answer{string(a.Action), string(a.Value)})
					}
					return receipt(in), l.write(e)
				})
			return nil, r, err
		}
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "refund", Description: "Refunds an order, once you have confirmed it."}, nil,
		refunds("approve", tallystick.Who{}))
	tallystick.AddTool(s, &mcp.Tool{Name: "refund_large", Description: "Refunds an order, once finance has approved it."}, nil,
		refunds("finance", tallystick.Who{Roles: []string{"finance"}, NotRequester: true}))
	tallystick.AddTool(s, &mcp.Tool{Name: "deliver", Description: "Asks where to."}, nil, deliver)
	tallystick.AddTool(s, &mcp.Tool{Name: "travel", Description: "Asks two things at once, and then one more."}, nil, travel)
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	tallystick.AddTool(s, &mcp.Tool{Name: "explain", Description: "Asks why, and keeps nothing.", Annotations: reads}, nil, explain)
	tallystick.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds two numbers.", Annotations: reads}, nil, plus)
	tallystick.AddTool(s, &mcp.Tool{Name: "broken", Description: "Always fails."}, nil, broken)
	tallystick.AddPrompt(s, &mcp.Prompt{Name: "letter", Description: "Asks what the letter is about."}, letter)
	tallystick.AddResource(s, &mcp.Resource{URI: "desk://note", Name: "note", Description: "Asks why it is read."}, note)
}

func said(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func deliver(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	to, err := tallystick.Ask[address](call, tallystick.Question{Key: "address", Message: "Where to?"})
	if err != nil {
		return nil, nil, err
	}
	return said("to %s, floor %d, lift %t", to.Street, to.Floor, to.Lift), nil, nil
}

// travel asks for a seat and a meal in one round, and for the reason in another.
func travel(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	place, seatErr := tallystick.Ask[seat](call, tallystick.Question{Key: "seat", Message: "Which seat?"})
	food, mealErr := tallystick.Ask[meal](call, tallystick.Question{Key: "meal", Message: "Which meal?"})
	if err := errors.Join(seatErr, mealErr); err != nil {
		return nil, nil, err
	}
	why, err := tallystick.Ask[reason](call, tallystick.Question{Key: "reason", Message: "Why seat " + place.Seat + "?"})
	if err != nil {
		return nil, nil, err
	}
	return said("seat %s, meal %s, because %s", place.Seat, food.Meal, why.Reason), nil, nil
}

func explain(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
	why, err := tallystick.Ask[reason](call, tallystick.Question{Key: "reason", Message: "Why?"})
	if err != nil {
		return nil, nil, err
	}
	return said("because %s", why.Reason), nil, nil
}

func plus(_ context.Context, _ *tallystick.Call, in sum) (*mcp.CallToolResult, any, error) {
	return said("%d", in.A+in.B), nil, nil
}

func broken(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
	return nil, nil, errors.New("it is broken")
}

func letter(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
	why, err := tallystick.Ask[reason](call, tallystick.Question{Key: "reason", Message: "What is it about?"})
	if err != nil {
		return nil, err
	}
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "A letter about " + why.Reason}},
	}}, nil
}

func note(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
	why, err := tallystick.Ask[reason](call, tallystick.Question{Key: "reason", Message: "Why do you read it?"})
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "read because of " + why.Reason}}}, nil
}
