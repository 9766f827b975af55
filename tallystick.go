// Package tallystick makes calls of the Model Context Protocol that take more
// than one round trip safe enough for money, deletions and long jobs.
//
// It stands beside the official SDK (github.com/modelcontextprotocol/go-sdk).
// A tool registered with [AddTool] may ask ([Ask], [Call.Confirm]), do what
// must not happen twice ([Once]) and run for days as a task. Its handler is
// ordinary code that may run again from the top, at each round, after a crash,
// on another machine; the [Call] remembers what was asked, answered and done.
//
// A [Server] is made by [New] on an mcp.Server. It serves by [Server.Handler]
// over HTTP and by [Server.Transport] over anything else, and works as long as
// [Server.Run] runs. Package embedded makes one from a folder.
//
// It implements Multi Round-Trip Requests and the Tasks extension of revision
// 2026-07-28, and the same tools for clients of the 2025 era.
package tallystick

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tink-crypto/tink-go/v2/tink"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tallystick/tallystick/internal/canon"
	"github.com/tallystick/tallystick/internal/engine"
	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
)

// Options of a [Server].
type Options struct {
	// Store keeps the calls of all tools that are not read-only. Nil: only
	// read-only tools, prompts and resources can be added.
	Store store.Store
	// Keys seal what clients carry: the AEAD of a seal.Keyset, or any other.
	// Nil: a key of this process's own, so that rounds that are out do not
	// survive a restart; refused for a store that several processes share.
	Keys tink.AEAD
	// Name of the server in what it seals. Empty: what the SDK server calls
	// itself. Changing it makes all states that are out invalid.
	Name string
	// Deployment tells servers of one name apart, so that a state of staging
	// means nothing in production, and a far side that both use never takes an
	// effect of one for the other's: it is part of the keys that Once hands out
	// for subjects. Effects that have started keep theirs when it changes.
	Deployment string

	// Identify says who sends a request. Nil: the verified bearer token's
	// UserID, with "iss", "tenant", "client_id" and "roles" from its Extra;
	// over stdio the user of the operating system; otherwise nobody.
	Identify func(ctx context.Context, extra *mcp.RequestExtra) (Identity, error)
	// Authorize is asked at the first request, each round, each tasks/*, when
	// an answer is recorded, when a stored call is run and before each effect.
	// An error refuses; its text goes to the log only. Nil: everything that the
	// other rules allow.
	Authorize func(ctx context.Context, a Access) error
	// Operators may resolve held effects of their tenant. Zero: holders of the
	// role "operator".
	Operators Who
	// AnswerAt says where a question can be answered out of band: an address
	// for people, put into "pending" results and status messages. With it a
	// client that cannot be asked is told to look there. Nil: nowhere.
	AnswerAt func(callID string, q Waiting) string
	// AnonymousEffects lets callers whom nobody vouches for use tools that are
	// not read-only. Without it they are refused. All of them are one principal:
	// whoever has an anonymous caller's state or task id can use it.
	AnonymousEffects bool
	// AllowedOrigins are origins ("https://app.example") whose pages may call
	// over HTTP, beside the server's own. There is no CORS; a front adds it.
	AllowedOrigins []string
	// SkipSDKMiddleware says that the SDK server's receiving middleware need
	// not see the calls of this package. See [Server.Use] for what does.
	SkipSDKMiddleware bool

	// Workers and WorkersPerTenant bound runs without a waiting client, over
	// all and of one tenant. Zero: 32, and half of Workers.
	Workers, WorkersPerTenant int
	// Node names this process's place among those that share a store, where it is
	// required, and must be no other's. After a restart a node takes over its own
	// calls at once. It has no slash.
	Node   string
	Limits Limits
	// Log gets what operators need: never arguments, answers, tokens, states.
	// The text of a handler's own panic, and of errors of prompts and resources,
	// goes there as it is. Nil: slog.Default().
	Log *slog.Logger
	// TracerProvider and MeterProvider, of OpenTelemetry, get spans and metrics
	// (docs/operations.md), under the same rule. Nil: there are none.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Limits bound what one call, client and tenant can use up. Zero fields are
// the defaults named. Each error of a limit names it.
type Limits struct {
	Question             time.Duration // how long a question waits: 15 minutes
	Deadline             time.Duration // of a call, from its creation: 24 hours
	Retention            time.Duration // how long an ended call can be read: 24 hours
	InlineWait           time.Duration // how long a request waits for what others do: 20 s
	Drain                time.Duration // how long a shutdown may take: 30 s
	Rounds               int           // of one call: 10
	OpenQuestions        int           // of one call at a time: 16
	StateBytes           int           // of a sealed state: 16 KiB
	ArgumentsBytes       int           // of a request: 1 MiB
	AnswerBytes          int           // of one answer: 64 KiB
	ResultBytes          int           // of a result: 4 MiB
	Nesting              int           // of JSON: 64, and never more
	BodyBytes            int           // of an HTTP body, or a line over stdio: what the parts above may add up to, answers to half of OpenQuestions
	Sessions             int           // of the 2025 era over HTTP, open at once: 10 000
	SessionsPerPrincipal int           // of those: 1 000
	InFlight             int           // requests at once over one connection other than HTTP: 1 024
	JournalBytes         int           // of what one call remembers of questions, answers and effects: 6 MiB
	LiveCalls            int           // kept calls of one tenant that have not ended: 10 000
	Listens              int           // subscriptions/listen of one tenant, open at once: 10 000
	ListenTasks          int           // tasks that one of them watches: 1 000
	Lease                time.Duration // of a run: 10 s, renewed every third of it
	Grace                time.Duration // for a handler to return once its context has ended: 5 s
	Settle               time.Duration // for a started effect to end, past its call's deadline and 3 × Grace: 5 minutes, then it is held
}

func (l Limits) withDefaults() Limits {
	dur := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	dur(&l.Question, 15*time.Minute)
	dur(&l.Deadline, 24*time.Hour)
	dur(&l.Retention, 24*time.Hour)
	dur(&l.InlineWait, 20*time.Second)
	dur(&l.Drain, 30*time.Second)
	dur(&l.Lease, 10*time.Second)
	dur(&l.Grace, 5*time.Second)
	dur(&l.Settle, 5*time.Minute)
	num(&l.Rounds, 10)
	num(&l.OpenQuestions, 16)
	num(&l.StateBytes, 16<<10)
	num(&l.ArgumentsBytes, 1<<20)
	num(&l.AnswerBytes, 64<<10)
	num(&l.ResultBytes, 4<<20)
	num(&l.Nesting, canon.MaxDepth)
	l.Nesting = min(l.Nesting, canon.MaxDepth)
	num(&l.LiveCalls, 10_000)
	num(&l.Listens, 10_000)
	num(&l.ListenTasks, 1_000)
	num(&l.JournalBytes, 6<<20)
	num(&l.BodyBytes, l.ArgumentsBytes+l.OpenQuestions*l.AnswerBytes/2+l.StateBytes+64<<10)
	return l
}

// A Server serves the tools, prompts and resources that were added to it, on
// top of an SDK server that serves all the rest. It is safe for concurrent use;
// add everything before it serves.
type Server struct {
	mcp      *mcp.Server
	opts     Options
	limits   Limits
	log      *slog.Logger
	engine   *engine.Engine
	store    store.Store
	observer *observe.Observer
	sealer   *seal.Sealer // set by Run, before ready is closed

	serverInfo json.RawMessage // set by Run, before ready is closed

	ready    chan struct{} // closed when Run has begun to work
	stopped  chan struct{} // closed when Run has begun to drain
	mu       sync.Mutex    // guards what follows
	running  bool
	things   map[thing]*feature
	tmpls    []*feature
	headers  map[string][]wire.ParamHeader
	use      []Middleware
	fronts   []*wire.HTTP
	warned   map[string]bool                        // tools whose effects have no Subject
	shapes   map[effectOf]func(result []byte) error // what they return, as far as handlers got to them
	listens  map[string]int                         // open ones, by tenant
	refusals refusals
}

// thing names what a request is for.
type thing struct{ method, name string }

// A Middleware wraps the handling of every request of this package: tools,
// prompts and resources that were added to the [Server], tasks/* and
// subscriptions/listen, which lasts as long as its client listens. It is what the SDK's receiving middleware is for the SDK's requests.
type Middleware func(next RequestHandler) RequestHandler

// A RequestHandler answers one request with a result object.
type RequestHandler func(ctx context.Context, r *Request) (json.RawMessage, error)

// A Request is what a [Middleware] sees.
type Request struct {
	Method string
	Name   string // of the tool or prompt, the URI, or the task id
	// Arguments as they came, checked to be JSON within bounds and no more;
	// not to be modified. Nil when there are none.
	Arguments json.RawMessage
	Extra     *mcp.RequestExtra
	wire      *wire.Request
}

// New returns a server on top of s. It adds the tool call_status to s, and the
// Tasks extension to what s says of itself, if there is a store.
func New(s *mcp.Server, opts *Options) (*Server, error) {
	if s == nil {
		return nil, errors.New("tallystick.New: the mcp.Server is nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if len(o.Operators.Roles) == 0 && len(o.Operators.Subjects) == 0 {
		o.Operators = Who{Roles: []string{"operator"}}
	}
	if o.Keys == nil {
		if o.Store != nil && o.Store.Shared() {
			return nil, errors.New("tallystick.New: Options.Keys is nil, but the store is shared: every process needs the same keys")
		}
		ks, err := seal.NewKeyset()
		if err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
		o.Keys = ks.AEAD()
	}
	if o.Identify == nil {
		o.Identify = identifyByToken
	}
	if strings.Contains(o.Node, "/") {
		return nil, fmt.Errorf("tallystick.New: Options.Node %q must have no slash", o.Node)
	}
	if o.Node == "" && o.Store != nil && o.Store.Shared() {
		return nil, errors.New("tallystick.New: Options.Node is empty, but the store is shared: each process needs a name of its own, or it takes over the calls of the others")
	}
	srv := &Server{
		mcp: s, opts: o, limits: o.Limits.withDefaults(), log: o.Log, store: o.Store,
		ready: make(chan struct{}), stopped: make(chan struct{}), refusals: refusals{some: make(chan struct{}, 1)},
		things: map[thing]*feature{}, headers: map[string][]wire.ParamHeader{}, warned: map[string]bool{}, shapes: map[effectOf]func([]byte) error{},
		listens: map[string]int{},
	}
	if o.Store == nil {
		srv.store = noStore{}
	}
	var err error
	if srv.observer, err = observe.New(o.Log, o.TracerProvider, o.MeterProvider); err != nil {
		return nil, fmt.Errorf("tallystick.New: %w", err)
	}
	srv.engine = engine.New(engine.Options{
		Store: srv.store, Committed: srv.observer.Committed, Handle: srv.execute, MayRun: srv.mayRun, MayAct: srv.mayAct, Bounds: srv.bounds, Journal: srv.limits.JournalBytes, Log: o.Log,
		Deployment: o.Deployment, Node: o.Node, Workers: o.Workers, PerTenant: o.WorkersPerTenant,
		Lease: srv.limits.Lease, Heartbeat: srv.limits.Lease / 3, Drain: srv.limits.Drain, Grace: srv.limits.Grace, Settle: srv.limits.Settle,
	})
	srv.discover()
	if o.Store != nil {
		srv.addCallStatus()
	}
	return srv, nil
}

// Use adds middleware around every request of this package, the first
// outermost. Call it before [Server.Run].
func (s *Server) Use(m ...Middleware) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use = append(s.use, m...)
}

// Handler returns the Streamable HTTP endpoint for both eras. It answers 503
// before [Server.Run] and while that drains. opts is for the SDK's part of it;
// its Stateless and MaxRequestBodyBytes are set here.
func (s *Server) Handler(opts *mcp.StreamableHTTPOptions) http.Handler {
	h := wire.NewHTTP((*endpoint)(s), wire.HTTPOptions{
		Server: s.mcp, Streamable: opts, Ready: s.isReady, Limits: s.wireLimits(), Log: s.log, AllowedOrigins: s.opts.AllowedOrigins,
		SupportedVersions: mcp.SupportedProtocolVersions(),
		Principal: func(ctx context.Context, extra *mcp.RequestExtra) (string, error) {
			id, err := s.opts.Identify(ctx, extra)
			return id.principal().Tag(), err
		},
	})
	s.mu.Lock()
	s.fronts = append(s.fronts, h)
	s.mu.Unlock()
	return h
}

// Transport wraps a transport for the SDK server's Run or Connect, so that
// modern requests for this package reach it. Connecting waits for
// [Server.Run], and fails if that fails. An *mcp.StdioTransport is read line by line, within bounds: a
// line that is too long or no JSON costs one error and not the connection.
func (s *Server) Transport(t mcp.Transport) mcp.Transport {
	if _, ok := t.(*mcp.StdioTransport); ok {
		t = wire.Stdio(os.Stdin, os.Stdout, s.wireLimits())
	}
	return &gate{s, wire.NewTransport(t, (*endpoint)(s), wire.TransportOptions{
		Limits: s.wireLimits(), Log: s.log, SupportedVersions: mcp.SupportedProtocolVersions(),
	})}
}

// gate keeps a connection from being made before the server works.
type gate struct {
	s *Server
	mcp.Transport
}

func (g *gate) Connect(ctx context.Context) (mcp.Connection, error) {
	select {
	case <-g.s.ready:
	case <-g.s.stopped:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !g.s.isReady() {
		return nil, errors.New("tallystick: Server.Run has failed or ended")
	}
	return g.Transport.Connect(ctx)
}

func (g *gate) SupportsProtocolVersion(v string) bool {
	if s, ok := g.Transport.(mcp.ProtocolVersionSupporter); ok {
		return s.SupportsProtocolVersion(v)
	}
	return true
}

func (s *Server) wireLimits() wire.Limits {
	l := s.limits
	return wire.Limits{
		BodyBytes: int64(l.BodyBytes), Nesting: l.Nesting, ArgumentsBytes: l.ArgumentsBytes,
		AnswerBytes: l.AnswerBytes, StateBytes: l.StateBytes, ResultBytes: l.ResultBytes,
		Sessions: l.Sessions, SessionsPerPrincipal: l.SessionsPerPrincipal, InFlight: l.InFlight,
	}
}

func (s *Server) isReady() bool {
	select {
	case <-s.stopped:
		return false
	default:
	}
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// Run works until ctx ends: it runs stored calls, takes over those of crashed
// processes, and lets what is due expire. Then it drains: new requests get 503,
// runs have Limits.Drain to end, and what does not is handed back. It returns
// an error at once if the server cannot work: see Options.SkipSDKMiddleware.
// A server runs once.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return errors.New("tallystick: Server.Run was called twice")
	}
	if err := s.start(ctx); err != nil {
		close(s.stopped)
		if ctx.Err() != nil {
			return nil // told to stop before it had begun
		}
		return err
	}
	stop, err := s.observer.Counted(s.store.Counts)
	if err != nil {
		s.log.Error("the gauges are missing", "err", err)
	} else {
		defer stop()
	}
	close(s.ready)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	audits := make(chan struct{})
	go func() {
		defer close(audits)
		s.auditRefusals(ctx)
	}()
	err = s.engine.Work(s.draining(ctx))
	cancel() // if it could not work
	<-audits
	s.writeRefusals() // of the drain
	return err
}

// draining returns a context that ends with ctx, once the fronts are told.
func (s *Server) draining(ctx context.Context) context.Context {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		<-ctx.Done()
		s.stop()
		cancel(context.Cause(ctx))
	}()
	return out
}

// stop closes the fronts to new requests and lets those inside end, in the
// background: the engine's drain runs beside it.
func (s *Server) stop() {
	close(s.stopped)
	s.mu.Lock()
	fronts := s.fronts
	s.mu.Unlock()
	for _, h := range fronts {
		s.engine.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.limits.Drain)
			defer cancel()
			if err := h.Shutdown(ctx); err != nil {
				s.log.Warn("requests were still running at the end of the drain", "err", err)
			}
		})
	}
}

// newID returns 128 random bits or more, with no meaning inside.
func newID() string { return rand.Text() }

// localUser is who speaks over stdio.
func localUser() Identity {
	name := "uid " + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return Identity{Issuer: "os", Subject: name}
}

// Types of package record that handlers and approvers meet.
type (
	// Who says who may answer a question. The zero value means the requester;
	// answers from outside the call's tenant never count.
	Who = record.Who
	// Answer is a validated response to one exact question.
	Answer = record.Answer
	// Principal is who acts.
	Principal = record.Principal
)
