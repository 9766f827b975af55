package desk

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/store"
)

//go:embed page.html
var page []byte

// An Item is a question or a held effect that its reader may settle.
type Item struct {
	CallID    string          `json:"callId"`
	Tool      string          `json:"tool"`
	Requester string          `json:"requester"`
	Arguments json.RawMessage `json:"arguments"`
	Key       string          `json:"key,omitempty"`
	Digest    string          `json:"digest,omitempty"`
	Message   string          `json:"message,omitempty"`
	Expires   time.Time       `json:"expires,omitzero"`
	Effect    string          `json:"effect,omitempty"`
	Subject   string          `json:"subject,omitempty"`
}

// A Verdict settles an item.
type Verdict struct {
	CallID string `json:"callId"`
	// Of a question: as the item has them, and whether it is approved.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"`
	Accept bool   `json:"accept,omitempty"`
	// Of a held effect: as the item has them, whether it happened, and what
	// the far side would have said.
	Effect   string          `json:"effect,omitempty"`
	Subject  string          `json:"subject,omitempty"`
	Happened bool            `json:"happened,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// An AuditLine is an entry of the audit trail, and of which call it is.
type AuditLine struct {
	Seq       int64           `json:"seq"`
	At        time.Time       `json:"at"`
	Call      string          `json:"call,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Owner     string          `json:"owner,omitempty"`
	Event     string          `json:"event"`
	By        string          `json:"by,omitempty"` // empty: the server itself
	Channel   string          `json:"channel"`
	Key       string          `json:"key,omitempty"`
	Effect    string          `json:"effect,omitempty"`
	Outcome   string          `json:"outcome,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Note      string          `json:"note,omitempty"`
	Count     int             `json:"count,omitempty"`
}

// addApprovals adds the page for people, and what it calls. The page itself
// holds nothing; what it calls takes a bearer token in a header, which no
// other site can make a browser send.
func (d *desk) addApprovals(mux *http.ServeMux) {
	checked := auth.RequireBearerToken(d.people.verify, nil)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'")
		_, _ = w.Write(page)
	})
	mux.Handle("GET /waiting", checked(d.person(d.waiting)))
	mux.Handle("POST /decide", checked(d.person(d.decide)))
	mux.Handle("GET /audit", checked(d.person(d.audit)))
}

type personal func(r *http.Request, who Person) (any, error)

// person serves for whom the token names, and turns errors into statuses.
func (d *desk) person(h personal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := h(r, d.people.Named(auth.TokenInfoFromContext(r.Context()).UserID))
		status := http.StatusOK
		switch {
		case errors.Is(err, tallystick.ErrNoQuestion):
			status = http.StatusNotFound
		case errors.Is(err, tallystick.ErrSettled):
			status = http.StatusConflict
		case errors.Is(err, tallystick.ErrBadAnswer), errors.Is(err, errBadRequest):
			status = http.StatusBadRequest
		case errors.Is(err, errForbidden):
			status = http.StatusForbidden
		case err != nil:
			d.log.Error("serving an approval failed", "path", r.URL.Path, "err", err)
			status, err = http.StatusInternalServerError, errors.New("internal error")
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

var (
	errForbidden  = errors.New("this is for operators")
	errBadRequest = errors.New("malformed request")
)

func (d *desk) waiting(r *http.Request, who Person) (any, error) {
	found, err := d.srv.Waiting(r.Context(), who.identity())
	items := []Item{}
	for _, w := range found {
		items = append(items, Item{
			CallID: w.CallID, Tool: w.Tool, Requester: w.Requester.Subject, Arguments: w.Arguments,
			Key: w.Key, Digest: w.Digest, Message: w.Message, Expires: w.Expires, Effect: w.Effect, Subject: w.Subject,
		})
	}
	return items, err
}

func (d *desk) decide(r *http.Request, who Person) (any, error) {
	var v Verdict
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10)).Decode(&v); err != nil {
		return nil, errBadRequest
	}
	err := d.srv.Decide(r.Context(), who.identity(), tallystick.Decision{
		CallID: v.CallID, Key: v.Key, Digest: v.Digest, Accept: v.Accept,
		Effect: v.Effect, Subject: v.Subject, Happened: v.Happened, Result: v.Result,
	})
	return map[string]string{"status": "recorded"}, err
}

func (d *desk) audit(r *http.Request, who Person) (any, error) {
	if who.Role != RoleOperator {
		return nil, errForbidden
	}
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil && r.URL.Query().Has("after") {
		return nil, errBadRequest
	}
	rows, err := d.srv.Store.Audit(r.Context(), store.AuditQuery{Tenant: who.identity().Tenant, After: after, Limit: 1000})
	if err != nil {
		return nil, err
	}
	lines := []AuditLine{}
	calls := map[string]AuditLine{}
	for _, row := range rows {
		line, ok := calls[row.Call]
		if !ok {
			line = d.aboutCall(r.Context(), row.Call)
			calls[row.Call] = line
		}
		line.Seq, line.At, line.Call, line.Event = row.Seq, row.At, row.Call, row.Event
		line.By, line.Channel = row.By.Subject, string(row.By.Channel)
		line.Key, line.Effect, line.Outcome, line.Reason = row.Key, row.Effect, string(row.Outcome), string(row.Reason)
		line.Note, line.Count = row.Note, row.Count
		lines = append(lines, line)
	}
	return lines, nil
}

// aboutCall is what the store still knows of the call itself.
func (d *desk) aboutCall(ctx context.Context, id string) AuditLine {
	if id == "" {
		return AuditLine{}
	}
	c, err := d.srv.Store.Load(ctx, id)
	if err != nil {
		return AuditLine{} // purged
	}
	return AuditLine{Tool: c.Action.Name, Arguments: c.Args, Owner: c.Owner.Subject}
}
