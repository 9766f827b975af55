package tallystick_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/seal"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/memory"
)

// What nobody but its owner may hear of a call, besides its id and its account.
const (
	ownerName   = "annika-7"
	secretWords = "SECRET-WORDS"
)

// somebody is a person of the matrix: by a token over HTTP, and as who they are
// where no token is.
type somebody struct {
	token string
	id    tallystick.Identity
}

func bearer(subject, tenant, roles string) somebody {
	s := somebody{token: subject + "/" + tenant + "/" + roles + "/cli"}
	s.id = tallystick.Identity{Issuer: "test", Tenant: tenant, Subject: subject, Client: "cli"}
	if roles != "" {
		s.id.Roles = strings.Split(roles, ",")
	}
	return s
}

var matrixPeople = map[string]somebody{
	"owner":     bearer(ownerName, "acme", ""),
	"colleague": bearer("bob", "acme", ""),
	"tenant":    bearer(ownerName, "other", "finance,operator"),
	"finance":   bearer("eve", "acme", "finance"),
	"operator":  bearer("olga", "acme", "operator"),
	"nobody":    {id: tallystick.Identity{Tenant: "acme", Roles: []string{"finance", "operator"}}},
	"withdrawn": bearer(ownerName, "acme", ""), // the owner, whom Authorize lets do nothing any more
	"expired":   {token: ownerName + "/acme//cli/2020-01-01T00:00:00Z"},
}

// matrixStates are those of a call, and then what is none.
var matrixStates = []string{"ready", "running", "owner", "role", "held", "completed", "failed", "expired", "cancelled", "purged", "absent"}

// A stand is a desk whose calls all come to one state.
type stand struct {
	*desk
	kind, state string
	deny        atomic.Bool                         // the owner's permission is withdrawn
	who         atomic.Pointer[tallystick.Identity] // who sends, where no token says it
	conn        mcp.Connection                      // in memory, once there is one
	gate        chan struct{}
	n           int
}

// A subject is one call of a stand, as far as it is known to whoever got hold
// of it.
type subject struct {
	id, account, key, state string
	carried                 map[string]string // the state of each method, of calls that are carried
	args, answers           map[string]any
	mine, theirs            string // keys of the questions that its owner, and somebody of finance, may answer
}

func newStand(t *testing.T, kind, state string, keys *seal.Keyset) *stand {
	t.Helper()
	s := &stand{kind: kind, state: state, gate: make(chan struct{})}
	s.who.Store(&tallystick.Identity{})
	clk := &clock{}
	limits := tallystick.Limits{InlineWait: 10 * time.Millisecond, Lease: time.Hour, Grace: 50 * time.Millisecond}
	if state == "purged" {
		limits.Retention = time.Minute
	}
	s.desk = newDesk(t, setup{clock: clk, tools: s.tools, opts: tallystick.Options{
		Store: memory.New(memory.Options{Now: clk.Now}), Keys: keys.AEAD(), Workers: 2, Limits: limits,
		Identify: s.identify, Authorize: s.authorize,
	}})
	t.Cleanup(func() { close(s.gate) }) // before the desk is stopped
	if state == "ready" {
		for _, tenant := range []string{"third", "fourth"} { // one has not both workers
			id := s.as("blocker/"+tenant+"//cli", capsTasks).newTask("blocker")
			waitFor(t, func() bool { return s.audited(id, "taken", "") })
		}
	}
	return s
}

func (s *stand) identify(_ context.Context, extra *mcp.RequestExtra) (tallystick.Identity, error) {
	switch {
	case extra == nil || extra.Header == nil && extra.TokenInfo == nil:
		return *s.who.Load(), nil
	case extra.TokenInfo == nil:
		return tallystick.Identity{}, nil
	}
	t := extra.TokenInfo
	roles, _ := t.Extra["roles"].([]string)
	return tallystick.Identity{Issuer: "test", Tenant: t.Extra["tenant"].(string), Subject: t.UserID, Client: t.Extra["client_id"].(string), Roles: roles}, nil
}

func (s *stand) authorize(_ context.Context, a tallystick.Access) error {
	if s.deny.Load() && a.By.Subject == ownerName && a.By.Tenant == "acme" && a.Name != "call_status" {
		return errors.New("withdrawn")
	}
	return nil
}

type account struct {
	Account string `json:"account"`
}

// tools of the stand. What somebody else calls is over at once.
func (s *stand) tools(d *desk) {
	for kind, o := range map[string]*tallystick.ToolOptions{
		"task":   {Task: tallystick.TaskOptional, AskFirst: true, Deadline: 30 * time.Minute},
		"inline": {Deadline: 30 * time.Minute},
	} {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "transfer-" + kind}, o, func(ctx context.Context, call *tallystick.Call, in account) (*mcp.CallToolResult, any, error) {
			text := "own"
			if o := call.Owner(); o.Subject == ownerName && o.Tenant == "acme" && o.Client == "cli" {
				var err error
				if text, err = s.transfer(ctx, call, in); err != nil {
					return nil, nil, err
				}
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	}
	d.tool("blocker", &tallystick.ToolOptions{Task: tallystick.TaskRequired}, func(context.Context, *tallystick.Call) (string, error) {
		<-s.gate
		return "", nil
	})
	addEcho(d, "kick", tallystick.TaskRequired)
	s.carried(d)
}

func (s *stand) transfer(ctx context.Context, call *tallystick.Call, in account) (string, error) {
	ask := func(key string, who tallystick.Who) error {
		return call.Confirm(tallystick.Question{Key: key, Message: secretWords + " " + in.Account, Who: who})
	}
	finance := tallystick.Who{Roles: []string{"finance"}, NotRequester: true}
	if err := errors.Join(ask("start", tallystick.Who{}), ask("sign", finance)); err != nil {
		return "", err
	}
	call.Report("on the way", 1, 2) // a task is announced
	switch s.state {
	case "owner", "expired", "cancelled":
		if err := ask("more", tallystick.Who{}); err != nil {
			return "", err
		}
	case "role", "ready":
		if err := ask("approve", finance); err != nil {
			return "", err
		}
	case "failed":
		return "", &jsonrpc.Error{Code: 4711, Message: "the bank is closed"}
	}
	return tallystick.Once(ctx, call, tallystick.Effect{Name: "transfer", Subject: in.Account}, func(context.Context, string) (string, error) {
		switch s.state {
		case "running":
			<-s.gate
		case "held":
			return "", errors.New("no answer")
		}
		return "moved", nil
	})
}

// carried adds what asks and is kept by its client.
func (s *stand) carried(d *desk) {
	ask := func(call *tallystick.Call) error {
		return call.Confirm(tallystick.Question{Key: "start", Message: secretWords, Within: 10 * time.Minute})
	}
	tallystick.AddTool(d.srv, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, nil, func(_ context.Context, call *tallystick.Call, _ struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "moved"}}}, nil, ask(call)
	})
	tallystick.AddPrompt(d.srv, &mcp.Prompt{Name: "letter"}, func(_ context.Context, call *tallystick.Call, _ map[string]string) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "moved"}, ask(call)
	})
	tallystick.AddResource(d.srv, &mcp.Resource{Name: "book", URI: "test://book"}, func(_ context.Context, call *tallystick.Call, uri string) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "moved"}}}, ask(call)
	})
}

// carriedMethods are the methods of calls that are carried, with a name.
var carriedMethods = map[string]string{"tools/call": "look", "prompts/get": "letter", "resources/read": "test://book"}

// subject makes a call and brings it to the stand's state.
func (s *stand) subject(t *testing.T, keys *seal.Keyset) subject {
	t.Helper()
	s.n++
	c := subject{account: fmt.Sprint("account-4711-", s.n), mine: "start", theirs: "sign"}
	c.key, c.args, c.answers = "key "+c.account, map[string]any{"account": c.account}, map[string]any{"start": yes}
	if s.state == "absent" { // to whoever has it, it looks as if it were there
		elsewhere := newStand(t, s.kind, "completed", keys)
		state := elsewhere.subject(t, keys).state
		c.id, c.state = "AAAAAAAAAAAAAAAAAAAAAAAAAA", state
		if s.kind != "carried" {
			return c
		}
	}
	if s.kind == "carried" {
		return s.carry(t, c)
	}
	ann := s.as(matrixPeople["owner"].token, map[string]string{"task": capsTasks, "inline": capsForm}[s.kind])
	tool := "transfer-" + s.kind
	asked := ann.send("tools/call", tool, map[string]any{"arguments": c.args, "_meta": map[string]any{keyMember: c.key}})
	if c.state = asked.state(); c.state == "" {
		t.Fatalf("asked: %s", asked.raw)
	}
	c.id = s.decide(t, c.account, "sign")
	if s.state == "running" && s.kind == "inline" {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		go ann.try(ctx, "tools/call", tool, map[string]any{"arguments": c.args, "requestState": c.state, "inputResponses": c.answers})
		waitFor(t, func() bool { return s.audited(c.id, "effect started", "") })
		return c
	}
	r := ann.retry(tool, c.args, c.state, c.answers)
	if s.kind == "task" && r.result["taskId"] != c.id {
		t.Fatalf("no task: %s", r.raw)
	}
	s.settle(t, &c, r)
	return c
}

// settle brings a call whose first question is answered to its state.
func (s *stand) settle(t *testing.T, c *subject, r reply) {
	t.Helper()
	is := func(state record.State, outcome record.Outcome) {
		t.Helper()
		waitFor(t, func() bool {
			call, err := s.store.Load(context.Background(), c.id)
			return err == nil && call.State == state && call.Outcome == outcome
		})
		// The store knows it a moment before the run that lives on does.
		sign := map[record.State]string{record.Waiting: "waiting for an answer", record.Held: "not known", record.Ended: `"ttlMs"`}[state]
		waitFor(t, func() bool {
			if s.kind != "task" || sign == "" {
				return true
			}
			seen := s.as(matrixPeople["owner"].token, capsTasks).send("tasks/get", c.id, nil)
			return strings.Contains(seen.raw, sign) && (state != record.Ended || seen.result["status"] != "working")
		})
	}
	kick := func(d time.Duration) { // the clock of the test moves without waking anybody
		s.clock.Advance(d)
		s.as("blocker/third//cli", capsTasks).newTask("kick")
	}
	if s.state == "owner" || s.state == "expired" || s.state == "cancelled" {
		c.mine = "more"
		if s.kind == "inline" {
			if c.state = r.state(); c.state == "" {
				t.Fatalf("asked more: %s", r.raw)
			}
			c.answers = map[string]any{"more": yes}
		}
		is(record.Waiting, "")
	}
	switch s.state {
	case "ready":
		is(record.Waiting, "")
		s.decide(t, c.account, "approve")
		c.theirs = "approve"
		is(record.Ready, "")
	case "role":
		c.theirs = "approve"
		is(record.Waiting, "")
	case "running":
		waitFor(t, func() bool { return s.audited(c.id, "effect started", "") })
		is(record.Running, "")
	case "held":
		is(record.Held, "")
	case "completed":
		is(record.Ended, record.Completed)
	case "failed":
		is(record.Ended, record.Failed)
	case "expired":
		kick(31 * time.Minute)
		is(record.Ended, record.Expired)
	case "cancelled":
		s.as(matrixPeople["owner"].token, capsTasks).send("tasks/cancel", c.id, nil)
		is(record.Ended, record.Cancelled)
	case "purged":
		is(record.Ended, record.Completed)
		kick(2 * time.Minute)
		waitFor(t, func() bool {
			_, err := s.store.Load(context.Background(), c.id)
			return errors.Is(err, store.ErrNotFound)
		})
	}
}

// decide has somebody of finance say yes, and tells whose call it was.
func (s *stand) decide(t *testing.T, account, key string) (call string) {
	t.Helper()
	eve := matrixPeople["finance"].id
	var found *tallystick.Waiting
	waitFor(t, func() bool {
		all, err := s.srv.Waiting(context.Background(), eve)
		for i, w := range all {
			if err == nil && w.Key == key && strings.Contains(string(w.Arguments), `"`+account+`"`) {
				found = &all[i]
			}
		}
		return found != nil
	})
	if err := s.srv.Decide(context.Background(), eve, tallystick.Decision{CallID: found.CallID, Key: key, Digest: found.Digest, Accept: true}); err != nil {
		t.Fatal(err)
	}
	return found.CallID
}

// carry makes a call of each carried method; they differ in their states only.
func (s *stand) carry(t *testing.T, c subject) subject {
	t.Helper()
	c.account, c.args = "", nil
	states := map[string]string{}
	ann := s.as(matrixPeople["owner"].token, capsForm)
	for method, name := range carriedMethods {
		states[method] = ann.send(method, name, nil).state()
		more := map[string]any{"requestState": states[method], "inputResponses": c.answers}
		switch s.state {
		case "completed":
			if r := ann.send(method, name, more); !strings.Contains(r.raw, "moved") {
				t.Fatalf("%s: %s", method, r.raw)
			}
		case "absent":
			states[method] = states[method][:len(states[method])-8] + "AAAAAAAA"
		}
	}
	if s.state == "expired" {
		s.clock.Advance(11 * time.Minute)
	}
	c.carried, c.id = states, ""
	return c
}

const keyMember = "tallystick/idempotencyKey"
