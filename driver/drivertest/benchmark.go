package drivertest

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// benchmarkBody is the size of the messages that Benchmark moves.
const benchmarkBody = 256

// Benchmark measures a backend the same way for all: one message at a time,
// batches, and many goroutines at once. Every cycle is send, receive and ack.
func Benchmark(b *testing.B, bk Backend) {
	b.Run("cycle", func(b *testing.B) {
		q := openForBenchmark(b, bk)
		w := newCycler(q, 1)
		for b.Loop() {
			w.cycle(b)
		}
		reportMessages(b, 1)
	})
	b.Run("batch", func(b *testing.B) {
		q := openForBenchmark(b, bk)
		size := min(100, q.Traits().MaxBatch)
		w := newCycler(q, size)
		for b.Loop() {
			w.cycle(b)
		}
		reportMessages(b, size)
	})
	b.Run("parallel", func(b *testing.B) {
		q := openForBenchmark(b, bk)
		b.RunParallel(func(pb *testing.PB) {
			w := newCycler(q, 1)
			for pb.Next() {
				w.cycle(b)
			}
		})
		reportMessages(b, 1)
	})
}

// openForBenchmark opens a fresh queue that is closed when b ends.
func openForBenchmark(b *testing.B, bk Backend) driver.Queue {
	b.Helper()
	opener := bk.Open(b)
	b.Cleanup(func() {
		if opener, ok := opener.(closer); ok {
			if err := opener.Close(); err != nil {
				b.Errorf("closing the opener: %v", err)
			}
		}
	})
	q, err := opener.OpenQueue(b.Context(), queueName)
	if err != nil {
		b.Fatalf("open: %v", err)
	}
	b.ReportAllocs()
	return q
}

// A cycler moves messages through a queue. It allocates nothing per cycle, so that only
// allocations of the backend are reported.
type cycler struct {
	queue    driver.Queue
	messages []driver.Outgoing
	receipts []driver.Receipt
}

func newCycler(q driver.Queue, size int) *cycler {
	w := &cycler{queue: q, messages: make([]driver.Outgoing, size), receipts: make([]driver.Receipt, 0, size)}
	for i := range w.messages {
		w.messages[i].Body = make([]byte, benchmarkBody)
	}
	return w
}

// cycle sends the messages, then receives and acks as many. With several goroutines it may get
// messages of another; there are always enough, because every goroutine sends before it
// receives.
func (w *cycler) cycle(b *testing.B) {
	ctx := b.Context()
	if _, err := w.queue.Send(ctx, w.messages); err != nil {
		b.Errorf("send: %v", err)
		return
	}
	for left := len(w.messages); left > 0; {
		got, err := w.queue.Receive(ctx, driver.ReceiveRequest{Max: left, Visibility: time.Minute, Wait: 10 * time.Second})
		if err != nil || len(got) == 0 {
			b.Errorf("receive: %d messages are missing, error %v", left, err)
			return
		}
		w.receipts = w.receipts[:0]
		for _, d := range got {
			w.receipts = append(w.receipts, d.Receipt)
		}
		if err := w.queue.Ack(ctx, w.receipts); err != nil {
			b.Errorf("ack: %v", err)
			return
		}
		left -= len(got)
	}
}

// reportMessages adds the metrics that readers compare.
func reportMessages(b *testing.B, perCycle int) {
	b.SetBytes(int64(benchmarkBody * perCycle))
	b.ReportMetric(float64(b.N*perCycle)/b.Elapsed().Seconds(), "msg/s")
}
