package main

import (
	"fmt"
	"slices"
	"time"
)

// A contender does one kind of work for a while, and says how much it did.
type contender struct {
	name string
	work func(length time.Duration) (done int, err error)
	// cpu is what its server has used so far.
	cpu func() (time.Duration, error)
}

// A score is how a contender did, by round.
type score struct {
	perSecond []float64
	cpu       []float64 // seconds for one piece of work
}

// turns lets the contenders work in turns, round by round: what slows the
// machine down for a while slows all of them. The first round does not count.
func (b *bench) turns(contenders ...contender) ([]score, error) {
	scores := make([]score, len(contenders))
	for round := range b.size.rounds + 1 {
		for i, c := range contenders {
			before, err := c.cpu()
			if err != nil {
				return nil, err
			}
			start := time.Now()
			done, err := c.work(b.size.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			took := time.Since(start)
			after, err := c.cpu()
			if err != nil {
				return nil, err
			}
			if done == 0 {
				return nil, fmt.Errorf("%s did nothing in %v", c.name, took)
			}
			if round == 0 {
				continue
			}
			scores[i].perSecond = append(scores[i].perSecond, float64(done)/took.Seconds())
			scores[i].cpu = append(scores[i].cpu, (after-before).Seconds()/float64(done))
		}
		fmt.Fprintf(b.log, "  round %d of %d\n", round, b.size.rounds)
	}
	return scores, nil
}

// against is the median over the rounds of how much more a did than b.
func (a score) against(b score) float64 {
	ratios := make([]float64, len(a.perSecond))
	for i := range ratios {
		ratios[i] = a.perSecond[i] / b.perSecond[i]
	}
	return median(ratios)
}

func (a score) rate() string {
	return fmt.Sprintf("%.0f/s (%.0f to %.0f)", median(a.perSecond), slices.Min(a.perSecond), slices.Max(a.perSecond))
}

func (a score) each() string { return micros(median(a.cpu)) }

func micros(seconds float64) string { return fmt.Sprintf("%.0f µs", seconds*1e6) }

func median(values []float64) float64 { return quantile(values, 0.5) }

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// versus is a row of two contenders, ours first.
func versus(figure, aim string, ours, baseline score) row {
	return row{
		figure: figure, ours: ours.rate(), baseline: baseline.rate(), ratio: fmt.Sprintf("%.2f", ours.against(baseline)),
		aim: aim, cpu: ours.each() + ", baseline " + baseline.each(),
	}
}
