package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// A promise is how many times longer than the yardstick a load may take, at the median
// and at the 99th percentile.
type promise struct{ middle, slow float64 }

// latencies runs each load with one caller, in turns, and prints the median and the 99th
// percentile beside those of the yardstick, the first load, and the load's promise.
func (r *report) latencies(title string, loads []load, promises map[string]promise) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	callers := make([]func() error, len(loads))
	for i, l := range loads {
		target, err := l.open(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		defer func() { err = cmp.Or(err, target.close()) }()
		callers[i] = target.newCaller()
	}
	took := make([][]time.Duration, len(loads))
	for cut := range 1 + cuts*r.rounds {
		for i := range loads {
			for until := time.Now().Add(r.each / cuts); time.Now().Before(until); {
				start := time.Now()
				if err := callers[i](); err != nil {
					return fmt.Errorf("%s: %w", loads[i].name, err)
				}
				if cut > 0 { // the first is to warm up
					took[i] = append(took[i], time.Since(start))
				}
			}
		}
	}
	fmt.Printf("\n%s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tp50\tp99\tof "+loads[0].name+"\tpromise")
	for i, l := range loads {
		slices.Sort(took[i])
		middle, slow := of(took[i], took[0], 50), of(took[i], took[0], 99)
		verdict := ""
		if p, ok := promises[l.name]; ok {
			verdict = fmt.Sprintf("at most %.0f× and %.0f×: %s", p.middle, p.slow, kept(middle <= p.middle && slow <= p.slow))
		}
		fmt.Fprintf(table, "  %s\t%v\t%v\t%.2f× and %.2f×\t%s\n", l.name, percentile(took[i], 50), percentile(took[i], 99), middle, slow, verdict)
	}
	return table.Flush()
}

func percentile(sorted []time.Duration, p int) time.Duration { return sorted[(len(sorted)-1)*p/100] }

// of returns how many times longer ours takes than theirs.
func of(ours, theirs []time.Duration, p int) float64 {
	return float64(percentile(ours, p)) / float64(percentile(theirs, p))
}
