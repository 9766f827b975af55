package tour

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

type exportArgs struct {
	Month string `json:"month"`
}

// A job is a call that has become a task. Its caller's client follows it.
type job struct {
	*client.Handle
	id string // of the task
}

// job calls a tool that answers with a task.
func (t *tour) job(ctx context.Context, c *caller, tool string, args any) (job, error) {
	h, err := c.driver.Start(ctx, tool, args)
	if err != nil {
		return job{}, err
	}
	j := job{Handle: h}
	err = t.until(ctx, func() bool { j.id = h.Status().Task; return j.id != "" || ended(h) })
	if err == nil && j.id == "" {
		_, err = h.Wait(ctx)
		err = errors.Join(errors.New("the call was not answered with a task"), err)
	}
	t.check(j.id != "", "a task, at once; it runs in the background")
	return j, err
}

func ended(h *client.Handle) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// end waits for the end of a job, and shows how the client learns of it.
func (t *tour) end(ctx context.Context, j job) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := j.Wait(ctx)
	if err != nil {
		t.received(safetext.Line(string(j.Status().State)))
		return reply{}, err
	}
	out, err := replyOf(r.Raw)
	if err == nil {
		t.received(string(j.Status().State) + " " + out.String())
	}
	return out, err
}

// crash kills the server process, and starts another at the same place.
func (t *tour) crash(ctx context.Context) error {
	pid := t.server.pid()
	if err := t.server.kill(); err != nil {
		return err
	}
	for _, c := range []*caller{t.ann, t.bob, t.fay, t.oz} {
		c.hangUp() // connections to the dead
	}
	t.say("%s", t.style(bold, fmt.Sprintf("⚡ the server is killed with SIGKILL (process %d)", pid)))
	if _, err := t.oz.desk(ctx, http.MethodGet, "/waiting", nil, nil); err == nil {
		t.check(false, "the server is gone")
	}
	if err := t.server.start(ctx); err != nil {
		return err
	}
	t.say("and started again (process %d). Nobody tells it what to go on with.", t.server.pid())
	return nil
}

// killedJob is a long job that outlives its server.
func (t *tour) killedJob(ctx context.Context) error {
	t.begin("A long job, and its server killed in the middle",
		"A task runs without its client. Each part it writes is an effect of its own: after the crash\n"+
			"the handler runs again from the top, passes what is done, and goes on at what is not.")
	j, err := t.job(ctx, t.ann, "export", exportArgs{"2026-07"})
	if err != nil {
		return err
	}
	if err := t.untilLedger(ctx, desk.KindPart, j.id, 3); err != nil {
		return err
	}
	if err := t.crash(ctx); err != nil {
		return err
	}
	if _, err := t.end(ctx, j); err != nil {
		return err
	}
	t.check(j.Status().State == client.Completed, "the job is finished, by another process; the client has gone on watching by itself")
	got, err := t.shop.Tally(ctx, desk.KindPart, j.id)
	if err != nil {
		return err
	}
	t.check(got.Lines == desk.ExportParts, "its effects, counted in the shop's ledger: %s of %d, each once", counted(got.Lines, "part"), desk.ExportParts)
	if again := got.Asked - got.Lines; again > 0 {
		t.say("(The shop was asked %d times: what was under way at the kill was asked for again, with the\n   same key, and so was not done again.)", got.Asked)
	}
	return nil
}

// cancelledJob stops a job for good.
func (t *tour) cancelledJob(ctx context.Context) error {
	t.begin("A job cancelled",
		"A cancel stops the work between two effects, never in the middle of one. Terminal is final.")
	j, err := t.job(ctx, t.ann, "export", exportArgs{"2026-06"})
	if err != nil {
		return err
	}
	if err := t.untilLedger(ctx, desk.KindPart, j.id, 2); err != nil {
		return err
	}
	if err := j.Cancel(ctx); err != nil {
		return err
	}
	if _, err := t.end(ctx, j); !errors.Is(err, client.ErrCancelled) {
		return errors.Join(errors.New("the job was not cancelled"), err)
	}
	t.check(j.Status().State == client.Cancelled, "cancelled")
	before, err := t.shop.Tally(ctx, desk.KindPart, j.id)
	if err != nil {
		return err
	}
	if err := rest(ctx, 700*time.Millisecond); err != nil {
		return err
	}
	after, err := t.shop.Tally(ctx, desk.KindPart, j.id)
	if err != nil {
		return err
	}
	t.check(after == before && after.Lines < desk.ExportParts, "%s of %d were written before it, none after", counted(after.Lines, "part"), desk.ExportParts)
	return nil
}

// lateAnswer says yes after the question's time.
func (t *tour) lateAnswer(ctx context.Context) error {
	t.begin("A question that expires",
		"Every question has a time limit; this one has "+desk.VoucherWithin.String()+". A yes that comes too late is not a yes, and the\n"+
			"caller is told that it was late, which is not the same as declined.")
	order := t.orders[4]
	r, err := t.ann.tool(ctx, "voucher", orderArgs{order.ID}, "", nil)
	if err != nil {
		return err
	}
	state := r.Result.RequestState
	if state == "" {
		return errors.New("the voucher did not ask")
	}
	late := desk.VoucherWithin + 300*time.Millisecond
	t.say("(%v later)", late)
	if err := rest(ctx, late); err != nil {
		return err
	}
	if r, err = t.ann.tool(ctx, "voucher", orderArgs{order.ID}, state, map[string]string{"offer": accept}); err != nil {
		return err
	}
	t.check(r.Result.Meta.Outcome == "expired", "the outcome is: expired")
	_, err = t.ledger(ctx, desk.KindVoucher, order.ID, 0)
	return err
}

// heldPayout kills the server while the bank is paying.
func (t *tour) heldPayout(ctx context.Context) error {
	t.begin("An effect of which nobody knows whether it happened",
		"The bank takes no keys: asked twice, it pays twice. The server is killed while the bank is at\n"+
			"it. Tallystick does not guess; it holds the call until an operator has looked.")
	order := t.orders[5]
	j, err := t.job(ctx, t.fay, "payout", orderArgs{order.ID})
	if err != nil {
		return err
	}
	if err := t.untilLedger(ctx, desk.KindPayout, order.ID, 1); err != nil {
		return err
	}
	if err := t.crash(ctx); err != nil {
		return err
	}
	held := func() bool { return strings.Contains(j.Status().Message, "not known") }
	if err := t.until(ctx, func() bool { return held() || ended(j.Handle) }); err != nil {
		return err
	}
	t.received(safetext.Line(string(j.Status().State)) + ": " + safetext.Short(j.Status().Message, 230))
	t.check(j.Status().State == client.Working && held(), "held: neither tried again nor called done")
	item, err := t.oz.waiting(ctx, j.id)
	if err != nil {
		return err
	}
	t.check(item.Effect == "payout", "oz (operator) sees it: %s of %s, asked by %s", safetext.Line(item.Effect), safetext.Line(item.Subject), safetext.Line(item.Requester))
	ledger, err := t.ledger(ctx, desk.KindPayout, order.ID, 1)
	if err != nil {
		return err
	}
	t.say("So it has happened. oz says so, and with which receipt:")
	receipt, err := json.Marshal(desk.ReceiptOf(ledger.Last, order.ID, ledger.Cents))
	if err != nil {
		return err
	}
	code, err := t.oz.decide(ctx, desk.Verdict{CallID: j.id, Effect: item.Effect, Subject: item.Subject, Happened: true, Result: receipt})
	if err != nil {
		return err
	}
	t.check(code == http.StatusOK, "recorded")
	r, err := t.end(ctx, j)
	if err != nil {
		return err
	}
	t.check(r.receipt() == desk.ReceiptOf(ledger.Last, "", 0).Receipt, "the call went on from there: receipt %s", safetext.Line(r.receipt()))
	_, err = t.ledger(ctx, desk.KindPayout, order.ID, 1)
	return err
}
