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
		msgs := outgoing(1)
		for b.Loop() {
			cycle(b, q, msgs)
		}
		reportMessages(b, 1)
	})
	b.Run("batch", func(b *testing.B) {
		q := openForBenchmark(b, bk)
		msgs := outgoing(min(100, q.Traits().MaxBatch))
		for b.Loop() {
			cycle(b, q, msgs)
		}
		reportMessages(b, len(msgs))
	})
	b.Run("parallel", func(b *testing.B) {
		q := openForBenchmark(b, bk)
		msgs := outgoing(1)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				cycle(b, q, msgs)
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
	b.SetBytes(benchmarkBody)
	return q
}

func outgoing(n int) []driver.Outgoing {
	msgs := make([]driver.Outgoing, n)
	for i := range msgs {
		msgs[i].Body = make([]byte, benchmarkBody)
	}
	return msgs
}

// cycle sends msgs, then receives and acks as many. With several goroutines
// they may be somebody else's; there are always enough, because everybody
// sends before receiving.
func cycle(b *testing.B, q driver.Queue, msgs []driver.Outgoing) {
	ctx := b.Context()
	if _, err := q.Send(ctx, msgs); err != nil {
		b.Errorf("send: %v", err)
		return
	}
	var receipts [16]driver.Receipt
	batch := receipts[:0]
	for left := len(msgs); left > 0; {
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: left, Visibility: time.Minute, Wait: 10 * time.Second})
		if err != nil || len(got) == 0 {
			b.Errorf("receive: %d messages are missing, error %v", left, err)
			return
		}
		batch = batch[:0]
		for _, d := range got {
			batch = append(batch, d.Receipt)
		}
		if err := q.Ack(ctx, batch); err != nil {
			b.Errorf("ack: %v", err)
			return
		}
		left -= len(got)
	}
}

// reportMessages adds the number that people compare.
func reportMessages(b *testing.B, perCycle int) {
	b.ReportMetric(float64(b.N*perCycle)/b.Elapsed().Seconds(), "msg/s")
}
