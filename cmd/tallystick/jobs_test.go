package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/embedded"
)

// jobs is a server whose one tool is a task that takes as long as a test wants,
// and whose prompts and resources end badly.
type jobs struct {
	url  string
	stop func() error
}

// jobArgs of the tool "job".
type jobArgs struct {
	Until    string `json:"until"`             // it ends when there is this file
	Stubborn bool   `json:"stubborn,omitzero"` // also if it is cancelled: it is at an effect
}

func serveJobs(folder string) (*jobs, error) {
	sdk := mcp.NewServer(&mcp.Implementation{Name: "jobs", Version: "1"}, nil)
	s, err := embedded.Open(folder, sdk, &tallystick.Options{
		Identify: func(context.Context, *mcp.RequestExtra) (tallystick.Identity, error) {
			return tallystick.Identity{Issuer: "test", Tenant: "test", Subject: "kim"}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	for name, end := range ends {
		tallystick.AddPrompt(s.Server, &mcp.Prompt{Name: name}, func(context.Context, *tallystick.Call, map[string]string) (*mcp.GetPromptResult, error) {
			return nil, end
		})
		tallystick.AddResource(s.Server, &mcp.Resource{Name: name, URI: "test://" + name}, func(context.Context, *tallystick.Call, string) (*mcp.ReadResourceResult, error) {
			return nil, end
		})
	}
	tallystick.AddTool(s.Server, &mcp.Tool{Name: "job"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired}, job)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	web := httptest.NewServer(s.Handler(nil))
	for { // it answers 503 until Run has begun
		resp, err := http.Post(web.URL, "application/json", http.NoBody)
		if err != nil {
			stop()
			return nil, errors.Join(err, <-ran, s.Close())
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			break
		}
	}
	return &jobs{url: web.URL, stop: func() error {
		stop()
		err := <-ran
		web.Close()
		return errors.Join(err, s.Close())
	}}, nil
}

// ends are prompts and resources that end without a result.
var ends = map[string]error{
	"declined": tallystick.ErrDeclined, "dismissed": tallystick.ErrDismissed, "expired": tallystick.ErrExpired, "held": tallystick.ErrHeld,
}

func job(ctx context.Context, call *tallystick.Call, in jobArgs) (*mcp.CallToolResult, any, error) {
	call.Report("half of it", 1, 2)
	var err error
	if in.Stubborn {
		_, err = tallystick.Once(ctx, call, tallystick.Effect{Name: "pay", Subject: in.Until}, func(context.Context, string) (bool, error) {
			return true, there(context.Background(), in.Until)
		})
	} else {
		err = there(ctx, in.Until)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "all of it"}}}, nil, err
}

// there waits until there is a file.
func there(ctx context.Context, path string) error {
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// withJobs serves jobs for a test, and gives it a file that ends them.
func withJobs(t *testing.T) (s served, arguments, end string) {
	t.Helper()
	dir := t.TempDir()
	j, err := serveJobs(dir)
	if err != nil {
		t.Fatal(err)
	}
	end = filepath.Join(dir, "end")
	t.Cleanup(func() {
		finish(t, end)
		if err := j.stop(); err != nil {
			t.Error(err)
		}
	})
	return served{url: j.url, env: home(t)}, `"until":"` + end + `"`, end
}

func finish(t *testing.T, end string) {
	t.Helper()
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Error(err)
	}
}

// startJobs is a command of scripts.
func startJobs(ts *testscript.TestScript, _ bool, _ []string) {
	j, err := serveJobs(ts.MkAbs("jobsdata"))
	ts.Check(err)
	end := ts.MkAbs("end")
	ts.Defer(func() {
		_ = os.WriteFile(end, nil, 0o600)
		if err := j.stop(); err != nil {
			ts.Logf("the jobs: %v", err)
		}
	})
	ts.Setenv("JOBS", j.url)
}
