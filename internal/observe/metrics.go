package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// meters are the instruments. None has the tenant or anything of a call that
// its caller chooses as an attribute, so that their number stays small.
type meters struct {
	meter     metric.Meter
	calls     metric.Int64Counter
	refusals  metric.Int64Counter
	takeovers metric.Int64Counter
	answers   metric.Float64Histogram
}

func newMeters(m metric.Meter) (*meters, error) {
	var errs [4]error
	ms := &meters{meter: m}
	ms.calls, errs[0] = m.Int64Counter("tallystick.calls",
		metric.WithUnit("{call}"), metric.WithDescription("Calls that have come to their end, by outcome."))
	ms.refusals, errs[1] = m.Int64Counter("tallystick.refusals",
		metric.WithUnit("{refusal}"), metric.WithDescription("What was refused, by reason."))
	ms.takeovers, errs[2] = m.Int64Counter("tallystick.takeovers",
		metric.WithUnit("{run}"), metric.WithDescription("Runs whose process died or lost its lease, so that their call was taken from them."))
	ms.answers, errs[3] = m.Float64Histogram("tallystick.answer.duration",
		metric.WithUnit("s"), metric.WithDescription("How long questions waited for the answer that settled them."),
		metric.WithExplicitBucketBoundaries(1, 5, 15, 60, 300, 900, 3600, 4*3600, 24*3600))
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return ms, nil
}

// committed reads a change.
func (m *meters) committed(before *record.Call, c record.Change) {
	ctx := context.Background()
	for i := range c.Audit {
		switch e := &c.Audit[i]; e.Event {
		case "refused":
			m.refused(e.Reason)
		case "ended":
			if c.After != nil {
				m.ended(c.After.Action, e.Outcome)
			}
		case "stopped":
			if e.Note == string(record.WhyDied) {
				m.takeovers.Add(ctx, 1)
			}
		case "answered":
			m.answered(before, c.After, e)
		}
	}
}

func (m *meters) refused(reason record.Reason) {
	m.refusals.Add(context.Background(), 1, metric.WithAttributes(attrReason.String(string(reason))))
}

func (m *meters) ended(a record.Action, outcome record.Outcome) {
	m.calls.Add(context.Background(), 1, metric.WithAttributes(append(named(a), attrOutcome.String(string(outcome)))...))
}

// answered measures a question that this answer has settled.
func (m *meters) answered(before, after *record.Call, e *record.Entry) {
	if after == nil {
		return
	}
	q := after.Question(e.Key)
	if q == nil || q.State == record.Open || q.State == record.Void {
		return
	}
	m.answers.Record(context.Background(), max(e.At.Sub(q.AskedAt), 0).Seconds(),
		metric.WithAttributes(append(named(after.Action), attrOutcome.String(string(q.State)))...))
}

// Counted has the gauges of what there is to do read from the store when they
// are collected, and returns how to end that.
func (o *Observer) Counted(count func(context.Context) (store.Counts, error)) (stop func(), err error) {
	if o.meters == nil {
		return func() {}, nil
	}
	m := o.meters.meter
	var errs [3]error
	gauge := func(i int, name, unit, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs[i] = err
		return g
	}
	ready := gauge(0, "tallystick.queue.depth", "{call}", "Calls that wait for a worker.")
	running := gauge(1, "tallystick.runs", "{run}", "Calls that are being run.")
	open := gauge(2, "tallystick.open", "{question}", "Open questions and held effects, which wait for people.")
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	reg, err := m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		n, err := count(ctx)
		if err != nil {
			return err
		}
		to.ObserveInt64(ready, int64(n.Ready))
		to.ObserveInt64(running, int64(n.Running))
		to.ObserveInt64(open, int64(n.Open))
		return nil
	}, ready, running, open)
	if err != nil {
		return nil, err
	}
	return func() { _ = reg.Unregister() }, nil
}

// Batches returns what a store calls after each write with how many changes were
// in it; nil without a provider.
func Batches(metrics metric.MeterProvider) (func(changes int), error) {
	if metrics == nil {
		return nil, nil
	}
	h, err := metrics.Meter(Scope).Int64Histogram("tallystick.commit.batch.size",
		metric.WithUnit("{change}"), metric.WithDescription("Changes that were made durable together."),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256))
	if err != nil {
		return nil, err
	}
	return func(n int) { h.Record(context.Background(), int64(n)) }, nil
}

// named are the attributes that name what was called, by what it was registered
// as: a resource's URI can hold arguments.
func named(a record.Action) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attrMethod.String(a.Method)}
	switch a.Method {
	case "tools/call":
		attrs = append(attrs, attrTool.String(a.Name))
	case "prompts/get":
		attrs = append(attrs, attrPrompt.String(a.Name))
	}
	return attrs
}
