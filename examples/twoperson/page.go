package main

import (
	_ "embed"
	"errors"
	"html/template"
	"net/http"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/web"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Parse(pageHTML))

// Page is where people see what waits for them, and decide.
//
// What they decide on is what they saw: the form carries the digest of the
// question, and a question that is asked in other words by then is not answered.
// All the arguments are shown, since all of them are what is approved.
//
// A browser sends the login with every request, also with one that another site
// makes it send; so requests that change something are refused unless they come
// from this very page (Sec-Fetch-Site, Origin), and no site may frame it.
func Page(s *tallystick.Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		by, ok := login(w, r)
		if !ok {
			return
		}
		list, err := s.Waiting(r.Context(), by)
		if err != nil {
			http.Error(w, "the store does not answer; try again", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, struct { // who is gone needs no page
			By      tallystick.Identity
			Waiting []tallystick.Waiting
		}{by, list})
	})
	mux.HandleFunc("POST /decide", func(w http.ResponseWriter, r *http.Request) {
		by, ok := login(w, r)
		if !ok {
			return
		}
		decide(w, r, s, by)
	})
	safe := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-store")
		safe.ServeHTTP(w, r)
	})
}

func decide(w http.ResponseWriter, r *http.Request, s *tallystick.Server, by tallystick.Identity) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	d := tallystick.Decision{CallID: r.PostFormValue("call"), Key: r.PostFormValue("key"), Digest: r.PostFormValue("digest")}
	switch r.PostFormValue("decision") {
	case "approve":
		d.Accept = true
	case "decline":
	default:
		http.Error(w, "neither approved nor declined", http.StatusBadRequest)
		return
	}
	if d.Digest == "" { // which would mean: in whatever words
		http.Error(w, "the decision does not say on what", http.StatusBadRequest)
		return
	}
	switch err := s.Decide(r.Context(), by, d); {
	case err == nil:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case errors.Is(err, tallystick.ErrNoQuestion):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, tallystick.ErrSettled):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, "nothing may have been recorded; look again", http.StatusInternalServerError)
	}
}

// login knows people by HTTP Basic: good enough to show the rest.
func login(w http.ResponseWriter, r *http.Request) (tallystick.Identity, bool) {
	name, password, _ := r.BasicAuth()
	by, ok := web.People[name]
	if !ok || password != name {
		w.Header().Set("WWW-Authenticate", `Basic realm="approvals", charset="UTF-8"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return tallystick.Identity{}, false
	}
	return by, true
}
