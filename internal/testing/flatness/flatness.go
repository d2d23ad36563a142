// Package flatness measures whether a receive costs the same whatever else a queue holds: many
// messages, priorities, delayed messages, groups, or groups with limits. Backends call it from
// their benchmarks:
//
//	MAILBOX_VOLUME=1000000 go test -run '^$' -bench Flatness -benchtime 200000x -count 3 ./membox ./diskbox
package flatness

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// Backend is what has the queues.
type Backend interface {
	driver.Opener
	driver.Admin
}

const (
	few       = 1000   // messages in the queue that the others are compared with
	groups    = 10_000 // at volume
	inGroup   = 3      // messages of a group
	sendBatch = 100
	bodySize  = 64
)

// A workload is what waits in a queue.
type workload struct {
	name    string
	config  driver.Config
	ready   int // messages
	delayed int
	held    int // of those ready first, how many are in flight
	levels  int // priorities
	groups  int
	sent    int
}

func workloads(many int) []workload {
	groups := min(groups, max(many/100, 100))
	limits := driver.Config{FairGroups: true, GroupLimits: "in-flight=1,rate=1000000,burst=1000000"}
	return []workload{
		{name: "plain-few", ready: few},
		{name: "plain-many", ready: many},
		{name: "priorities-many", ready: many, levels: driver.MaxPriority + 1},
		{name: "delayed-many", ready: few, delayed: many},
		{name: "plain-held", ready: inGroup * groups, held: groups / 2},
		{name: "groups", ready: inGroup * groups, held: groups / 2, groups: groups, config: driver.Config{FairGroups: true}},
		{name: "limits", ready: inGroup * groups, held: groups / 2, groups: groups, config: limits},
	}
}

// Benchmark receives a message, acks it and sends another one, on queues that hold different
// messages. It reports the processor time of a cycle, and the median time of a receive, which
// other processes hardly change. MAILBOX_VOLUME sets how many messages wait.
func Benchmark(b *testing.B, open func(testing.TB) Backend) {
	many := volume.Count(b, 20_000, 1_000_000)
	for _, w := range workloads(many) {
		b.Run(w.name, func(b *testing.B) { w.measure(b, open(b)) })
	}
}

func (w *workload) measure(b *testing.B, backend Backend) {
	ctx := b.Context()
	if err := backend.ConfigureQueue(ctx, w.name, w.config); err != nil {
		b.Fatal(err)
	}
	q, err := backend.OpenQueue(ctx, w.name)
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	w.fill(b, q)
	receipts := make([]driver.Receipt, 1)
	again := []driver.Outgoing{{Body: make([]byte, bodySize)}}
	request := driver.ReceiveRequest{Max: 1, Visibility: time.Minute}
	times := make([]time.Duration, 0, min(b.N, 1<<20))
	runtime.GC() // of what was built
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	for range b.N {
		began := time.Now()
		got, err := q.Receive(ctx, request)
		took := time.Since(began)
		if err != nil || len(got) != 1 {
			b.Fatalf("received %d messages: %v", len(got), err)
		}
		if len(times) < cap(times) {
			times = append(times, took)
		}
		receipts[0] = got[0].Receipt
		if err := q.Ack(ctx, receipts); err != nil {
			b.Fatal(err)
		}
		again[0].Group, again[0].Priority = got[0].Group, got[0].Priority
		if _, err := q.Send(ctx, again); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "receive-ns")
}

// fill sends what waits, and receives what is held: a message of each of some groups.
func (w *workload) fill(b *testing.B, q driver.Queue) {
	w.send(b, q, w.ready, 0)
	w.send(b, q, w.delayed, 24*time.Hour)
	for held := 0; held < w.held; {
		got, err := q.Receive(b.Context(), driver.ReceiveRequest{Max: min(sendBatch, w.held-held), Visibility: time.Hour})
		if err != nil || len(got) == 0 {
			b.Fatalf("received %d messages: %v", len(got), err)
		}
		held += len(got)
	}
}

// send sends messages of each group and priority in turn.
func (w *workload) send(b *testing.B, q driver.Queue, n int, delay time.Duration) {
	batch := make([]driver.Outgoing, 0, min(n, sendBatch))
	for n > 0 {
		batch = batch[:0]
		for range min(n, sendBatch) {
			out := driver.Outgoing{Body: make([]byte, bodySize), Delay: delay}
			if w.groups > 0 {
				out.Group = fmt.Sprint("group ", w.sent%w.groups)
			}
			if w.levels > 0 {
				out.Priority = w.sent % w.levels
			}
			w.sent++
			batch = append(batch, out)
		}
		if _, err := q.Send(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		n -= len(batch)
	}
}

// processorTime returns what the process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
