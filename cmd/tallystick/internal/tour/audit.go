package tour

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// trail reads the audit trail of this walk, as the operator.
func (t *tour) trail(ctx context.Context) ([]desk.AuditLine, error) {
	var all []desk.AuditLine
	for after := t.from; ; {
		var lines []desk.AuditLine
		code, err := t.oz.desk(ctx, http.MethodGet, fmt.Sprintf("/audit?after=%d", after), nil, &lines)
		if err != nil {
			return nil, err
		}
		if code != http.StatusOK {
			return nil, fmt.Errorf("reading the audit trail: status %d", code)
		}
		if len(lines) == 0 {
			return all, nil
		}
		all, after = append(all, lines...), lines[len(lines)-1].Seq
	}
}

// auditTrail shows the record of the whole walk, call by call.
func (t *tour) auditTrail(ctx context.Context) error {
	t.begin("The audit trail of it all",
		"Every change of a call, and every refusal concerning one, was put on record in the same\n"+
			"transaction: who, when, through which channel, and why. No argument, answer or token is in it.")
	code, err := t.ann.desk(ctx, http.MethodGet, "/audit", nil, nil)
	if err != nil {
		return err
	}
	t.check(code == http.StatusForbidden, "ann may not read it: %d", code)
	t.sent("oz", "GET /audit")
	trail, err := t.trail(ctx)
	if err != nil {
		return err
	}
	t.received(fmt.Sprintf("%d entries", len(trail)))
	var order []string // calls by their first entry; what concerns none, last
	calls := map[string][]desk.AuditLine{}
	for _, l := range trail {
		if _, ok := calls[l.Call]; !ok && l.Call != "" {
			order = append(order, l.Call)
		}
		calls[l.Call] = append(calls[l.Call], l)
	}
	if len(calls[""]) > 0 {
		order = append(order, "")
	}
	for _, id := range order {
		t.printCall(id, calls[id])
	}
	t.checkTrail(trail)
	return nil
}

func (t *tour) printCall(id string, entries []desk.AuditLine) {
	head := "concerning no call that is kept"
	if id != "" {
		head = fmt.Sprintf("call %s: %s %s by %s", shortID(id), entries[0].Tool, entries[0].Arguments, entries[0].Owner)
	}
	t.line("\n   %s", t.style(bold, safetext.Line(head)))
	for _, l := range fold(entries) {
		t.line("   %s", l)
	}
}

// fold renders entries. What a run does over and over, part by part, is one
// line with how often; nothing is moved past an entry of another kind.
func fold(entries []desk.AuditLine) []string {
	type group struct {
		first desk.AuditLine
		n     int
	}
	var groups []group
	stretch := 0 // where the groups begin that the next entry may join
	for _, e := range entries {
		if !repeats(e) {
			groups = append(groups, group{e, 1})
			stretch = len(groups)
			continue
		}
		i := slices.IndexFunc(groups[stretch:], func(g group) bool { return alike(g.first, e) })
		if i < 0 {
			groups = append(groups, group{e, 1})
		} else {
			groups[stretch+i].n++
		}
	}
	var out []string
	for _, g := range groups {
		s := entry(g.first)
		if g.n > 1 {
			s += fmt.Sprintf(" … and %d more like it", g.n-1)
		}
		out = append(out, s)
	}
	return out
}

// repeats reports whether an entry is of the kinds that a long job has many of.
func repeats(l desk.AuditLine) bool {
	return l.Event == "reported" || l.Event == "effect started" || l.Event == "effect ended"
}

func alike(a, b desk.AuditLine) bool {
	name := func(l desk.AuditLine) string { n, _, _ := strings.Cut(l.Effect, " "); return n }
	return a.Event == b.Event && name(a) == name(b) && a.By == b.By && a.Reason == b.Reason && a.Outcome == b.Outcome
}

// entry is one line of the trail.
func entry(l desk.AuditLine) string {
	by := l.Channel
	if l.By != "" {
		by = l.By + " (" + l.Channel + ")"
	}
	s := fmt.Sprintf("%s  %-15s %s", l.At.Local().Format("15:04:05.000"), by, l.Event)
	for _, part := range []string{cmp.Or(l.Key, l.Effect), l.Outcome, l.Reason, l.Note} {
		if part != "" {
			s += " " + part
		}
	}
	if l.Count > 1 {
		s += " " + times(l.Count)
	}
	return safetext.Line(s)
}

// checkTrail looks for what this walk must have left.
func (t *tour) checkTrail(trail []desk.AuditLine) {
	has := func(match func(desk.AuditLine) bool) bool { return slices.ContainsFunc(trail, match) }
	t.line("")
	t.check(has(func(l desk.AuditLine) bool { return l.Reason == "state_of_another_principal" && l.By == "bob" }), "it names bob, who sent ann's state")
	t.check(has(func(l desk.AuditLine) bool { return l.Channel == "decide" && l.By == "fay" && l.Key == "approve" }), "it names fay, who approved ann's large refund")
	t.check(has(func(l desk.AuditLine) bool {
		return l.Channel == "decide" && l.By == "oz" && strings.HasPrefix(l.Effect, "payout")
	}), "it names oz, who said that the payout had happened")
}
