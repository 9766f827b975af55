// Package observe tells operators what calls come to: in log lines, traces and
// metrics. None of them carries an argument, an answer, facts, a result, a
// token, a sealed state, or the subject of an effect.
//
// What it tells of kept calls it reads off the changes that were committed, so
// that nothing is told that did not happen, and everything is that did.
package observe

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tallystick/tallystick/record"
)

// Scope names this module's spans and metrics.
const Scope = "github.com/tallystick/tallystick"

// Attributes of spans and metrics that have no name in the semantic conventions
// of OpenTelemetry.
const (
	attrCall    = attribute.Key("tallystick.call")
	attrTenant  = attribute.Key("tallystick.tenant")
	attrRound   = attribute.Key("tallystick.round")
	attrRun     = attribute.Key("tallystick.run")
	attrOutcome = attribute.Key("tallystick.outcome")
	attrReason  = attribute.Key("tallystick.reason")
	attrMethod  = attribute.Key("mcp.method.name")
	attrTool    = attribute.Key("gen_ai.tool.name")
	attrPrompt  = attribute.Key("gen_ai.prompt.name")
	attrError   = attribute.Key("error.type")
)

// An Observer is told what happens. It is safe for concurrent use.
type Observer struct {
	log    *slog.Logger
	tracer trace.Tracer // nil: no traces
	meters *meters      // nil: no metrics
}

// New returns an observer. Without a provider there are no traces or metrics,
// and they cost nothing.
func New(log *slog.Logger, traces trace.TracerProvider, metrics metric.MeterProvider) (*Observer, error) {
	o := &Observer{log: log}
	if traces != nil {
		o.tracer = traces.Tracer(Scope)
	}
	if metrics != nil {
		var err error
		if o.meters, err = newMeters(metrics.Meter(Scope)); err != nil {
			return nil, fmt.Errorf("making the metrics: %w", err)
		}
	}
	return o, nil
}

// Committed is told of every change once it is durable; before is nil when it
// made the call.
func (o *Observer) Committed(before *record.Call, c record.Change) {
	call := c.After
	if call == nil {
		call = before
	}
	for i := range c.Audit {
		o.line(call, &c.Audit[i])
	}
	if o.meters != nil {
		o.meters.committed(before, c)
	}
}

// Refused is told of refusals that concern no kept call.
func (o *Observer) Refused(reason record.Reason, tenant string) {
	o.log.Warn("refused", "tenant", tenant, "reason", string(reason))
	if o.meters != nil {
		o.meters.refused(reason)
	}
}

// Ended is told of a call that came to its end without ever being kept.
func (o *Observer) Ended(a record.Action, tenant string, outcome record.Outcome) {
	o.log.Debug("ended", "tenant", tenant, "tool", a.Label(), "outcome", string(outcome))
	if o.meters != nil {
		o.meters.ended(a, outcome)
	}
}

// line logs an audit entry: at Warn what somebody may have to look at, at Info
// the other turns of a call, at Debug its steps.
func (o *Observer) line(call *record.Call, e *record.Entry) {
	level := slog.LevelDebug
	switch {
	case e.Event == "refused", e.Event == "stopped" && e.Note == string(record.WhyDied), e.Event == "effect held":
		level = slog.LevelWarn
	case e.Event == "opened", e.Event == "round closed", e.Event == "announced", e.Event == "cancel asked", e.Event == "ended":
		level = slog.LevelInfo
	}
	ctx := context.Background()
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("call", e.Call), slog.String("tenant", e.Tenant))
	if call != nil {
		attrs = append(attrs, slog.String("tool", call.Action.Label()))
	}
	attrs = append(attrs, slog.Int("round", e.Round))
	if e.Outcome != "" {
		attrs = append(attrs, slog.String("outcome", string(e.Outcome)))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Event == "stopped" {
		attrs = append(attrs, slog.String("why", e.Note))
	}
	o.log.LogAttrs(ctx, level, e.Event, attrs...)
}
