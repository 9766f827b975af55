package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/exampletest"
	"github.com/tallystick/tallystick/examples/internal/web"
	"github.com/tallystick/tallystick/tallysticktest"
)

var skip = map[string]any{"do": "skip"}

func TestEveryCustomerIsImportedOnceWhereverItCrashes(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		crm := NewCRM()
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { Add(s, crm, 0) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(web.People["ann"]).Call("import_customers", ImportArgs{"march.csv"}).Await("input_required")
				var out Imported
				r.Answer(map[string]any{"duplicates-30": skip}).Await("completed").Structured(&out)
				if out != (Imported{Rows: 58, Skipped: 2}) {
					t.Errorf("imported %+v", out)
				}
			},
			Check: func(*tallysticktest.Bench) {
				if n, most := crm.Times(); n != 58 || most != 1 {
					t.Errorf("%d customers, one of them %d times", n, most)
				}
			},
		}
	})
}

// case S84
func TestTheProgramImportsForAClientWithoutTasks(t *testing.T) {
	p := exampletest.Start(t, exampletest.Build(t), "-data", t.TempDir(), "-pause", "10ms")
	reports := make(chan string, 100)
	ann := p.Connect("ann", &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: skip}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			reports <- r.Params.Message
		},
	})
	params := &mcp.CallToolParams{Name: "import_customers", Arguments: map[string]any{"file": "march.csv"}}
	params.SetProgressToken("p1")
	res, err := ann.CallTool(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(res.StructuredContent); string(raw) != `{"rows":58,"skipped":2}` {
		t.Errorf("imported: %s", raw)
	}
	select {
	case first := <-reports:
		if first != "10 of 60 rows" {
			t.Errorf("reported: %q", first)
		}
	case <-time.After(10 * time.Second):
		t.Error("no progress was reported")
	}
	p.Stop()
}

// case S64, S70
func TestTheProgramsTaskSurvivesAKill(t *testing.T) {
	binary, data := exampletest.Build(t), t.TempDir()
	p := exampletest.Start(t, binary, "-data", data, "-pause", "100ms")
	var created task
	p.Post(t, "ann", "tools/call", "import_customers", map[string]any{"arguments": map[string]any{"file": "march.csv"}}, &created)
	if created.ID == "" {
		t.Fatalf("no task: %+v", created)
	}
	p.Kill() // in the middle of its rows
	p = exampletest.Start(t, binary, "-data", data, "-pause", "1ms")
	if at := await(t, p, created.ID, "input_required"); at.Asked["duplicates-30"] == nil {
		t.Fatalf("asked: %+v", at)
	}
	p.Kill() // while a person thinks
	p = exampletest.Start(t, binary, "-data", data, "-pause", "1ms")
	answer := map[string]any{"action": "accept", "content": skip}
	p.Post(t, "ann", "tasks/update", created.ID, map[string]any{"inputResponses": map[string]any{"duplicates-30": answer}}, &struct{}{})
	done := await(t, p, created.ID, "completed")
	if string(done.Result.Structured) != `{"rows":58,"skipped":2}` {
		t.Errorf("imported: %s", done.Result.Structured)
	}
	p.Stop()
}

type task struct {
	ID     string                     `json:"taskId"`
	Status string                     `json:"status"`
	Asked  map[string]json.RawMessage `json:"inputRequests"`
	Result struct {
		Structured json.RawMessage `json:"structuredContent"`
	} `json:"result"`
}

func await(t *testing.T, p *exampletest.Process, id, status string) task {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var at task
		p.Post(t, "ann", "tasks/get", id, nil, &at)
		if at.Status == status {
			return at
		}
		if time.Now().After(limit) {
			t.Fatalf("it does not become %s: %+v", status, at)
		}
	}
}
