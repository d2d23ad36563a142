package mailbox_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// The benchmarks run the life of a message on the memory backend: first
// through the driver alone, and then through a Mailbox. The difference is what
// the typed layer costs.

func BenchmarkCycle(b *testing.B) {
	body := make([]byte, 256)
	b.Run("driver", func(b *testing.B) {
		queue, err := membox.New(nil).OpenQueue(b.Context(), "orders")
		if err != nil {
			b.Fatal(err)
		}
		ctx := b.Context()
		messages, receipts := make([]driver.Outgoing, 1), make([]driver.Receipt, 1)
		request := driver.ReceiveRequest{Max: 1, Visibility: 30 * time.Second}
		b.ReportAllocs()
		for b.Loop() {
			messages[0] = driver.Outgoing{Body: body}
			if _, err := queue.Send(ctx, messages); err != nil {
				b.Fatal(err)
			}
			deliveries, err := queue.Receive(ctx, request)
			if err != nil {
				b.Fatal(err)
			}
			receipts[0] = deliveries[0].Receipt
			if err := queue.Ack(ctx, receipts); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bytes", func(b *testing.B) { benchmarkCycle(b, mailbox.Bytes(), body) })
	b.Run("string", func(b *testing.B) { benchmarkCycle(b, mailbox.String(), string(body)) })
	b.Run("json", func(b *testing.B) {
		type order struct {
			ID    int    `json:"id"`
			Item  string `json:"item"`
			Price int    `json:"price"`
		}
		benchmarkCycle(b, mailbox.JSON[order](), order{ID: 1, Item: "tea", Price: 350})
	})
}

func benchmarkCycle[T any](b *testing.B, codec mailbox.Codec[T], body T) {
	ctx := b.Context()
	orders := benchmarkMailbox(b, codec)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := orders.Send(ctx, body); err != nil {
			b.Fatal(err)
		}
		messages, err := orders.Receive(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := messages[0].Ack(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOptions measures options that are not constants.
func BenchmarkOptions(b *testing.B) {
	ctx := b.Context()
	orders := benchmarkMailbox(b, mailbox.Bytes())
	body := make([]byte, 256)
	wait, visibility, most := time.Duration(b.N)*time.Hour, time.Duration(b.N)*time.Minute, 1000+b.N
	correlation := b.Name()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := orders.Send(ctx, body, mailbox.WithCorrelationID(correlation), mailbox.WithDelay(0)); err != nil {
			b.Fatal(err)
		}
		messages, err := orders.Receive(ctx, mailbox.WithMax(most), mailbox.WithWait(wait), mailbox.WithVisibility(visibility))
		if err != nil {
			b.Fatal(err)
		}
		if err := messages[0].Ack(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	const size = 100
	ctx := b.Context()
	orders := benchmarkMailbox(b, mailbox.Bytes())
	bodies := make([][]byte, size)
	for i := range bodies {
		bodies[i] = make([]byte, 256)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := orders.SendAll(ctx, bodies); err != nil {
			b.Fatal(err)
		}
		messages, err := orders.Receive(ctx, mailbox.WithMax(size))
		if err != nil || len(messages) != size {
			b.Fatal(len(messages), err)
		}
		if err := mailbox.AckAll(ctx, messages...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/message")
}

func benchmarkMailbox[T any](b *testing.B, codec mailbox.Codec[T]) *mailbox.Mailbox[T] {
	orders, err := mailbox.Open(b.Context(), membox.New(nil), "orders", &mailbox.Options[T]{Codec: codec})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := orders.Close(); err != nil {
			b.Error(err)
		}
	})
	return orders
}
