package desk

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/tallystick/tallystick"
)

// Roles at the desk.
const (
	RoleSupport  = "support"  // asks for refunds
	RoleFinance  = "finance"  // approves large ones, has payouts made
	RoleOperator = "operator" // resolves what is held, reads the audit trail
)

// A Person of the shop, and the bearer token that says so.
type Person struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Token string `json:"token"`
}

// People of the shop.
type People []Person

// LoadPeople reads who there is in a folder, or makes them and their tokens.
func LoadPeople(folder string) (People, error) {
	path := filepath.Join(folder, "people.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		people := People{{Name: "ann", Role: RoleSupport}, {Name: "bob", Role: RoleSupport}, {Name: "fay", Role: RoleFinance}, {Name: "oz", Role: RoleOperator}}
		for i := range people {
			people[i].Token = people[i].Name + "-" + rand.Text()
		}
		if raw, err = json.MarshalIndent(people, "", "\t"); err != nil {
			return nil, err
		}
		return people, os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return nil, err
	}
	var people People
	if err := json.Unmarshal(raw, &people); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return people, nil
}

// Named returns the person of that name.
func (p People) Named(name string) Person {
	i := slices.IndexFunc(p, func(q Person) bool { return q.Name == name })
	if i < 0 {
		return Person{Name: name}
	}
	return p[i]
}

// verify is an auth.TokenVerifier.
func (p People) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	for _, q := range p {
		if subtle.ConstantTimeCompare([]byte(q.Token), []byte(token)) == 1 {
			id := q.identity()
			return &auth.TokenInfo{
				UserID: id.Subject, Expiration: time.Now().Add(time.Hour),
				Extra: map[string]any{"iss": id.Issuer, "tenant": id.Tenant, "client_id": id.Client, "roles": id.Roles},
			}, nil
		}
	}
	return nil, auth.ErrInvalidToken
}

// identity is the person as the desk's approvals know them; verify says the
// same of who sends an MCP request.
func (q Person) identity() tallystick.Identity {
	return tallystick.Identity{Issuer: "desk", Tenant: "shop", Subject: q.Name, Client: "demo", Roles: []string{q.Role}}
}

// authorize is Options.Authorize. What a stored call may do depends on the
// role that its owner has now.
func (p People) authorize(_ context.Context, a tallystick.Access) error {
	if a.Name != toolPayout || a.Verb != tallystick.Begin && a.Verb != tallystick.Resume && a.Verb != tallystick.Act {
		return nil
	}
	if role := p.Named(a.By.Subject).Role; role != RoleFinance {
		return fmt.Errorf("%s has the role %q; payouts are for %s", a.By.Subject, role, RoleFinance)
	}
	return nil
}
