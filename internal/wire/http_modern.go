package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// serveModern answers one message of revision 2026-07-28.
func (h *HTTP) serveModern(w http.ResponseWriter, r *http.Request, body []byte, m message, p params) {
	switch {
	case m.Response:
		// This revision's servers send no requests, so this answers none.
		writeError(w, nil, Errorf(CodeInvalidRequest, "this revision has no responses from clients"))
	case m.isCall():
		h.serveCall(w, r, body, m, p)
	default:
		if err := h.checkNotification(r.Header, m, p); err != nil {
			writeError(w, nil, err)
			return
		}
		// Nothing to do: a POST ends by closing it, not by notifications/cancelled.
		w.WriteHeader(http.StatusAccepted)
	}
}

func (h *HTTP) checkNotification(header http.Header, m message, p params) *Error {
	if !strings.HasPrefix(m.Method, "notifications/") {
		return Errorf(CodeInvalidRequest, "method %s needs an id", short(m.Method))
	}
	if _, inMeta, _ := p.version(); inMeta {
		if err := h.checkVersion(header, p); err != nil {
			return err
		}
	} else if v, _, err := single(header, headerVersion); err != nil {
		return err
	} else if v != Version {
		return h.unsupportedVersion(v)
	}
	return checkMethod(header, m.Method)
}

// serveCall answers one request. The order of the checks is the specification's:
// the headers come before anything that looks at what is called.
func (h *HTTP) serveCall(w http.ResponseWriter, r *http.Request, body []byte, m message, p params) {
	req, err := h.checkCall(r.Header, m, p)
	if err != nil {
		writeError(w, m.ID, err)
		return
	}
	ctx, cancel := h.life.bind(r.Context(), req.Method == MethodListen)
	defer cancel()
	if !h.owns(req) {
		h.forward(ctx, w, r, body, m, p)
		return
	}
	req.Extra = extra(r)
	out := newResponder(w, m.ID, h.opts.KeepAlive, h.opts.WriteTimeout)
	req.Notify = out.notify
	if req.Method == MethodListen {
		hurried := make(chan struct{})
		stop := context.AfterFunc(h.life.streams, func() {
			defer close(hurried)
			out.hurry()
		})
		defer func() {
			if !stop() {
				<-hurried // w is not to be used any more
			}
		}()
	}
	result, err := h.handle(ctx, req)
	out.finish(result, err)
}

func (h *HTTP) checkCall(header http.Header, m message, p params) (*Request, *Error) {
	if noRequest(m.Method) {
		return nil, methodNotFound(m.Method)
	}
	if err := h.checkVersion(header, p); err != nil {
		return nil, err
	}
	if err := checkMethod(header, m.Method); err != nil {
		return nil, err
	}
	if err := checkName(header, m, p); err != nil {
		return nil, err
	}
	if m.Method == MethodCallTool {
		tool, _ := p.name(m.Method)
		if err := checkParams(header, h.handler.ParamHeaders(tool), p.members["arguments"]); err != nil {
			return nil, err
		}
	}
	return h.admit(m, p)
}

// forward gives a checked modern request to the SDK.
func (h *HTTP) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, body []byte, m message, p params) {
	r = withBody(r, ctx, h.ids.in(body, m, p))
	r.Header = r.Header.Clone()
	r.Header.Del("Last-Event-ID") // of earlier revisions; the SDK would answer it in plain text
	// The SDK compares names as they are; ours have been compared decoded.
	if name, err := p.name(m.Method); err == nil && name != "" {
		r.Header.Set(headerName, name)
	}
	h.modern.ServeHTTP(h.sdkWriter(w), r)
}

// withBody is the request again, for a handler that reads the body itself.
func withBody(r *http.Request, ctx context.Context, body []byte) *http.Request {
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return r
}

// An sdkWriter is the response as the SDK writes it, each message in one Write.
type sdkWriter struct {
	http.ResponseWriter
	ids     idAlias
	timeout time.Duration // of one write
	// opened, if set, is called with the headers before they go out.
	opened func(http.Header)
}

func (h *HTTP) sdkWriter(w http.ResponseWriter) *sdkWriter {
	return &sdkWriter{ResponseWriter: w, ids: h.ids, timeout: h.opts.WriteTimeout}
}

func (w *sdkWriter) WriteHeader(status int) {
	w.open()
	w.ResponseWriter.WriteHeader(status)
}

// Write is bounded, so that a client that does not read holds no handler. Of a
// stream the bound ends with the write: HTTP/2 would reset a silent one. What is
// left of another response goes out when the handler has returned, within it.
func (w *sdkWriter) Write(b []byte) (int, error) {
	w.open()
	out := w.ids.out(b)
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(w.timeout))
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return len(b), nil
}

func (w *sdkWriter) open() {
	if w.opened != nil {
		w.opened(w.Header())
		w.opened = nil
	}
}

// Unwrap is for [http.ResponseController].
func (w *sdkWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
