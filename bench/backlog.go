package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
)

const (
	// fewMessages is the backlog that the large one is compared with.
	fewMessages = 10_000
	// churn is how many messages are sent and received to measure a rate. The backlog
	// stays as large as before.
	churn        = 1_000
	churnCallers = 64
	// churnsPerRound makes a round longer. Short churns follow each other closely, so
	// that a slow spell of the disk hits both backlogs.
	churnsPerRound = 25
)

// The targets for a backlog.
const (
	mostHeapPerMessage = 1.0       // bytes
	mostResident       = 256 << 20 // more than before; what the store says it needs in any case
	leastShare         = 0.8       // of the rates with few messages
	longestOpening     = 5 * time.Second
)

// A backlog is a store with waiting messages.
type backlog struct {
	path     string
	messages int
	backend  *diskbox.Backend
	queue    driver.Queue

	half, full footprint // with half of the messages, and with all
	filled     time.Duration
	opened     time.Duration
	reopened   footprint
	sends      []pace
	takes      []pace
}

// backlogs compares a large backlog with a small one: memory, opening, rates.
func (r *report) backlogs() (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	few := &backlog{path: filepath.Join(dir, "few"), messages: fewMessages}
	many := &backlog{path: filepath.Join(dir, "many"), messages: r.backlog}
	before := held()
	for _, b := range []*backlog{few, many} { // one at a time, for the memory
		if err := b.prepare(); err != nil {
			return err
		}
	}
	for _, b := range []*backlog{few, many} {
		if err := b.open(); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, b.backend.Close()) }()
	}
	settle()
	for turn := range churnsPerRound * (1 + r.rounds) {
		for _, b := range []*backlog{few, many} {
			if err := b.measure(turn >= churnsPerRound); err != nil { // the first round warms up
				return err
			}
		}
	}
	showBacklogs(before, few, many)
	return nil
}

// prepare fills the store, reopens it, and records the memory at each step. It leaves
// the store closed.
func (b *backlog) prepare() error {
	if err := b.open(); err != nil {
		return err
	}
	start := time.Now()
	if err := b.fill(b.messages / 2); err != nil {
		return err
	}
	b.filled = time.Since(start)
	settle()
	b.half = held()
	start = time.Now()
	if err := b.fill(b.messages - b.messages/2); err != nil {
		return err
	}
	b.filled += time.Since(start)
	settle()
	b.full = held()
	if err := b.backend.Close(); err != nil {
		return err
	}
	start = time.Now()
	if err := b.open(); err != nil {
		return err
	}
	b.opened = time.Since(start)
	b.reopened = held()
	stats, err := b.queue.Stats(context.Background())
	if err == nil && stats.Ready != b.messages {
		err = fmt.Errorf("%d of %d messages are there after opening", stats.Ready, b.messages)
	}
	return errors.Join(err, b.backend.Close())
}

func (b *backlog) open() (err error) {
	b.backend, b.queue, err = openDiskbox(b.path)
	return err
}

// fill sends n messages in large batches. The bodies are random, because a store can
// compress zeros.
func (b *backlog) fill(n int) error {
	const callers, batch = 8, 200
	ctx := context.Background()
	left := atomic.Int64{}
	left.Store(int64(n))
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			noise := rand.NewChaCha8([32]byte{byte(i)})
			out := outgoing(batch)
			for errs[i] == nil {
				after := left.Add(-batch)
				if after <= -batch {
					return
				}
				part := out[:min(batch, batch+after)]
				for _, message := range part {
					_, _ = noise.Read(message.Body) // never fails
				}
				_, errs[i] = b.queue.Send(ctx, part)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// measure sends messages one by one, receives and acks as many, and records the rate.
func (b *backlog) measure(counts bool) error {
	send, err := b.churn(sendCaller)
	if err != nil {
		return err
	}
	take, err := b.churn(takeCaller)
	if err != nil {
		return err
	}
	if counts {
		b.sends, b.takes = append(b.sends, send), append(b.takes, take)
	}
	return nil
}

// churn shares operations among callers.
func (b *backlog) churn(newCaller func(driver.Queue, int) func() error) (pace, error) {
	errs := make([]error, churnCallers)
	var next atomic.Int64
	var wg sync.WaitGroup
	before, start := processorTime(), time.Now()
	for i := range churnCallers {
		work := newCaller(b.queue, 1)
		wg.Go(func() {
			for errs[i] == nil && next.Add(1) <= churn {
				errs[i] = work()
			}
		})
	}
	wg.Wait()
	elapsed, busy := time.Since(start), processorTime()-before
	return pace{rate: churn / elapsed.Seconds(), processor: float64(busy.Nanoseconds()) / 1e3 / churn}, errors.Join(errs...)
}

func showBacklogs(before footprint, few, many *backlog) {
	fmt.Printf("\nwaiting messages of %d bytes; rates with %d callers\n", bodyBytes, churnCallers)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tfilled/s\theap MB\tresident MB\topen ms\theap MB\tresident MB\tsend/s\tCPU µs\treceive+ack/s\tCPU µs")
	for _, b := range []*backlog{few, many} {
		fmt.Fprintf(table, "  %d\t%.0f\t%s\t%s\t%d\t%s\t%s\t%.0f\t%.1f\t%.0f\t%.1f\n", b.messages, float64(b.messages)/b.filled.Seconds(),
			megabytes(b.full.heap, before.heap), megabytes(b.full.resident, before.resident), b.opened.Milliseconds(),
			megabytes(b.reopened.heap, before.heap), megabytes(b.reopened.resident, before.resident),
			middle(b.sends, rateOf), middle(b.sends, processorOf), middle(b.takes, rateOf), middle(b.takes, processorOf))
	}
	_ = table.Flush()

	// The heap with half of the messages includes what the store always holds.
	added := float64(many.messages - many.messages/2)
	heap := (float64(many.full.heap) - float64(many.half.heap)) / added
	fmt.Printf("  a million more messages take %.1f MB of heap; promised at most %.0f: %s\n",
		heap, mostHeapPerMessage, kept(heap <= mostHeapPerMessage))
	// Memory outside the heap depends on how full the current table is; it is bounded
	// all the same.
	resident := float64(max(many.full.resident, many.reopened.resident)) - float64(before.resident)
	fmt.Printf("  %.0f MB are resident because of the store, %+.0f MB since half of them; promised at most %d: %s\n",
		resident/1e6, (float64(many.full.resident)-float64(many.half.resident))/1e6, mostResident/1_000_000, kept(resident <= mostResident))
	fmt.Printf("  opening took %v; promised at most %v: %s\n", many.opened.Round(time.Millisecond), longestOpening, kept(many.opened <= longestOpening))
	for _, of := range []struct {
		what      string
		few, many []pace
	}{
		{"sending", few.sends, many.sends},
		{"receiving and acking", few.takes, many.takes},
	} {
		share := shareOf(of.many, of.few)
		fmt.Printf("  %s goes on at %.2f× of the rate with %d; promised at least %.1f×: %s\n", of.what, share, few.messages, leastShare, kept(share >= leastShare))
	}
}

// megabytes returns how much more memory is held than before.
func megabytes(now, before uint64) string {
	return fmt.Sprintf("%.0f", (float64(now)-float64(before))/1e6)
}
