package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/record"
)

// call calls a tool with an idempotency key, so that the same again is the same
// call.
func (w *World) call(who, tool, order string) reply {
	w.T.Helper()
	return w.send(who, "tools/call", tool, map[string]any{
		"arguments": map[string]any{"order": order}, "key": strings.Join([]string{who, tool, order}, "/"),
	})
}

// Actions of answers.
const (
	accept  = "accept"
	decline = "decline"
	dismiss = "cancel"
)

// answer says the same to all that is asked: in a retry, or of a task in an
// update.
func (r reply) answer(action string) reply {
	r.w.T.Helper()
	given := map[string]any{}
	asked, _ := r.Result["inputRequests"].(map[string]any)
	if len(asked) == 0 {
		if !r.w.Faithful {
			return r // it has failed before
		}
		r.fatal("it asks nothing")
	}
	for key := range asked {
		if given[key] = map[string]any{"action": action}; action == accept {
			given[key] = map[string]any{"action": action, "content": map[string]any{"confirm": true}}
		}
	}
	if id := r.task(); id != "" {
		if ack := r.w.send(r.who, "tasks/update", id, map[string]any{"inputResponses": given}); ack.Code != 0 {
			ack.fatal("it is not acknowledged")
		}
		return r.poll()
	}
	params := maps.Clone(r.params)
	params["requestState"], params["inputResponses"] = r.Result["requestState"], given
	return r.w.send(r.who, r.method, r.name, params)
}

// again sends the same request once more, as somebody.
func (r reply) again(who string) reply {
	r.w.T.Helper()
	return r.w.send(who, r.method, r.name, r.params)
}

func (r reply) task() string { id, _ := r.Result["taskId"].(string); return id }

func (r reply) meta(key string) string {
	meta, _ := r.Result["_meta"].(map[string]any)
	s, _ := meta[key].(string)
	return s
}

// id is the call's, where the reply names it.
func (r reply) id() string {
	if id := r.task(); id != "" {
		return id
	}
	return r.meta("tallystick/call")
}

// status is what has become of the call, in one word.
func (r reply) status() string {
	s, _ := r.Result["status"].(string)
	outcome := r.meta("tallystick/outcome")
	switch {
	case r.Code != 0:
		return "error"
	case r.task() != "":
		if inner, ok := r.Result["result"].(map[string]any); ok && inner["isError"] == true {
			return "tool_error"
		}
		return s
	case r.Result["resultType"] == "input_required":
		return "input_required"
	case outcome != "":
		return outcome
	case r.Result["isError"] == true:
		return "tool_error"
	}
	return "completed"
}

// poll asks what has become of it.
func (r reply) poll() reply {
	r.w.T.Helper()
	switch id := r.id(); {
	case r.task() != "":
		return r.w.send(r.who, "tasks/get", id, nil)
	case id != "":
		return r.w.send(r.who, "tools/call", "call_status", map[string]any{"arguments": map[string]any{"callId": id}})
	}
	r.fatal("it names no call")
	return r
}

// patience is how long, in the bubble, something may take that is to happen by
// itself.
const patience = 30 * time.Minute

// until waits for something, while a process serves.
func (w *World) until(what string, done func() bool) {
	w.T.Helper()
	wait := 100 * time.Millisecond
	for limit := time.Now().Add(patience); ; wait = min(2*wait, 5*time.Second) {
		w.alive()
		if done() {
			return
		}
		if time.Now().After(limit) {
			w.T.Fatalf("in vain until %s\n%s", what, w.trail())
		}
		time.Sleep(wait)
	}
}

// await waits for the status. What is held meanwhile, a person resolves who
// looks at the far side.
func (r reply) await(want string) reply {
	r.w.T.Helper()
	r.w.until(want, func() bool {
		switch r.status() {
		case want:
			return true
		case "pending", "working", "held":
			if r.w.resolve(r.id()) {
				return false
			}
		case "input_required":
			if r.task() == "" {
				return true
			}
		case "completed", "error", "failed", "cancelled", "tool_error", "declined", "expired", "dismissed", "already_done":
			return true
		}
		r = r.poll()
		return r.status() == want
	})
	return r
}

// resolve says of a held effect of the call whether it happened, and reports
// whether there was one.
func (w *World) resolve(id string) bool {
	w.T.Helper()
	return w.resolveAs(id, result("found"))
}

// resolveAs is resolve with a result, which the handler may not be able to use.
func (w *World) resolveAs(id string, found json.RawMessage) bool {
	w.T.Helper()
	c := w.stored(id)
	if c == nil || c.HeldEffect() == nil {
		return false
	}
	f := c.HeldEffect()
	d := tallystick.Decision{CallID: c.ID, Effect: f.Name, Subject: f.Subject, Happened: w.far.keyed(f.Key)}
	if d.Happened {
		d.Result = found
	}
	if err := w.decide("ops", d); err != nil && !isNot(err) && !errors.Is(err, tallystick.ErrBadAnswer) {
		w.T.Fatalf("resolving %s: %v\n%s", f.Name, err, w.trail())
	}
	return true
}

// ends waits for an end, checks that it is that one, and keeps it: it must stay
// what it is. Where writes fail without a crash, a call may fail instead.
func (r reply) ends(want string) reply {
	r.w.T.Helper()
	r = r.await(want)
	if got := r.status(); got != want {
		if r.w.Faithful || got != "tool_error" && got != "error" && got != "failed" {
			r.fatal("it ends as " + got + " and not as " + want)
		}
	}
	if r.status() != "error" {
		r.w.ends = append(r.w.ends, end{r, r.sum()})
	}
	return r
}

// An end is one that a client was told of.
type end struct {
	reply
	sum string
}

// sum is what an end says, but for what differs each time.
func (r reply) sum() string {
	body := r.Result
	if inner, ok := r.Result["result"].(map[string]any); ok {
		body = inner
	}
	return fmt.Sprint(r.status(), " ", body["isError"], " ", body["content"])
}

// did fails unless an order was done so often: at most so often, where calls
// may fail.
func (w *World) did(order string, want int) {
	w.T.Helper()
	if n := w.far.did(order); n > want || w.Faithful && n != want {
		w.T.Fatalf("%s was done %d times, not %d\n%s", order, n, want, w.trail())
	}
}

func (r reply) fatal(what string) {
	r.w.T.Helper()
	r.w.T.Fatalf("%s %s %v: %s\n%s\n%s", r.method, r.name, r.params["arguments"], what, r.raw, r.w.trail())
}

// trail is the audit trail as text.
func (w *World) trail() string {
	var s strings.Builder
	for _, wr := range w.Tap.Writes() {
		c := wr.Change
		if wr.Lease != nil {
			continue
		}
		fmt.Fprintf(&s, "%.6s from version %d:", c.ID, c.Version)
		for _, e := range c.Audit {
			fmt.Fprintf(&s, " %s (%s%s%s%s) by %s;", e.Event, e.Key, e.Note, e.Reason, e.Outcome, e.By.Channel)
		}
		if c.After != nil {
			fmt.Fprintf(&s, " now %s", c.After.State)
		}
		fmt.Fprintf(&s, " %v\n", wr.Err)
	}
	return s.String()
}

// stored is a call as it is in the store, or nil.
func (w *World) stored(id string) *record.Call {
	c, err := w.durable().Load(w.T.Context(), id)
	if err != nil {
		return nil
	}
	return c
}
