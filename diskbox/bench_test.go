package diskbox

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/flatness"
)

// What these cost is best seen side by side with what the disk allows, which
// the module in bench does. Here are the allocations, and something to profile:
//
//	go test -run '^$' -bench 'Send/callers=512' -benchmem -cpuprofile cpu.out ./diskbox

const benchBody = 256

func BenchmarkSend(b *testing.B) {
	benchCallers(b, func(q driver.Queue, batch int) func() error {
		out := benchOutgoing(batch)
		return func() error {
			_, err := q.Send(b.Context(), out)
			return err
		}
	})
}

// BenchmarkCycle sends, receives and acks. Every client sends before it receives, so there is
// always a message for each receiver.
func BenchmarkCycle(b *testing.B) {
	benchCallers(b, func(q driver.Queue, batch int) func() error {
		out := benchOutgoing(batch)
		receipts := make([]driver.Receipt, batch)
		request := driver.ReceiveRequest{Max: batch, Visibility: time.Minute}
		return func() error {
			if _, err := q.Send(b.Context(), out); err != nil {
				return err
			}
			got, err := q.Receive(b.Context(), request)
			if err != nil || len(got) != batch {
				return fmt.Errorf("received %d of %d: %w", len(got), batch, err)
			}
			for i := range got {
				receipts[i] = got[i].Receipt
			}
			return q.Ack(b.Context(), receipts)
		}
	})
}

func benchOutgoing(n int) []driver.Outgoing {
	out := make([]driver.Outgoing, n)
	for i := range out {
		out[i].Body = make([]byte, benchBody)
	}
	return out
}

// benchCallers runs b.N operations on one queue, shared by the callers.
func benchCallers(b *testing.B, newCaller func(q driver.Queue, batch int) func() error) {
	for _, batch := range []int{1, 10} {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("callers=%d/batch=%d", callers, batch), func(b *testing.B) {
				backend, err := Open(b.Context(), filepath.Join(b.TempDir(), "queues"), nil)
				if err != nil {
					b.Fatal(err)
				}
				defer backend.Close()
				q, err := backend.OpenQueue(b.Context(), "bench")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				var done atomic.Int64
				var wg sync.WaitGroup
				for range callers {
					work := newCaller(q, batch)
					wg.Go(func() {
						for done.Add(1) <= int64(b.N) {
							if err := work(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

func BenchmarkFlatness(b *testing.B) {
	flatness.Benchmark(b, func(b testing.TB) flatness.Backend {
		backend, err := Open(b.Context(), filepath.Join(b.TempDir(), "queues"), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = backend.Close() })
		return backend
	})
}
