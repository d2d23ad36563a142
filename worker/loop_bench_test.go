package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// benchmarkMessages is how many messages one round takes.
const benchmarkMessages = 20_000

// BenchmarkLoop measures what a loop costs: messages per second, and allocations
// per message, through a handler that does nothing, beside a goroutine for each
// handler that receives and acks one message at a time, with a Mailbox, which is
// the bare cycle that a program would write, and with nothing but the driver. The
// three take turns, so that a machine that is busy with something else is equally
// busy for all of them.
func BenchmarkLoop(b *testing.B) {
	for _, concurrency := range []int{1, 8, 64} {
		for _, prefetch := range []int{0, 128} {
			b.Run(fmt.Sprintf("concurrency=%d/prefetch=%d", concurrency, prefetch), func(b *testing.B) {
				var byDriver, byMailbox, byLoop cost
				for b.Loop() {
					byDriver.add(b, func(orders *mailbox.Mailbox[[]byte]) { drainByDriver(b, orders.Queue(), concurrency) })
					byMailbox.add(b, func(orders *mailbox.Mailbox[[]byte]) { drainByMailbox(b, orders, concurrency) })
					byLoop.add(b, func(orders *mailbox.Mailbox[[]byte]) { drainByLoop(b, orders, concurrency, prefetch) })
				}
				byDriver.report(b, "driver")
				byMailbox.report(b, "mailbox")
				byLoop.report(b, "loop")
				b.ReportMetric(100*byDriver.time.Seconds()/byLoop.time.Seconds(), "%driver")
				b.ReportMetric(100*byMailbox.time.Seconds()/byLoop.time.Seconds(), "%mailbox")
				b.ReportMetric(0, "ns/op") // of a round, which says nothing
			})
		}
	}
}

// cost is what it took to empty mailboxes.
type cost struct {
	time   time.Duration
	allocs uint64
}

// add measures one more round.
func (c *cost) add(b *testing.B, empty func(*mailbox.Mailbox[[]byte])) {
	b.Helper()
	orders, err := mailbox.Open(b.Context(), membox.New(nil), "orders", &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	if err != nil {
		b.Fatal(err)
	}
	defer orders.Close()
	bodies := make([][]byte, benchmarkMessages)
	for i := range bodies {
		bodies[i] = make([]byte, 64)
	}
	if _, err := orders.SendAll(b.Context(), bodies); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	empty(orders)
	c.time += time.Since(began)
	runtime.ReadMemStats(&after)
	c.allocs += after.Mallocs - before.Mallocs
	if stats, err := orders.Stats(b.Context()); err != nil || stats != (mailbox.Stats{}) {
		b.Fatalf("left are %+v, %v", stats, err)
	}
}

func (c *cost) report(b *testing.B, name string) {
	messages := float64(b.N * benchmarkMessages)
	b.ReportMetric(messages/c.time.Seconds(), name+"-msg/s")
	b.ReportMetric(float64(c.allocs)/messages, name+"-allocs/msg")
}

func drainByDriver(b *testing.B, queue driver.Queue, concurrency int) {
	var receivers sync.WaitGroup
	for range concurrency {
		receivers.Go(func() {
			receipts := make([]driver.Receipt, 1)
			request := driver.ReceiveRequest{Max: 1, Visibility: worker.DefaultVisibility}
			for {
				got, err := queue.Receive(b.Context(), request)
				if err != nil || len(got) == 0 {
					return
				}
				receipts[0] = got[0].Receipt
				if err := queue.Ack(b.Context(), receipts); err != nil {
					b.Error(err)
				}
			}
		})
	}
	receivers.Wait()
}

func drainByMailbox(b *testing.B, orders *mailbox.Mailbox[[]byte], concurrency int) {
	var receivers sync.WaitGroup
	for range concurrency {
		receivers.Go(func() {
			for {
				got, err := orders.Receive(b.Context())
				if err != nil || len(got) == 0 {
					return
				}
				if err := got[0].Ack(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	receivers.Wait()
}

func drainByLoop(b *testing.B, orders *mailbox.Mailbox[[]byte], concurrency, prefetch int) {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var handled atomic.Int64
	loop := worker.New(orders, func(context.Context, *mailbox.Message[[]byte]) error {
		if handled.Add(1) == benchmarkMessages {
			stop()
		}
		return nil
	}, &worker.Options[[]byte]{Concurrency: concurrency, Prefetch: prefetch})
	if err := loop.Run(ctx); err != nil {
		b.Error(err)
	}
}
