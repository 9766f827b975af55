package main

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
)

// ImportArgs are the tool's arguments.
type ImportArgs struct {
	File string `json:"file" jsonschema:"the list of customers to import"`
}

// Imported is the tool's output.
type Imported struct {
	Rows    int `json:"rows"`
	Skipped int `json:"skipped"`
}

// duplicates is what a person is asked in the middle of an import.
type duplicates struct {
	Do string `json:"do" jsonschema:"what to do with them" form:"title=Duplicates,enum=skip|import"`
}

// chunk is how many rows are imported together: what a crash makes the next run
// go back over, reading recorded results.
const chunk = 10

// Add adds the tool import_customers to s. It takes its time: pause after each
// chunk.
func Add(s *tallystick.Server, crm *CRM, pause time.Duration) {
	importCustomers := func(ctx context.Context, call *tallystick.Call, in ImportArgs) (*mcp.CallToolResult, Imported, error) {
		file, err := crm.File(in.File)
		if err != nil {
			return nil, Imported{}, err
		}
		var out Imported
		for at := 0; at < len(file.Rows); at += chunk {
			rows := file.Rows[at:min(at+chunk, len(file.Rows))]
			fresh, known := crm.Split(rows)
			if len(known) > 0 {
				choice, err := tallystick.Ask[duplicates](call, tallystick.Question{
					Key: fmt.Sprintf("duplicates-%d", at), Facts: known,
					Message: fmt.Sprintf("%d customers of %s are known already, the first is %s. Skip or import them?", len(known), in.File, known[0]),
				})
				if err != nil {
					return nil, Imported{}, err
				}
				if choice.Do == "skip" {
					rows, out.Skipped = fresh, out.Skipped+len(known)
				}
			}
			n, err := tallystick.Once(ctx, call, tallystick.Effect{
				Name: "import", Subject: fmt.Sprintf("%s, rows %d to %d", file.Version, at, at+chunk), Repeatable: true,
			}, func(ctx context.Context, key string) (int, error) { return crm.Import(ctx, key, rows) })
			if err != nil {
				return nil, Imported{}, err
			}
			out.Rows += n
			// A run that starts from the top reports the same again; what people
			// see does not go backwards.
			call.Report(fmt.Sprintf("%d of %d rows", at+len(rows), len(file.Rows)), float64(at+chunk), float64(len(file.Rows)))
			if err := rest(ctx, pause); err != nil {
				return nil, Imported{}, err
			}
		}
		return nil, out, nil
	}
	tallystick.AddTool(s, &mcp.Tool{Name: "import_customers", Description: "Imports a list of customers."},
		&tallystick.ToolOptions{Task: tallystick.TaskOptional}, importCustomers)
}

func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
