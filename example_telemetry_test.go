package tallystick_test

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/tallysticktest"
)

// Traces and metrics go wherever the providers send them.
func ExampleOptions_telemetry() {
	t := &demonstration{}
	defer t.end()

	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	b := tallysticktest.New(t, func(s *tallystick.Server) {
		tallystick.AddTool(s, &mcp.Tool{Name: "greet"}, nil,
			func(context.Context, *tallystick.Call, struct{}) (*mcp.CallToolResult, any, error) {
				return said("hello"), nil, nil
			})
	}, &tallystick.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	b.As(ann).Call("greet", nil)

	for _, s := range spans.Ended() {
		fmt.Println("span:", s.Name())
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatalf("collecting: %v", err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if calls, ok := m.Data.(metricdata.Sum[int64]); ok {
			p := calls.DataPoints[0]
			fmt.Println("metric:", m.Name, p.Value, p.Attributes.ToSlice()[2].Value.AsString())
		}
	}
	// Output:
	// span: run greet
	// span: tools/call greet
	// metric: tallystick.calls 1 completed
}
