package tour

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

type orderArgs struct {
	OrderID string `json:"orderId"`
}

func sayYes(context.Context, string) string { return accept }

// approval is the reader's own.
func (t *tour) approval(ctx context.Context) error {
	t.begin("An approval, asked for in the middle of a tool call",
		"The tool asks before it pays. Its call ends with a question and a sealed state; the client\n"+
			"asks a person (you) and sends the same call again with the answer.")
	order := t.orders[0]
	r, err := t.ann.call(ctx, "refund", orderArgs{order.ID}, t.reader.answer)
	if err != nil {
		return err
	}
	t.first, t.said = r, r.receipt() != ""
	if t.said {
		t.check(!r.Result.IsError, "after the yes the refund is made: receipt %s", safetext.Line(r.receipt()))
		_, err = t.ledger(ctx, desk.KindRefund, order.ID, 1)
		return err
	}
	t.check(r.Result.IsError, "without a yes nothing is refunded: %s", safetext.Line(r.Result.Meta.Outcome))
	_, err = t.ledger(ctx, desk.KindRefund, order.ID, 0)
	return err
}

// sameRetry sends the bytes of the last retry once more.
func (t *tour) sameRetry(ctx context.Context) error {
	t.begin("The same retry again",
		"Clients and proxies send again what they think was lost. A round is consumed once: the same\n"+
			"again gets the recorded response.")
	again, err := t.ann.post(ctx, "tools/call", "refund", t.ann.lastCall())
	if err != nil {
		return err
	}
	t.check(bytes.Equal(again.raw, t.first.raw), "the response is the same, byte for byte")
	_, err = t.ledger(ctx, desk.KindRefund, t.orders[0].ID, lines(t.said))
	return err
}

func lines(done bool) int {
	if done {
		return 1
	}
	return 0
}

// calledAgain is a new call for the same order.
func (t *tour) calledAgain(ctx context.Context) error {
	t.begin("The model calls the tool again for the same order",
		"A new call, a new approval, even a new yes. But the refund is an effect with a subject, the\n"+
			"order, and happens once over all calls.")
	order := t.orders[0]
	if !t.said {
		t.say("You did not say yes. So that there is a refund to repeat, the demo now says yes itself.")
		if _, err := t.ann.call(ctx, "refund", orderArgs{order.ID}, sayYes); err != nil {
			return err
		}
	}
	before, err := t.shop.Tally(ctx, desk.KindRefund, order.ID)
	if err != nil {
		return err
	}
	r, err := t.ann.call(ctx, "refund", orderArgs{order.ID}, sayYes)
	if err != nil {
		return err
	}
	want := desk.ReceiptOf(before.Last, order.ID, before.Cents).Receipt
	t.check(r.receipt() == want, "the second yes gets the receipt of the first refund: %s", safetext.Line(r.receipt()))
	after, err := t.ledger(ctx, desk.KindRefund, order.ID, 1)
	if err != nil {
		return err
	}
	t.check(after == before, "not charged twice: the second call did not even ask the shop")
	return nil
}

// wrongStates tries states that were changed, moved and stolen.
func (t *tour) wrongStates(ctx context.Context) error {
	t.begin("A tampered state, and a stolen one",
		"The sealed state is the client's half of the tally. It fits only the same person, tool and\n"+
			"arguments; what does not fit is refused with one answer that tells an attacker nothing.")
	order := t.orders[1]
	r, err := t.ann.tool(ctx, "refund", orderArgs{order.ID}, "", nil)
	if err != nil {
		return err
	}
	state := r.Result.RequestState
	if state == "" {
		return errors.New("the refund did not ask")
	}
	yes := map[string]string{"approve": accept}
	var answers []string
	for _, try := range []struct {
		say   string
		as    *caller
		order string
		state string
	}{
		{"one character of the state changed:", t.ann, order.ID, tamper(state)},
		{"the state of one order for another:", t.ann, t.orders[2].ID, state},
		{"stolen, and sent with another person's token:", t.bob, order.ID, state},
	} {
		t.say("%s", try.say)
		r, err := try.as.tool(ctx, "refund", orderArgs{try.order}, try.state, yes)
		if err != nil {
			return err
		}
		t.check(r.Error != nil && r.Error.Data.Reason == "invalid_request_state", "refused")
		answers = append(answers, r.String())
	}
	t.check(answers[0] == answers[1] && answers[1] == answers[2], "all three refusals read the same; why each was made is in the server's log")
	if _, err := t.ledger(ctx, desk.KindRefund, order.ID, 0); err != nil {
		return err
	}
	t.say("and as it was given out, to whom it was given out:")
	if r, err = t.ann.tool(ctx, "refund", orderArgs{order.ID}, state, yes); err != nil {
		return err
	}
	t.check(r.receipt() != "", "the refusals have used nothing up")
	_, err = t.ledger(ctx, desk.KindRefund, order.ID, 1)
	return err
}

// tamper changes one character in the middle.
func tamper(state string) string {
	b := []byte(state)
	i := len(b) / 2
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

// orderChanged changes the order while the question is out.
func (t *tour) orderChanged(ctx context.Context) error {
	t.begin("The order changes under the approver",
		"A yes counts for exactly what was asked. While ann reads the question, the shop changes the\n"+
			"sum; her yes to the old sum is void, and the new one is asked about under a new key.")
	order := t.orders[2]
	asked := 0
	last := accept
	r, err := t.ann.call(ctx, "refund", orderArgs{order.ID}, func(ctx context.Context, message string) string {
		if asked++; asked > 1 {
			last = t.reader.answer(ctx, message)
			return last
		}
		if err := t.shop.Reprice(ctx, order.ID, order.Cents+650); err != nil {
			t.check(false, "the shop could not change the order: %v", err)
		}
		t.say("(the shop changes %s from %s to %s; ann, who does not know, says yes)", order.ID, order.Total(), desk.Euros(order.Cents+650))
		return accept
	})
	if err != nil {
		return err
	}
	body := t.ann.lastCall()
	t.check(asked == 2 && strings.Contains(string(body), `"approve~2"`), "asked again, as approve~2; the yes to %s counted for nothing", order.Total())
	got, err := t.ledger(ctx, desk.KindRefund, order.ID, lines(last == accept))
	if err != nil {
		return err
	}
	if last == accept {
		t.check(got.Cents == order.Cents+650 && r.receipt() != "", "what was refunded is what the second yes was about")
	}
	return nil
}

// secondPerson has somebody else approve, beside MCP.
func (t *tour) secondPerson(ctx context.Context) error {
	t.begin("A second person's approval",
		"A large refund needs somebody of finance who is not the requester. The call does not wait for\n"+
			"them: it says that it is pending, and goes on by itself when they have decided on the desk's page.")
	order := t.orders[3]
	r, err := t.ann.tool(ctx, "refund", orderArgs{order.ID}, "", nil)
	if err != nil {
		return err
	}
	call := r.Result.Meta.Call
	t.check(r.Result.Meta.Outcome == "pending" && call != "", "pending, and no question to the requester's client")
	status, err := t.ann.decide(ctx, desk.Verdict{CallID: call, Key: "approve", Accept: true})
	if err != nil {
		return err
	}
	t.check(status == http.StatusNotFound, "ann cannot approve her own: %d, as if there were no such thing", status)
	item, err := t.fay.waiting(ctx, call)
	if err != nil {
		return err
	}
	t.check(item.Message != "", "fay (finance) sees the whole of it: %s, asked by %s, %s", safetext.Line(item.Message), safetext.Line(item.Requester), safetext.Line(string(item.Arguments)))
	if _, err := t.ledger(ctx, desk.KindRefund, order.ID, 0); err != nil {
		return err
	}
	status, err = t.fay.decide(ctx, desk.Verdict{CallID: call, Key: item.Key, Digest: item.Digest, Accept: true})
	if err != nil {
		return err
	}
	t.check(status == http.StatusOK, "her yes is recorded, and the refund goes on by itself")
	if err := t.untilLedger(ctx, desk.KindRefund, order.ID, 1); err != nil {
		return err
	}
	if r, err = t.settled(ctx, t.ann, call); err != nil {
		return err
	}
	t.check(r.receipt() != "", "ann's follow-up gets the result")
	_, err = t.ledger(ctx, desk.KindRefund, order.ID, 1)
	return err
}

// settled asks call_status until the call is no longer pending.
func (t *tour) settled(ctx context.Context, c *caller, call string) (reply, error) {
	for range 200 {
		c.mute.Store(true)
		r, err := c.tool(ctx, "call_status", map[string]string{"callId": call}, "", nil)
		c.mute.Store(false)
		if err != nil || r.Result.Meta.Outcome != "pending" {
			t.sent(c.who.Name, "tools/call call_status "+safetext.Line(shortID(call)))
			t.received(r.String())
			return r, err
		}
		if err := rest(ctx, pollEvery); err != nil {
			return r, err
		}
	}
	return reply{}, errors.New("the call stayed pending")
}

// waiting finds what waits for the client's person, of one call.
func (c *caller) waiting(ctx context.Context, call string) (desk.Item, error) {
	c.p.sent(c.who.Name, "GET /waiting")
	var items []desk.Item
	if _, err := c.desk(ctx, http.MethodGet, "/waiting", nil, &items); err != nil {
		return desk.Item{}, err
	}
	for _, item := range items {
		if item.CallID == call {
			return item, nil
		}
	}
	return desk.Item{}, nil
}

func (c *caller) decide(ctx context.Context, v desk.Verdict) (int, error) {
	what := "approve " + shortID(v.CallID)
	if v.Effect != "" {
		what = v.Effect + " of " + v.Subject + " has happened"
	}
	c.p.sent(c.who.Name, "POST /decide "+safetext.Line(what))
	status, err := c.desk(ctx, http.MethodPost, "/decide", v, nil)
	if err == nil {
		c.p.received(http.StatusText(status))
	}
	return status, err
}
