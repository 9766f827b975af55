package tallystick_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

// An overseen desk keeps all that operators are told.
type overseen struct {
	*desk
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
	lines   *bytes.Buffer
	mu      sync.Mutex
}

func (w *overseen) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(p)
}

func (w *overseen) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

func newOverseen(t *testing.T, s setup) *overseen {
	t.Helper()
	w := &overseen{spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader(), lines: &bytes.Buffer{}}
	s.opts.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
	s.opts.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics))
	s.opts.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.desk = newDesk(t, s)
	return w
}

// collect returns the points of a metric: value (or count) by attributes.
func (w *overseen) collect(name string) map[string]float64 {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.metrics.Collect(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	points := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Count)
				}
			}
		}
	}
	return points
}

// told is all that was told, as text.
func (w *overseen) told() string {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.metrics.Collect(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(w.logged())
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			fmt.Fprintf(&b, "%s %s %+v\n", m.Name, m.Description, m.Data)
		}
	}
	for _, s := range w.spans.Ended() {
		fmt.Fprintf(&b, "%s %v %v %v %v\n", s.Name(), s.Attributes(), s.Links(), s.Events(), s.Status())
	}
	return b.String()
}

type secretArgs struct {
	Order string `json:"order"`
}

type secretAnswer struct {
	Why string `json:"why"`
}

// tools that get, are told and give back what nobody else may see.
func secretive(d *desk) {
	opts := &tallystick.ToolOptions{Task: tallystick.TaskOptional}
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "refund"}, opts,
		func(ctx context.Context, call *tallystick.Call, in secretArgs) (*mcp.CallToolResult, any, error) {
			call.Report("CANARY-report", 1, 2)
			a, err := tallystick.Ask[secretAnswer](call, tallystick.Question{Key: "why", Message: "CANARY-message", Facts: "CANARY-facts"})
			if err != nil {
				return nil, nil, err
			}
			r, err := tallystick.Once(ctx, call, tallystick.Effect{Name: "refund", Subject: in.Order}, func(context.Context, string) (string, error) {
				if strings.Contains(a.Why, "unknown") {
					return "", errors.New("CANARY-far-side")
				}
				return "CANARY-result " + a.Why, nil
			})
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r}}}, nil, nil
		})
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil,
		func(_ context.Context, call *tallystick.Call, in secretArgs) (*mcp.CallToolResult, any, error) {
			if err := call.Confirm(tallystick.Question{Key: "sure", Message: "CANARY-message " + in.Order}); err != nil {
				return nil, nil, err
			}
			return nil, nil, fmt.Errorf("CANARY-tool-error %s", in.Order)
		})
	tallystick.AddResourceTemplate(d.srv, &mcp.ResourceTemplate{URITemplate: "order://{id}", Name: "order"},
		func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
			if err := call.Confirm(tallystick.Question{Key: "sure", Message: "Sure?"}); err != nil {
				return nil, err
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "CANARY-contents"}}}, nil
		})
}

// No log line, span or metric carries an argument, an answer, facts, a result, a
// token, a sealed state, the subject of an effect, or a URI.
func TestNothingSecretIsTold(t *testing.T) {
	w := newOverseen(t, setup{tools: secretive})
	const token = "CANARYtoken/acme"
	var states []string
	for _, caps := range []string{capsForm, capsTasks, capsNone} {
		ann := w.as(token, caps)
		order := map[string]any{"order": "CANARY-argument" + caps}
		for _, why := range []string{"CANARY-answer", "CANARY-unknown"} {
			answer := map[string]any{"why": accept(map[string]any{"why": why})}
			order["order"] = why + caps
			r := ann.send("tools/call", "refund", map[string]any{"arguments": order, "_meta": map[string]any{"tallystick/idempotencyKey": "CANARY-key" + why + caps, "traceparent": "CANARY-traceparent", "tracestate": "canary=CANARY"}})
			if id, ok := r.result["taskId"].(string); ok {
				ann.await(id, status("input_required"))
				ann.send("tasks/update", id, map[string]any{"inputResponses": map[string]any{"why": accept(map[string]any{"why": 7}), "CANARY-wire-key": yes}})
				e := ann.listen(taskIDs(id, "CANARY-task-id"))
				ann.send("tasks/update", id, map[string]any{"inputResponses": answer})
				ann.await(id, func(r reply) bool {
					return r.result["status"] != "input_required" && r.result["statusMessage"] != "CANARY-report"
				})
				w.as("bob/acme", capsTasks).send("tasks/get", id, nil)
				ann.send("tasks/cancel", id, nil)
				e.hang()
				continue
			}
			state := r.state()
			states = append(states, state)
			ann.retry("refund", order, state+"CANARY", answer)
			ann.retry("refund", map[string]any{"order": "CANARY-other"}, state, answer)
			w.as("bob/acme", caps).retry("refund", order, state, answer)
			ann.retry("refund", order, state, map[string]any{"why": accept(map[string]any{"why": 7})})
			ann.retry("refund", order, state, answer)
			ann.retry("refund", order, state, map[string]any{"why": accept(map[string]any{"why": "CANARY-else"})})
			ann.send("tools/call", "refund", map[string]any{"arguments": map[string]any{"order": "CANARY-conflict"}, "_meta": map[string]any{"tallystick/idempotencyKey": "CANARY-key" + why + caps}})
		}
		r := ann.call("look", order)
		states = append(states, r.state())
		ann.retry("look", order, r.state(), map[string]any{"sure": yes})
		ann.call("look", map[string]any{"order": 12, "CANARY-member": 1})
		r = ann.send("resources/read", "order://CANARY-uri", nil)
		ann.send("resources/read", "order://CANARY-uri", map[string]any{"requestState": r.state(), "inputResponses": map[string]any{"sure": yes}})
		ann.send("tools/call", "call_status", map[string]any{"arguments": map[string]any{"callId": "CANARY-call-id"}})
	}
	w.stop()
	told := w.told()
	for _, state := range states {
		if n := min(len(state), 30); n > 0 && strings.Contains(told, state[:n]) {
			t.Errorf("a sealed state is told: %s", state)
		}
	}
	for _, line := range strings.Split(told, "\n") {
		if strings.Contains(line, "CANARY") {
			t.Errorf("told: %s", line)
		}
	}
	for _, want := range []string{
		"msg=ended call=", "tenant=acme tool=refund round=", "outcome=completed", "reason=answer_does_not_fit", "tool=resources/read",
		"tools/call refund", "run refund", "resources/read", "tallystick.calls", "tallystick.refusals", "tasks/update",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("nothing says %q", want)
		}
	}
}

// Metrics say what calls came to and what waits.
func TestMetrics(t *testing.T) {
	w := newOverseen(t, setup{tools: func(d *desk) { addJob(d, "job"); secretive(d) }})
	ann := w.as("ann/acme", capsTasks)
	one := ann.call("job", nil).result["taskId"].(string)
	two := ann.call("job", nil).result["taskId"].(string)
	three := ann.call("job", nil).result["taskId"].(string)
	for _, id := range []string{one, two, three} {
		ann.await(id, status("input_required"))
	}
	if got := w.collect("tallystick.open"); got[""] != 3 {
		t.Errorf("open: %v", got)
	}
	ann.send("tasks/update", one, map[string]any{"inputResponses": map[string]any{"go": yes}})
	ann.await(one, status("completed"))
	ann.send("tasks/update", two, map[string]any{"inputResponses": map[string]any{"go": map[string]any{"action": "decline"}}})
	ann.await(two, status("completed"))
	ann.send("tasks/cancel", three, nil)
	ann.await(three, status("cancelled"))
	ann.send("tasks/update", three, map[string]any{"inputResponses": map[string]any{"go": yes}})
	w.as("bob/acme", capsTasks).send("tasks/get", three, nil)
	ann.retry("refund", map[string]any{"order": "1"}, "no state", nil)
	r := ann.call("look", map[string]any{"order": "1"})
	ann.retry("look", map[string]any{"order": "1"}, r.state(), map[string]any{"sure": yes})

	const job, look = "gen_ai.tool.name=job,mcp.method.name=tools/call,tallystick.outcome=", "gen_ai.tool.name=look,mcp.method.name=tools/call,tallystick.outcome="
	for name, want := range map[string]map[string]float64{
		"tallystick.calls":           {job + "completed": 2, job + "cancelled": 1, look + "completed": 1},
		"tallystick.refusals":        {"tallystick.reason=call_ended": 1, "tallystick.reason=task_of_another_principal": 1, "tallystick.reason=state_does_not_open": 1},
		"tallystick.answer.duration": {job + "answered": 1, job + "declined": 1, look + "answered": 1},
		"tallystick.open":            {"": 0},
		"tallystick.queue.depth":     {"": 0},
		"tallystick.runs":            {"": 0},
	} {
		if got := w.collect(name); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, want)
		}
	}
}

// A call's rounds and runs are one trace each with its client's, and linked.
func TestTraces(t *testing.T) {
	w := newOverseen(t, setup{tools: func(d *desk) { addJob(d, "job"); secretive(d) }})
	parent := func(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }
	traced := func(n int, more map[string]any) map[string]any {
		p := map[string]any{"_meta": map[string]any{"traceparent": parent(n), "progressToken": 1}}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	given := func(r reply) string {
		meta, _ := r.result["_meta"].(map[string]any)
		s, _ := meta["traceparent"].(string)
		return s
	}
	ann := w.as("ann/acme", capsTasks)
	r := ann.send("tools/call", "job", traced(1, nil))
	id := r.result["taskId"].(string)
	if !strings.HasPrefix(given(r), fmt.Sprintf("00-%032x-", 1)) || given(r) == parent(1) {
		t.Errorf("given: %q", given(r))
	}
	ann.await(id, status("input_required"))
	ann.send("tasks/update", id, traced(2, map[string]any{"inputResponses": map[string]any{"go": yes}}))
	ann.await(id, status("completed"))

	plain := w.as("ann/acme", capsForm)
	first := plain.send("tools/call", "job", traced(3, nil))
	plain.send("tools/call", "job", traced(4, map[string]any{"requestState": first.state(), "inputResponses": map[string]any{"go": yes}}))
	look := plain.send("tools/call", "look", traced(5, map[string]any{"arguments": map[string]any{"order": "1"}}))
	plain.send("tools/call", "look", traced(6, map[string]any{"arguments": map[string]any{"order": "1"}, "requestState": look.state(), "inputResponses": map[string]any{"sure": yes}}))
	w.stop()

	type seen struct{ name, trace, parent, outcome, link string }
	var got []seen
	ids := map[string]string{}
	for _, s := range w.spans.Ended() {
		ids[s.SpanContext().SpanID().String()] = s.Name()
	}
	for _, s := range w.spans.Ended() {
		if s.Name() == "tasks/get" {
			continue
		}
		e := seen{name: s.Name(), trace: strings.TrimLeft(s.SpanContext().TraceID().String(), "0"), parent: ids[s.Parent().SpanID().String()]}
		if len(e.trace) > 2 {
			e.trace = "own"
		}
		for _, a := range s.Attributes() {
			if a.Key == "tallystick.outcome" {
				e.outcome = a.Value.AsString()
			}
		}
		for _, l := range s.Links() {
			e.link += strings.TrimLeft(l.SpanContext.TraceID().String(), "0")
		}
		got = append(got, e)
	}
	for _, want := range []seen{
		{"tools/call job", "1", "", "working", ""},
		{"run job", "own", "", "input_required", "1"},
		{"tasks/update", "2", "", "", "1"},
		{"run job", "own", "", "completed", "1"},
		{"tools/call job", "3", "", "input_required", ""},
		{"run job", "3", "tools/call job", "input_required", "3"},
		{"tools/call job", "4", "", "completed", "3"},
		{"run job", "4", "tools/call job", "completed", "3"},
		{"tools/call look", "5", "", "input_required", ""},
		{"run look", "5", "tools/call look", "input_required", "5"},
		{"tools/call look", "6", "", "completed", "5"},
		{"run look", "6", "tools/call look", "completed", "5"},
	} {
		found := false
		for i, g := range got {
			if g == want {
				got[i], found = seen{}, true
				break
			}
		}
		if !found {
			t.Errorf("there is no %+v", want)
		}
	}
	if t.Failed() {
		for _, g := range got {
			t.Logf("left: %+v", g)
		}
	}
}

// Notifications carry the trace of the request that they belong to.
func TestNotificationsCarryTheTrace(t *testing.T) {
	w := newOverseen(t, setup{tools: jobs("job")})
	ann := w.as("ann/acme", capsTasks)
	id := ann.call("job", nil).result["taskId"].(string)
	params := listenParams(capsTasks, taskIDs(id))
	params["_meta"].(map[string]any)["traceparent"] = fmt.Sprintf("00-%032x-%016x-01", 9, 9)
	resp, hang := ann.open(1, params)
	defer hang()
	buf := make([]byte, 4096)
	n, err := resp.Body.Read(buf)
	if err != nil || !bytes.Contains(buf[:n], []byte(fmt.Sprintf(`"traceparent":"00-%032x-`, 9))) {
		t.Errorf("%s %v", buf[:n], err)
	}
}

// Without providers there is nothing of it on the wire.
func TestWithoutAProviderNothingIsTraced(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job")})
	r := d.as("ann/acme", capsTasks).send("tools/call", "job", map[string]any{"_meta": map[string]any{"traceparent": fmt.Sprintf("00-%032x-%016x-01", 9, 9)}})
	if strings.Contains(r.raw, "traceparent") {
		t.Error(r.raw)
	}
	c, err := d.store.Load(context.Background(), r.result["taskId"].(string))
	if err != nil || c.Trace != "" {
		t.Errorf("%q %v", c.Trace, err)
	}
}

// A run whose process died is taken over once, and counted so; and what happens
// afterwards is linked to the request that made the call.
func TestATakeOverIsCountedAndTraced(t *testing.T) {
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	started := make(chan struct{}, 2)
	release := make(chan struct{})
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "long"}, &tallystick.ToolOptions{Task: tallystick.TaskRequired},
			func(ctx context.Context, _ *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
				started <- struct{}{}
				select {
				case <-release:
					return &mcp.CallToolResult{}, nil, nil
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
			})
	}, &tallystick.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	r := b.As(ann, tallysticktest.Tasks).Call("long", nil)
	<-started
	b.Restart()
	<-started
	close(release)
	r.Await("completed")
	w := &overseen{desk: &desk{t: t}, metrics: reader}
	if got := w.collect("tallystick.takeovers"); got[""] != 1 {
		t.Errorf("taken over: %v", got)
	}
	var made string
	linked := 0
	for _, s := range spans.Ended() {
		if s.Name() == "tools/call long" {
			made = s.SpanContext().TraceID().String()
		}
	}
	for _, s := range spans.Ended() {
		for _, l := range s.Links() {
			if s.Name() == "run long" && l.SpanContext.TraceID().String() == made {
				linked++
			}
		}
	}
	if linked != 2 {
		t.Errorf("%d runs are linked to the request that made the call", linked)
	}
}
