package observe

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tallystick/tallystick/record"
)

// propagator reads and writes the members of _meta that MCP reserves for the
// W3C trace context. Baggage is neither taken nor given: it can hold anything.
var propagator = propagation.TraceContext{}

// maxTrace bounds what is read of each of them.
const maxTrace = 1024

// meta is a request's _meta as a carrier.
type meta map[string]json.RawMessage

func (m meta) Get(key string) string {
	var s string
	if raw := m[key]; len(raw) == 0 || len(raw) > maxTrace || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func (m meta) Set(key, value string) {
	raw, err := json.Marshal(value)
	if err == nil {
		m[key] = raw
	}
}

func (m meta) Keys() []string { return propagator.Fields() }

// Round begins the span of one request, the child of what its _meta names or,
// without that, of what ctx has. a is what it is for; a zero Name says that it
// names a task.
func (o *Observer) Round(ctx context.Context, from map[string]json.RawMessage, a record.Action) (context.Context, *Span) {
	if o.tracer == nil {
		return ctx, nil
	}
	ctx = propagator.Extract(ctx, meta(from))
	ctx, span := o.tracer.Start(ctx, spanName(a.Method, a), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(named(a)...))
	s := &Span{span: span}
	return context.WithValue(ctx, spanKey{}, s), s
}

type spanKey struct{}

// At returns the span of the round that ctx is of, or nil.
func At(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// Run begins the span of one execution of a handler: the child of the round that
// it serves, if any, and linked to the request that made the call.
func (o *Observer) Run(ctx, round context.Context, c *record.Call) (context.Context, *Span) {
	if o.tracer == nil {
		return ctx, nil
	}
	if round != nil {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(round))
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(append(named(c.Action),
		attrCall.String(c.ID), attrTenant.String(c.Owner.Tenant), attrRound.Int(c.Round), attrRun.Int(c.Runs))...)}
	if link, ok := opened(c); ok {
		opts = append(opts, trace.WithLinks(link))
	}
	ctx, span := o.tracer.Start(ctx, spanName("run", c.Action), opts...)
	return ctx, &Span{span: span}
}

func spanName(verb string, a record.Action) string {
	switch name := a.Label(); {
	case a.Name == "":
		return verb // of a task, or of a listen
	case name == verb:
		return name
	default:
		return verb + " " + name
	}
}

// opened links to the request that made a call.
func opened(c *record.Call) (trace.Link, bool) {
	if c.Trace == "" {
		return trace.Link{}, false
	}
	at := trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.MapCarrier{"traceparent": c.Trace}))
	return trace.Link{SpanContext: at}, at.IsValid()
}

// Parent is the trace context of ctx's span as a call keeps it; empty without.
func (o *Observer) Parent(ctx context.Context) string {
	if o.tracer == nil {
		return ""
	}
	to := propagation.MapCarrier{}
	propagator.Inject(ctx, to)
	return to["traceparent"]
}

// Give returns the members of _meta by which whoever gets a message can join the
// trace of ctx; nil if there is none.
func (o *Observer) Give(ctx context.Context) map[string]json.RawMessage {
	if o.tracer == nil {
		return nil
	}
	to := meta{}
	propagator.Inject(ctx, to)
	return to
}

// A Span is a round or a run under way. A nil one takes everything and does
// nothing.
type Span struct {
	span trace.Span

	mu     sync.Mutex
	word   string
	linked bool
}

// Of says which call the span is of, once that is known, and links the requests
// of one call.
func (s *Span) Of(c *record.Call) {
	if s == nil || c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.span.SetAttributes(attrCall.String(c.ID), attrTenant.String(c.Owner.Tenant), attrRound.Int(c.Round))
	link, ok := opened(c)
	if ok && !s.linked && link.SpanContext.SpanID() != s.span.SpanContext().SpanID() {
		s.span.AddLink(link)
		s.linked = true
	}
}

// Came notes what it came to, in a word.
func (s *Span) Came(word string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.word = word
}

// End ends the span; code is that of the JSON-RPC error that it ends with, or 0.
func (s *Span) End(code int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	word := s.word
	s.mu.Unlock()
	if word != "" {
		s.span.SetAttributes(attrOutcome.String(word))
	}
	if code != 0 {
		s.span.SetAttributes(attrError.String(strconv.FormatInt(code, 10)))
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
