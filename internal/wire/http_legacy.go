package wire

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveLegacy sends a message of the 2025 era to the SDK, if it opens a session
// or belongs to one that its sender opened.
func (h *HTTP) serveLegacy(w http.ResponseWriter, r *http.Request, body []byte, m message, p params) {
	ctx, cancel := h.life.bind(r.Context(), false)
	defer cancel()
	if _, inSession := r.Header[headerSession]; inSession {
		if !h.ownSession(w, r) {
			return
		}
		r = withBody(r, ctx, h.ids.in(body, m, p))
		h.legacy.ServeHTTP(h.sdkWriter(w), r)
		return
	}
	if m.Method != "initialize" || !m.isCall() {
		writeError(w, m.ID, Errorf(CodeInvalidRequest,
			"the message has neither _meta %q with header MCP-Protocol-Version (revision %s) nor a session that initialize opened (2025 era)",
			mcp.MetaKeyProtocolVersion, Version))
		return
	}
	tag, ok := h.principal(w, r)
	if !ok {
		return
	}
	if !h.sessions.reserve(tag) {
		w.Header().Set("Retry-After", "60")
		e := Errorf(CodeInternal, "too many sessions are open (Limits.Sessions, Limits.SessionsPerPrincipal)")
		e.Status = http.StatusServiceUnavailable
		writeError(w, m.ID, e)
		return
	}
	id := ""
	out := h.sdkWriter(w)
	out.opened = func(head http.Header) {
		// Before the client learns the session's id, so that its next message
		// finds the owner.
		id = head.Get(headerSession)
		h.sessions.open(id, tag)
	}
	defer func() { h.sessions.release(tag) }()
	h.legacy.ServeHTTP(out, withBody(r, ctx, h.ids.in(body, m, p)))
}

// dropBody reads a body that means nothing: net/http would wait for it before
// it sends an answer.
func dropBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, 64<<10)); err == nil {
		_ = rc.SetReadDeadline(time.Time{})
	}
}

// serveSession answers GET and DELETE, which only sessions have.
func (h *HTTP) serveSession(w http.ResponseWriter, r *http.Request) {
	if _, inSession := r.Header[headerSession]; !inSession || modernHeader(r.Header) {
		methodNotAllowed(w)
		return
	}
	dropBody(w, r)
	if !h.ownSession(w, r) {
		return
	}
	ctx, cancel := h.life.bind(r.Context(), true)
	defer cancel()
	if t := auth.TokenInfoFromContext(ctx); t != nil && !t.Expiration.IsZero() {
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, t.Expiration)
		defer done()
	}
	h.legacy.ServeHTTP(h.sdkWriter(w), r.WithContext(ctx))
	if r.Method == http.MethodDelete {
		h.sessions.close(r.Header.Get(headerSession))
	}
}

// ownSession reports whether the request's principal opened its session, and
// answers the request if not. A session of somebody else reads as none.
func (h *HTTP) ownSession(w http.ResponseWriter, r *http.Request) bool {
	id, _, err := single(r.Header, headerSession)
	if err != nil {
		err.Code = CodeInvalidRequest
		writeError(w, nil, err)
		return false
	}
	tag, ok := h.principal(w, r)
	if !ok {
		return false
	}
	owner, known := h.sessions.owner(id)
	if known && owner == tag {
		return true
	}
	if known {
		h.log.Warn("session refused to another principal", "remote", r.RemoteAddr)
	}
	http.Error(w, "session not found", http.StatusNotFound) // as the SDK says it
	return false
}

func (h *HTTP) principal(w http.ResponseWriter, r *http.Request) (string, bool) {
	tag, err := h.opts.Principal(r.Context(), extra(r))
	if err != nil {
		h.log.Warn("request of an unknown principal", "remote", r.RemoteAddr, "error", err)
		writeError(w, nil, &Error{Code: CodeInvalidRequest, Message: "the caller could not be identified", Status: http.StatusUnauthorized})
		return "", false
	}
	return tag, true
}

// sessions remembers who opened which 2025-era session. The SDK ends sessions
// by itself; those are found and dropped before a limit is enforced.
type sessions struct {
	server *mcp.Server
	limits Limits

	mu    sync.Mutex
	tags  map[string]string // by session id
	count map[string]int    // by tag, of tags and of reservations
	total int               // of count
}

func newSessions(s *mcp.Server, limits Limits) *sessions {
	return &sessions{server: s, limits: limits, tags: map[string]string{}, count: map[string]int{}}
}

// reserve takes a place for a session of tag that is about to open.
func (s *sessions) reserve(tag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full(tag) {
		s.prune()
		if s.full(tag) {
			return false
		}
	}
	s.add(tag, 1)
	return true
}

// release gives back what reserve took; a session that opened counts by itself.
func (s *sessions) release(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(tag, -1)
}

func (s *sessions) open(id, tag string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[id] = tag
	s.add(tag, 1)
}

func (s *sessions) owner(id string) (tag string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tag, ok = s.tags[id]
	return tag, ok
}

func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
}

// live returns the sessions that the SDK still has.
func (s *sessions) live() []*mcp.ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*mcp.ServerSession
	for session := range s.server.Sessions() {
		if _, ok := s.tags[session.ID()]; ok {
			live = append(live, session)
		}
	}
	return live
}

// The rest runs with s.mu held.

func (s *sessions) full(tag string) bool {
	return s.total >= s.limits.Sessions || s.count[tag] >= s.limits.SessionsPerPrincipal
}

func (s *sessions) add(tag string, n int) {
	s.total += n
	if s.count[tag] += n; s.count[tag] == 0 {
		delete(s.count, tag)
	}
}

func (s *sessions) drop(id string) {
	if tag, ok := s.tags[id]; ok {
		delete(s.tags, id)
		s.add(tag, -1)
	}
}

func (s *sessions) prune() {
	live := map[string]bool{}
	for session := range s.server.Sessions() {
		live[session.ID()] = true
	}
	for id := range s.tags {
		if !live[id] {
			s.drop(id)
		}
	}
}
