package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTPOptions configure [NewHTTP]. Only Server is required.
type HTTPOptions struct {
	// Server is the SDK server that answers what the Handler does not own.
	Server *mcp.Server
	// Streamable is copied for the two SDK handlers in front of Server. Its
	// Stateless, MaxRequestBodyBytes and SessionTimeout (if zero: 30 minutes)
	// are set here.
	Streamable *mcp.StreamableHTTPOptions
	// Ready reports whether requests are taken; while false they get 503.
	// Nil means always.
	Ready func() bool
	// Limits of one peer; zero fields are defaults.
	Limits Limits
	// AllowedOrigins are further origins ("https://app.example") whose pages may
	// call. Without it a request's Origin must be absent, the request's own
	// host, or, when the server listens on loopback, loopback too.
	AllowedOrigins []string
	// ServerInfo goes into _meta of results that lack it. Nil: none.
	ServerInfo json.RawMessage
	// SupportedVersions are named to clients that ask for another one, as the
	// revision's UnsupportedProtocolVersionError says. Nil: only [Version].
	SupportedVersions []string
	// Principal returns a tag of the whole principal that sends a request: a
	// 2025-era session takes messages of the tag that opened it and no other.
	// An error refuses the request with 401. Nil: the token's UserID.
	Principal func(ctx context.Context, extra *mcp.RequestExtra) (string, error)
	// Log gets refusals and failures, never arguments, answers, tokens or
	// state. Nil: nothing is logged.
	Log *slog.Logger
	// KeepAlive is the longest silence on a response before an SSE comment is
	// sent. Default 15 s.
	KeepAlive time.Duration
	// BodyTimeout bounds the reading of one body, WriteTimeout one write to a
	// client that does not read. Default 30 s each.
	BodyTimeout, WriteTimeout time.Duration
	// Now is the clock that tokens expire by. Nil: time.Now.
	Now func() time.Time
}

func (o HTTPOptions) withDefaults() HTTPOptions {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.KeepAlive, 15*time.Second)
	def(&o.BodyTimeout, 30*time.Second)
	def(&o.WriteTimeout, 30*time.Second)
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Principal == nil {
		o.Principal = func(_ context.Context, extra *mcp.RequestExtra) (string, error) {
			if extra.TokenInfo == nil {
				return "", nil
			}
			return extra.TokenInfo.UserID, nil
		}
	}
	return o
}

// HTTP is the Streamable HTTP endpoint for both eras: requests of revision
// 2026-07-28 that the [Handler] owns are answered here, other modern ones by
// the SDK without a session, and those of the 2025 era by the SDK in sessions.
type HTTP struct {
	*front
	opts     HTTPOptions
	modern   http.Handler // the SDK, stateless
	legacy   http.Handler // the SDK, in sessions
	sessions *sessions
	ids      idAlias
	life     lifetime
}

// NewHTTP returns the endpoint. It panics if opts.Server is nil.
func NewHTTP(h Handler, opts HTTPOptions) *HTTP {
	if opts.Server == nil {
		panic("wire: HTTPOptions.Server is nil")
	}
	opts = opts.withDefaults()
	var shared mcp.StreamableHTTPOptions
	if opts.Streamable != nil {
		shared = *opts.Streamable
	}
	shared.MaxRequestBodyBytes = -1 // bounded before it gets there
	shared.DisableLocalhostProtection = true
	stateless, stateful := shared, shared
	stateless.Stateless, stateful.Stateless = true, false
	if stateful.SessionTimeout == 0 {
		stateful.SessionTimeout = 30 * time.Minute
	}
	server := func(*http.Request) *mcp.Server { return opts.Server }
	f := newFront(h, opts.Limits, opts.Log, opts.ServerInfo, opts.SupportedVersions)
	return &HTTP{
		front:    f,
		opts:     opts,
		modern:   mcp.NewStreamableHTTPHandler(server, &stateless),
		legacy:   mcp.NewStreamableHTTPHandler(server, &stateful),
		sessions: newSessions(opts.Server, f.limits),
		ids:      newIDAlias(),
		life:     newLifetime(),
	}
}

// ServeHTTP implements [http.Handler].
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The connection's last response may have left a bound (sdkWriter).
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	if err := h.checkOrigin(r); err != nil {
		h.log.Warn("request refused", "reason", err.Message, "remote", r.RemoteAddr)
		writeError(w, nil, err)
		return
	}
	if !h.opts.Ready() || !h.life.enter() {
		w.Header().Set("Retry-After", "1")
		writeError(w, nil, &Error{Code: CodeInternal, Message: "the server is not ready", Status: http.StatusServiceUnavailable})
		return
	}
	defer h.life.leave()
	if t := auth.TokenInfoFromContext(r.Context()); t != nil && !t.Expiration.IsZero() && !h.opts.Now().Before(t.Expiration) {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		writeError(w, nil, &Error{Code: CodeInvalidRequest, Message: "the token has expired", Status: http.StatusUnauthorized})
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r)
	case http.MethodGet, http.MethodDelete:
		h.serveSession(w, r)
	default:
		methodNotAllowed(w)
	}
}

func methodNotAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", "POST")
	writeError(w, nil, &Error{Code: CodeInvalidRequest, Message: "send messages with POST", Status: http.StatusMethodNotAllowed})
}

// servePost reads one message and sends it the way of its era.
func (h *HTTP) servePost(w http.ResponseWriter, r *http.Request) {
	body, bad := h.readBody(w, r)
	if bad != nil {
		writeError(w, nil, bad)
		return
	}
	m, bad := parseMessage(body, h.limits)
	if bad != nil {
		writeError(w, m.ID, bad)
		return
	}
	p, bad := parseParams(m.Params, m.strict, h.limits)
	if bad != nil {
		writeError(w, m.ID, bad)
		return
	}
	if _, inMeta := p.meta[mcp.MetaKeyProtocolVersion]; inMeta || modernHeader(r.Header) {
		h.serveModern(w, r, body, m, p)
		return
	}
	h.serveLegacy(w, r, body, m, p)
}

// readBody reads the body to its end, which is also what lets net/http notice
// that the client has gone: the contexts of handlers end by it.
func (h *HTTP) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Error) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, &Error{Code: CodeInvalidRequest, Message: "Content-Type must be application/json", Status: http.StatusUnsupportedMediaType}
	}
	if !accepts(r.Header.Values("Accept")) {
		return nil, Errorf(CodeInvalidRequest, "Accept must contain both application/json and text/event-stream")
	}
	limit := h.limits.BodyBytes
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return nil, tooLarge(CodeInvalidRequest, "the body", "BodyBytes", limit)
	}
	rc := http.NewResponseController(w)
	// Not supported by every ResponseWriter; the server's own timeouts remain.
	_ = rc.SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{})
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(CodeInvalidRequest, "the body", "BodyBytes", limit)
	}
	w.Header().Set("Connection", "close")
	return nil, &Error{Code: CodeInvalidRequest, Message: "the body could not be read in time", Status: http.StatusRequestTimeout}
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == "application/json"
}

// readAll reads to the end what is probably as long as that, or -1.
func readAll(r io.Reader, length int64) ([]byte, error) {
	const most = 64 << 10 // is believed before it is there
	if length < 0 || length > most {
		return io.ReadAll(r)
	}
	b := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// accepts reports whether both forms of a response are accepted, which the
// specification makes a duty of the client.
func accepts(values []string) bool {
	if len(values) == 1 && values[0] == "application/json, text/event-stream" {
		return true
	}
	var object, stream bool
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "*/*":
				return true
			case "application/json", "application/*":
				object = true
			case "text/event-stream", "text/*":
				stream = true
			}
		}
	}
	return object && stream
}

// extra is what the HTTP layer knows of a request.
func extra(r *http.Request) *mcp.RequestExtra {
	return &mcp.RequestExtra{TokenInfo: auth.TokenInfoFromContext(r.Context()), Header: r.Header}
}

// writeError writes an error as the whole response. If the body has not been
// read, net/http waits for a part of it before it sends anything; not for long.
func writeError(w http.ResponseWriter, id json.RawMessage, e *Error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
	writeJSON(w, e.status(), encodeError(id, e))
}

// Values of headers, which nobody changes: http.Header.Set would make them anew
// for each response.
var (
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
	noSniff  = []string{"nosniff"}
)

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	head := w.Header()
	head["Content-Type"], head["Cache-Control"], head["X-Content-Type-Options"] = typeJSON, noStore, noSniff
	head["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone has no use for the error
}
