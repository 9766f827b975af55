//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report prints the table.
func (k *keeper) report() {
	row := func(what string, n any, more ...string) {
		fmt.Fprintln(k.out, strings.TrimRight(fmt.Sprintf("%-16s %8v  %s", what, n, strings.Join(more, ", ")), " "))
	}
	all, by := 0, []string{}
	for _, m := range moments {
		all += k.kills[m.moment]
		by = append(by, fmt.Sprintf("%d %s", k.kills[m.moment], m.moment))
	}
	t := k.tally
	fmt.Fprintln(k.out)
	row("kills", all, by...)
	row("stops", k.stops, "SIGSTOP for longer than a lease, then SIGCONT")
	row("drains", k.drains, "SIGTERM")
	if n := len(k.restarts); n > 0 {
		slices.Sort(k.restarts)
		row("restarts", n-1, fmt.Sprintf("until it serves: p50 %v, max %v", k.restarts[n/2].Round(time.Millisecond), k.restarts[n-1].Round(time.Millisecond)), fmt.Sprintf("at most %d tries", k.most))
	}
	outcomes := map[string]int{}
	for _, tool := range t.Tools {
		for outcome, n := range tool {
			outcomes[outcome] += n
		}
	}
	var words []string
	for _, o := range []string{"completed", "failed", "expired", "cancelled"} {
		words = append(words, fmt.Sprintf("%d %s", outcomes["ended "+o], o))
	}
	row("calls", t.Calls, append(words, fmt.Sprintf("%d waiting", outcomes["waiting"]))...)
	row("tasks", t.Tasks, fmt.Sprintf("%d ends told and told again", t.Ends))
	row("runs", t.Events["taken"], fmt.Sprintf("%d died with their server", t.Events["stopped died"]), fmt.Sprintf("%d were handed back", t.Events["stopped handback"]), fmt.Sprintf("%d left by their client", t.Events["stopped left"]))
	row("effects", t.Charges, fmt.Sprintf("in %d attempts", t.Attempts), fmt.Sprintf("%d came too late and were refused", t.Late))
	var acks []string
	total := 0
	for _, how := range []string{"round", "update", "decide", "resolve", "cancel"} {
		acks = append(acks, fmt.Sprintf("%d %s", t.Acks[how], how))
		total += t.Acks[how]
	}
	row("held effects", t.Events["effect held"], fmt.Sprintf("%d resolved", t.Events["effect resolved"]), fmt.Sprintf("%d times evidence of runs that woke too late", t.Events["evidence"]))
	row("questions", t.Events["asked"], fmt.Sprintf("%d answers", t.Answers), fmt.Sprintf("%d expired", t.Events["question expired"]), fmt.Sprintf("%d void", t.Events["voided"]))
	row("acknowledged", total, acks...)
	row("round results", t.Finals, "and results of idempotency keys, compared each time")
	row("audit entries", t.Entries)
	row("time", k.took.Round(time.Second))
	row("findings", len(k.crowd.Wrong()))
}
