package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// A load is an operation that many callers run on a disk at the same time.
type load struct {
	name string
	// atLeast is the target as a part of the yardstick's rate; 0 for none. The
	// yardstick is the first load.
	atLeast float64
	// open creates the target at an empty path.
	open func(path string) (*target, error)
}

// target is what callers work on.
type target struct {
	// newCaller returns the operation that one goroutine repeats.
	newCaller func() func() error
	close     func() error
}

// A pace is the rate of a load and the cost of one message.
type pace struct {
	rate          float64 // messages a second
	allocs, bytes float64
	writes        float64 // system calls that write
	processor     float64 // microseconds
}

func rateOf(p pace) float64      { return p.rate }
func processorOf(p pace) float64 { return p.processor }
func writesOf(p pace) float64    { return p.writes }

// cuts is the number of parts of a round. Slow spells of a disk last longer than such a
// part, and so hit all loads alike.
const cuts = 6

// race runs the loads in turns. Each round has new stores, so that no load pays for the
// leftovers of another. It returns the paces of each load, cut by cut.
func (r *report) race(loads []load, callers, batch int) ([][]pace, error) {
	paces := make([][]pace, len(loads))
	for range r.rounds {
		if err := r.round(loads, callers, batch, paces); err != nil {
			return nil, err
		}
	}
	return paces, nil
}

// round appends the paces of one round.
func (r *report) round(loads []load, callers, batch int, paces [][]pace) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	targets := make([]*target, len(loads))
	for i, l := range loads {
		if targets[i], err = l.open(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		defer func() { err = cmp.Or(err, targets[i].close()) }()
	}
	for cut := range 1 + cuts {
		for i, l := range loads {
			p, err := targets[i].run(callers, batch, r.each/cuts)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			if cut > 0 { // the first is to warm up
				paces[i] = append(paces[i], p)
			}
		}
	}
	return nil
}

// run runs the load with callers for a while. Each operation handles batch messages.
func (t *target) run(callers, batch int, during time.Duration) (pace, error) {
	before, start := spent(), time.Now()
	times, err := t.repeat(callers, during)
	if err != nil {
		return pace{}, err
	}
	elapsed, after := time.Since(start), spent()
	messages := float64(times * batch)
	return pace{
		rate:      messages / elapsed.Seconds(),
		allocs:    float64(after.allocs-before.allocs) / messages,
		bytes:     float64(after.bytes-before.bytes) / messages,
		writes:    float64(after.writes-before.writes) / messages,
		processor: float64((after.processor - before.processor).Nanoseconds()) / 1e3 / messages,
	}, nil
}

// repeat runs callers until the time is up, and returns the number of operations.
func (t *target) repeat(callers int, during time.Duration) (times int, err error) {
	var up atomic.Bool
	timer := time.AfterFunc(during, func() { up.Store(true) })
	defer timer.Stop()
	counts, errs := make([]int, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		work := t.newCaller()
		wg.Go(func() {
			n := 0
			for !up.Load() && errs[i] == nil {
				errs[i] = work()
				n++
			}
			counts[i] = n
		})
	}
	wg.Wait()
	for i := range callers {
		times += counts[i]
		err = cmp.Or(err, errs[i])
	}
	return times, err
}

// show prints the loads beside each other, the median of each figure. Ratios
// are medians of those between neighbours, so that a slow spell of the machine
// does not decide.
func (r *report) show(title string, loads []load, paces [][]pace) {
	fmt.Printf("\n%s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tmessages/s\tCPU µs\tallocs\tB\tmessages/write\tof "+loads[0].name+"\tpromise")
	for i, l := range loads {
		share := shareOf(paces[i], paces[0])
		promise := ""
		if l.atLeast > 0 {
			promise = fmt.Sprintf("at least %.2f× of it: %s", l.atLeast, kept(share >= l.atLeast))
		}
		fmt.Fprintf(table, "  %s\t%.0f\t%.1f\t%.1f\t%.0f\t%s\t%.2f×\t%s\n", l.name,
			middle(paces[i], rateOf), middle(paces[i], processorOf),
			middle(paces[i], func(p pace) float64 { return p.allocs }),
			middle(paces[i], func(p pace) float64 { return p.bytes }),
			perWrite(middle(paces[i], writesOf)),
			share, promise)
	}
	_ = table.Flush()
}

// shareOf returns the rate of ours as a part of theirs.
func shareOf(ours, theirs []pace) float64 {
	shares := make([]float64, len(ours))
	for i := range ours {
		shares[i] = ours[i].rate / theirs[i].rate
	}
	return median(shares)
}

// perWrite returns how many messages share a write, where writes are counted.
func perWrite(writes float64) string {
	if writes == 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f", 1/writes)
}

func middle(paces []pace, figure func(pace) float64) float64 {
	figures := make([]float64, len(paces))
	for i, p := range paces {
		figures[i] = figure(p)
	}
	return median(figures)
}

func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}
