package bazaar

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// Person is who a bearer token names: "subject/tenant/role,role/client".
func Person(token string) tallystick.Identity {
	f := append(strings.Split(token, "/"), "", "", "", "")
	id := tallystick.Identity{Issuer: "test", Subject: f[0], Tenant: f[1], Client: f[3]}
	if f[2] != "" {
		id.Roles = strings.Split(f[2], ",")
	}
	return id
}

// Identify takes bearer tokens at their word, for [tallystick.Options].
func Identify(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
	token, _ := strings.CutPrefix(extra.Header.Get("Authorization"), "Bearer ")
	return Person(token), nil
}

type pageRequest struct {
	By       tallystick.Identity
	Decision *tallystick.Decision
	Count    bool
}

type pageReply struct {
	Waiting []tallystick.Waiting
	Counts  store.Counts
	Held    int // effects, whether or not an operator is shown them
	Err     string
}

// Page is the approval page of a server, in words of JSON.
func Page(s *tallystick.Server, kept store.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in pageRequest
		var out pageReply
		err := json.NewDecoder(r.Body).Decode(&in)
		switch {
		case err != nil:
		case in.Count:
			if out.Counts, err = kept.Counts(r.Context()); err == nil {
				out.Held, err = held(r.Context(), kept)
			}
		case in.Decision != nil:
			err = s.Decide(r.Context(), in.By, *in.Decision)
		default:
			out.Waiting, err = s.Waiting(r.Context(), in.By)
		}
		if err != nil {
			out.Err = err.Error()
		}
		_ = json.NewEncoder(w).Encode(out) // whoever asked may have gone
	})
}

// held is how many effects are held, by what is on record: rights may keep an
// operator from being shown one.
func held(ctx context.Context, kept store.Store) (n int, err error) {
	for _, tenant := range tenants {
		for after, more := "", true; more; {
			calls, err := kept.List(ctx, store.Filter{Tenant: tenant, Open: true, After: after, Limit: 1000})
			if err != nil {
				return 0, err
			}
			for _, call := range calls {
				after = call.ID
				for _, f := range call.Effects {
					if f.State == record.EffectHeld {
						n++
					}
				}
			}
			more = len(calls) == 1000
		}
	}
	return n, nil
}

func askPage(ctx context.Context, page string, in pageRequest) (out pageReply, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", page, strings.NewReader(string(body)))
	if err != nil {
		return out, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	return out, json.NewDecoder(resp.Body).Decode(&out)
}
