package membox_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/flatness"
	"github.com/mailboxmq/mailbox/membox"
)

func BenchmarkCycle(b *testing.B) {
	ctx := b.Context()
	q, err := membox.New(nil).OpenQueue(ctx, "bench")
	if err != nil {
		b.Fatal(err)
	}
	out := []driver.Outgoing{{Body: make([]byte, 256)}}
	receipts := make([]driver.Receipt, 1)
	request := driver.ReceiveRequest{Max: 1, Visibility: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Send(ctx, out); err != nil {
			b.Fatal(err)
		}
		got, err := q.Receive(ctx, request)
		if err != nil || len(got) != 1 {
			b.Fatal(got, err)
		}
		receipts[0] = got[0].Receipt
		if err := q.Ack(ctx, receipts); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFlatness(b *testing.B) {
	flatness.Benchmark(b, func(b testing.TB) flatness.Backend {
		backend := membox.New(nil)
		b.Cleanup(func() { _ = backend.Close() })
		return backend
	})
}
