package broker_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// BenchmarkBroker sends, receives and acks messages of 256 bytes over memory, in
// batches; figures are for one message. The memory backend alone is measured too.
func BenchmarkBroker(b *testing.B) {
	for _, size := range []int{1, 32} {
		b.Run(map[int]string{1: "one by one", 32: "batches of 32"}[size], func(b *testing.B) {
			backend := membox.New(nil)
			defer backend.Close()
			bench := newBench(b, backend, broker.Limits{})
			c := bench.as("")
			ctx := b.Context()
			messages := make([]broker.Outgoing, size)
			for i := range messages {
				messages[i].Body = make([]byte, 256)
			}
			receipts := make([]string, size)
			b.ReportAllocs()
			for n := 0; b.Loop(); n += size {
				if n%size != 0 {
					continue
				}
				if _, err := c.Send(ctx, "bench", messages); err != nil {
					b.Fatal(err)
				}
				got, err := c.Receive(ctx, "bench", driver.ReceiveRequest{Max: size, Visibility: time.Minute})
				if err != nil || len(got) != size {
					b.Fatal(len(got), err)
				}
				for i := range got {
					receipts[i] = got[i].Receipt
				}
				if err := c.Ack(ctx, "bench", receipts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/msg")
		})
	}
}
