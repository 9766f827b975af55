package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options of [New].
type Options struct {
	// Memory is what outlives the process. Many clients may share one.
	Memory *Memory
	// Server is the name under which calls are remembered: a client resumes the
	// calls of its own name only. Give the same server, reached as the same
	// person, always the same name; its URL will do.
	Server string
	// Transport makes a transport for a new connection: a
	// *mcp.StreamableClientTransport (also with an OAuthHandler), a
	// *mcp.CommandTransport with a new command, or another. It is called again
	// after a connection has been lost.
	Transport func() (mcp.Transport, error)

	Answerer Answerer // nil: nobody is there to be asked
	Policy   Policy

	// KeysKept says for how long, from the first sending on, the server is known
	// to keep idempotency keys (_meta "tallystick/idempotencyKey"): a request
	// whose response was lost is sent again within that time, and not otherwise.
	// Zero: as the server itself declares, which tallystick's do. A server that
	// ignores keys would do twice what is sent twice.
	KeysKept time.Duration

	Info   *mcp.Implementation // what servers are told; default "tallystick-client"
	Limits Limits
	// Notify is told of each change of a call's Status, from whatever goroutine
	// makes it, many at once. It must not block: methods of the call's Handle but
	// ID and Status may. The end may be told after Wait has returned it, and not
	// after Close.
	Notify func(Status)
	// Ruled is told of each answer that a rule of Policy has given, once it is on
	// disk and before it is sent: rule is its index in Policy. It must not block,
	// and may be called from many goroutines at once.
	Ruled func(q Question, a Answer, rule int)
	Log   *slog.Logger // default: discards
}

// Limits bound what one call may take. Zero means the default.
type Limits struct {
	Deadline  time.Duration // the whole call, people's time included: 24 h
	Work      time.Duration // the server's time alone, of one attachment: 1 h; tasks are bounded by Deadline only
	Request   time.Duration // one request until something is heard, a report of progress for instance: 5 min
	Outage    time.Duration // how long a server that is out of reach is tried before a call is set aside: 1 min
	Rounds    int           // retries of one attachment: 20
	Questions int           // open at once: 64. A task's, and those of the 2025 era, in one attachment: Rounds times as many
	Message   int           // bytes of one message from the server: 16 MiB. Over other transports than HTTP those of a result, and never more than the SDK's 16 MiB
	Keep      time.Duration // of a call whose outcome its caller has had: 24 h
}

func (l *Limits) setDefaults() {
	duration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	number := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	duration(&l.Deadline, 24*time.Hour)
	duration(&l.Work, time.Hour)
	duration(&l.Request, 5*time.Minute)
	duration(&l.Outage, time.Minute)
	duration(&l.Keep, 24*time.Hour)
	number(&l.Rounds, 20)
	number(&l.Questions, 64)
	number(&l.Message, 16<<20)
}

func (l *Limits) check() error {
	for name, d := range map[string]time.Duration{"Deadline": l.Deadline, "Work": l.Work, "Request": l.Request, "Outage": l.Outage, "Keep": l.Keep} {
		if d < 0 {
			return fmt.Errorf("client: Limits.%s is negative", name)
		}
	}
	if l.Rounds < 0 || l.Questions < 0 || l.Message < 0 {
		return errors.New("client: a limit is negative")
	}
	return nil
}

// A Client drives calls to one server. It is safe for concurrent use; it
// connects when it first has to.
type Client struct {
	opts Options
	log  *slog.Logger

	ctx  context.Context // ends with Close; parent of everything that outlives a method
	stop context.CancelFunc
	wg   sync.WaitGroup // drives, connections, listens

	mu     sync.Mutex // guards what follows
	closed bool
	drives map[string]*drive // by handle id, those of this client

	links links
}

// New makes a client. It reads and sends nothing.
func New(opts Options) (*Client, error) {
	switch {
	case opts.Memory == nil:
		return nil, errors.New("client: Options.Memory is missing: OpenMemory makes one")
	case opts.Server == "":
		return nil, errors.New("client: Options.Server is missing")
	case opts.Transport == nil:
		return nil, errors.New("client: Options.Transport is missing")
	case opts.KeysKept < 0:
		return nil, errors.New("client: Options.KeysKept is negative")
	}
	if err := errors.Join(opts.Policy.check(), opts.Limits.check()); err != nil {
		return nil, err
	}
	opts.Limits.setDefaults()
	if opts.Info == nil {
		opts.Info = &mcp.Implementation{Name: "tallystick-client", Version: "1"}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{opts: opts, log: opts.Log.With("server", opts.Server), drives: map[string]*drive{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.links.c = c
	return c, nil
}

// Close lets go of all calls, which stay on disk, and closes the connection.
// The memory stays open.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	err := c.links.close()
	c.wg.Wait()
	return err
}

// Call calls a tool and drives the call to its end: it answers what the server
// asks, through the Answerer, and watches the task if it becomes one. args is
// anything that marshals to a JSON object; json.RawMessage is sent as it is.
//
// A tool's own error is a result with IsError. Any other end is an *[Error].
// When ctx ends, the driving ends with ErrDetached and the call does not: it is
// on disk, and [Client.Attach] goes on with it. To end it, use [Handle.Cancel].
func (c *Client) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	h, err := c.Start(ctx, tool, args)
	if err != nil {
		return nil, err
	}
	r, err := h.finish(ctx)
	if err != nil {
		return nil, err
	}
	return r.Tool()
}

// GetPrompt is [Client.Call] for prompts/get.
func (c *Client) GetPrompt(ctx context.Context, name string, args map[string]string) (*mcp.GetPromptResult, error) {
	h, err := c.StartPrompt(ctx, name, args)
	if err != nil {
		return nil, err
	}
	r, err := h.finish(ctx)
	if err != nil {
		return nil, err
	}
	return r.Prompt()
}

// ReadResource is [Client.Call] for resources/read.
func (c *Client) ReadResource(ctx context.Context, uri string) (*mcp.ReadResourceResult, error) {
	h, err := c.StartResource(ctx, uri)
	if err != nil {
		return nil, err
	}
	r, err := h.finish(ctx)
	if err != nil {
		return nil, err
	}
	return r.Resource()
}

// Start is [Client.Call] in the background. It returns once the call is on
// disk; ctx is for that alone.
func (c *Client) Start(ctx context.Context, tool string, args any) (*Handle, error) {
	return c.begin(ctx, methodTool, tool, args)
}

// StartPrompt is [Client.Start] for prompts/get.
func (c *Client) StartPrompt(ctx context.Context, name string, args map[string]string) (*Handle, error) {
	return c.begin(ctx, methodPrompt, name, args)
}

// StartResource is [Client.Start] for resources/read.
func (c *Client) StartResource(ctx context.Context, uri string) (*Handle, error) {
	return c.begin(ctx, methodResource, uri, nil)
}

// Attach goes on with a call of this client's server, in the background, with
// Limits.Rounds and Limits.Work anew. Errors: ErrNotFound, ErrBusy if another
// process drives it. A call that has ended gives its outcome again.
func (c *Client) Attach(ctx context.Context, id string) (*Handle, error) {
	c.mu.Lock()
	d := c.drives[id]
	c.mu.Unlock()
	if d != nil {
		return &Handle{d: d}, nil
	}
	kept, err := c.opts.Memory.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if kept.e.Server != c.opts.Server {
		return nil, &Error{ID: id, Kind: ErrNotFound, Reason: "it is a call to another server"}
	}
	if !kept.e.ended() {
		if kept, err = c.opts.Memory.claim(ctx, id); err != nil {
			return nil, err
		}
	}
	h, err := c.drive(kept)
	if err != nil {
		c.opts.Memory.release(kept)
	}
	return h, err
}

// Resume attaches to all calls of this client's server that have not ended, or
// whose outcome no caller has had. Calls that other processes drive are left
// out. With an error, the handles are those that could be attached.
func (c *Client) Resume(ctx context.Context) ([]*Handle, error) {
	all, err := c.opts.Memory.List(ctx)
	var handles []*Handle
	failed := []error{err} // those that can be read are not to suffer from the others
	for _, s := range all {
		if s.Server != c.opts.Server || s.Seen {
			continue
		}
		switch h, err := c.Attach(ctx, s.ID); {
		case err == nil:
			handles = append(handles, h)
		case !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotFound):
			failed = append(failed, err)
		}
	}
	return handles, errors.Join(failed...)
}

// Session is the SDK's session of the current connection, for everything that
// takes one round trip: lists, completion, pings. Do not close it, and do not
// use it for calls. It serves until the connection is lost; ask again then.
// Errors: ErrUnreachable, ErrUnauthorized, ErrClosed.
func (c *Client) Session(ctx context.Context) (*mcp.ClientSession, error) {
	l, err := c.links.get(ctx)
	if err != nil {
		return nil, noLink(err)
	}
	return l.session, nil
}

// noLink is why there is no connection, for somebody outside.
func noLink(err error) error {
	var broke *linkError
	switch {
	case !errors.As(err, &broke):
		return err
	case broke.kind == unauthorized:
		return &Error{Kind: ErrUnauthorized, Err: err}
	}
	return &Error{Kind: ErrUnreachable, Err: err}
}

// Tools lists the server's tools. Those that want some of their arguments in
// headers as well (x-mcp-header) get them from then on. Errors: as of Session,
// and what the server says.
func (c *Client) Tools(ctx context.Context) ([]*mcp.Tool, error) {
	l, err := c.links.get(ctx)
	if err != nil {
		return nil, noLink(err)
	}
	return l.tools(ctx)
}

// begin puts a new call on disk and drives it.
func (c *Client) begin(ctx context.Context, method, name string, args any) (*Handle, error) {
	params, arguments, err := paramsOf(method, name, args)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, &Error{Kind: ErrClosed}
	}
	now := time.Now()
	e := &entry{
		ID: newID(), Server: c.opts.Server, Method: method, Name: name, Params: params, Arguments: arguments,
		Key: newID(), Created: now, Updated: now, Deadline: now.Add(c.opts.Limits.Deadline), Stage: stageReady,
	}
	if l := c.links.ready(); l != nil {
		e.leaves(l)
	}
	kept, err := c.opts.Memory.insert(ctx, e)
	if err != nil {
		return nil, err
	}
	h, err := c.drive(kept)
	if err != nil { // whoever called is told that there is no call
		c.opts.Memory.release(kept)
		return nil, errors.Join(err, c.opts.Memory.Forget(context.WithoutCancel(ctx), e.ID))
	}
	return h, nil
}

// drive starts the goroutine of a call that this process holds. If it fails,
// that is the caller's to release.
func (c *Client) drive(k kept) (*Handle, error) {
	can := c.capabilities(k.e.Name) // as the Answerer says, which is not asked with the mutex held
	for {
		c.mu.Lock()
		d := c.drives[k.e.ID]
		if d == nil {
			break
		}
		c.mu.Unlock()
		if k.h == nil { // it has ended: attached twice at once
			return &Handle{d: d}, nil
		}
		<-d.done // one that has let go of the call, and is about to return
	}
	defer c.mu.Unlock()
	if c.closed {
		return nil, &Error{ID: k.e.ID, Kind: ErrClosed}
	}
	d := newDrive(c, k, can)
	c.drives[k.e.ID] = d
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		d.run()
	}()
	return &Handle{d: d}, nil
}

// gone forgets a drive that has returned.
func (c *Client) gone(d *drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drives[d.id] == d {
		delete(c.drives, d.id)
	}
}

// paramsOf are the params of a first request, without _meta, and its arguments.
func paramsOf(method, name string, args any) (params, arguments json.RawMessage, err error) {
	if name == "" {
		return nil, nil, errors.New("client: the name is empty")
	}
	if method == methodResource {
		params, err = json.Marshal(map[string]string{"uri": name})
		return params, nil, err
	}
	if arguments, err = marshal(args); err != nil {
		return nil, nil, fmt.Errorf("client: the arguments of %s: %w", name, err)
	}
	if string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	if !isObject(arguments) {
		return nil, nil, fmt.Errorf("client: the arguments of %s are not one JSON object without names that come twice", name)
	}
	params, err = marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{name, arguments})
	return params, arguments, err
}
