package wire

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// checkOrigin refuses what a browser sends for a page of somebody else, and
// names that rebind to this machine, as the specification's security section
// for Streamable HTTP asks.
func (h *HTTP) checkOrigin(r *http.Request) *Error {
	forbidden := func(message string) *Error {
		return &Error{Code: CodeInvalidRequest, Message: message, Status: http.StatusForbidden}
	}
	local := false
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && a != nil {
		local = isLoopback(a.String())
	}
	sdk := h.opts.Streamable
	if local && !isLoopback(r.Host) && (sdk == nil || !sdk.DisableLocalhostProtection) {
		return forbidden("this server listens on loopback and the Host header does not name it")
	}
	//lint:ignore SA1019 whoever set it relies on it
	if sdk != nil && sdk.CrossOriginProtection != nil && sdk.CrossOriginProtection.Check(r) != nil {
		return forbidden("cross-origin request")
	}
	for _, origin := range r.Header.Values("Origin") {
		if !h.allowedOrigin(origin, r.Host, local) {
			return forbidden("the Origin is not allowed (Options.AllowedOrigins)")
		}
	}
	return nil
}

func (h *HTTP) allowedOrigin(origin, host string, local bool) bool {
	if slices.ContainsFunc(h.opts.AllowedOrigins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return false // "null" too
	}
	if local && isLoopback(u.Host) {
		return true
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return strings.EqualFold(withPort(u.Host, port), withPort(host, port))
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// isLoopback reports whether a host, with or without port, is this machine's
// loopback by its literal address or as localhost.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
