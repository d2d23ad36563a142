package rpcapi_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
)

// BenchmarkRoundTrip sends messages of 256 bytes, receives and acks them through
// gRPC over loopback: 8 producers and 8 consumers, each confirmed. An operation is
// one message.
func BenchmarkRoundTrip(b *testing.B) {
	for _, test := range []struct {
		name  string
		batch int
	}{{"one at a time", 1}, {"batches of 32", 32}} {
		b.Run(test.name, func(b *testing.B) {
			backend := membox.New(nil)
			if err := backend.ConfigureQueue(b.Context(), "orders", driver.Config{}); err != nil {
				b.Fatal(err)
			}
			d := newDaemonOnLoopback(b, backend, keyring.New(keyring.NewKey()))
			rpc := d.rpc(d.mint(b, ""), connect.WithGRPC())
			message := &mailboxv1.Outgoing{Payload: make([]byte, 256)}
			var toSend, acked atomic.Int64
			toSend.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for {
						left := toSend.Add(-int64(test.batch)) + int64(test.batch)
						if left <= 0 {
							return
						}
						r := &mailboxv1.SendRequest{Topic: "orders", Keyless: true}
						for range min(left, int64(test.batch)) {
							r.Messages = append(r.Messages, message)
						}
						if _, err := rpc.Send(b.Context(), r); err != nil {
							b.Error(err)
							return
						}
					}
				})
				all.Go(func() {
					for acked.Load() < int64(b.N) {
						got, err := rpc.Recv(b.Context(), &mailboxv1.RecvRequest{Topic: "orders", MaxMessages: proto.Int32(int32(test.batch)), VisibilityMs: proto.Float64(60_000), WaitMs: 50})
						if err != nil {
							b.Error(err)
							return
						}
						r := &mailboxv1.AckRequest{Topic: "orders"}
						for _, m := range got.GetMessages() {
							r.Deliveries = append(r.Deliveries, &mailboxv1.DeliveryRef{Receipt: m.GetReceipt()})
						}
						if len(r.GetDeliveries()) == 0 {
							continue
						}
						if _, err := rpc.Ack(b.Context(), r); err != nil {
							b.Error(err)
							return
						}
						acked.Add(int64(len(r.GetDeliveries())))
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
