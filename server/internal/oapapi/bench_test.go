package oapapi_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// listen serves a daemon on a loopback port and returns its address.
func (d *daemon) listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.serveOn(t, l)
	return l.Addr().String()
}

// overLoopback is a client of a daemon over TCP.
func overLoopback(t testing.TB, backend driver.Opener) *remote {
	t.Helper()
	d := newDaemon(t, backend, oapapi.Options{})
	client := remotebox.New([]string{d.listen(t)}, d.token, nil)
	return newRemote(t, d, client)
}

// BenchmarkLoopback moves messages of 256 bytes over TCP, with a client and a daemon in one
// process: 8 producers and 8 consumers, and send, receive and ack each confirmed.
func BenchmarkLoopback(b *testing.B) {
	backends := map[string]func(b *testing.B) driver.Opener{
		"memory": func(*testing.B) driver.Opener { return membox.New(nil) },
		"disk": func(b *testing.B) driver.Opener {
			disk, err := diskbox.Open(b.Context(), b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			return disk
		},
	}
	for _, name := range []string{"memory", "disk"} {
		for _, batch := range []int{1, 10} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(b *testing.B) {
				q, err := overLoopback(b, backends[name](b)).OpenQueue(b.Context(), "bench")
				if err != nil {
					b.Fatal(err)
				}
				flow(b, q, batch)
			})
		}
	}
}

// BenchmarkLatency sends a message every 2 ms, and prints how long it takes from
// the beginning of the send until a receiver that waits has it.
func BenchmarkLatency(b *testing.B) {
	q, err := overLoopback(b, membox.New(nil)).OpenQueue(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	received := make(chan struct{})
	go func() {
		defer close(received)
		for len(took) < b.N {
			got, err := q.Receive(b.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Minute})
			if err != nil || len(got) == 0 {
				b.Error(got, err)
				return
			}
			began := time.Unix(0, int64(binary.BigEndian.Uint64(got[0].Body)))
			took = append(took, time.Since(began))
			if err := q.Ack(b.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
				b.Error(err)
			}
		}
	}()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	body := make([]byte, 256)
	for range b.N {
		<-pace.C
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		if _, err := q.Send(b.Context(), []driver.Outgoing{{Body: body}}); err != nil {
			b.Fatal(err)
		}
	}
	<-received
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// flow is 8 producers and 8 consumers, with so many messages in each request.
func flow(b *testing.B, q driver.Queue, batch int) {
	const producers, consumers = 8, 8
	ctx := b.Context()
	var sent, acked atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	for range producers {
		wg.Go(func() {
			out := slices.Repeat([]driver.Outgoing{{Body: make([]byte, 256)}}, batch)
			for {
				left := int64(b.N) - sent.Add(int64(batch)) + int64(batch)
				if left <= 0 {
					return
				}
				if _, err := q.Send(ctx, out[:min(left, int64(batch))]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			for acked.Load() < int64(b.N) {
				got, err := q.Receive(ctx, driver.ReceiveRequest{Max: batch, Visibility: time.Minute, Wait: 50 * time.Millisecond})
				if err != nil {
					b.Error(err)
					return
				}
				if len(got) == 0 {
					continue
				}
				receipts := make([]driver.Receipt, len(got))
				for i := range got {
					receipts[i] = got[i].Receipt
				}
				if err := q.Ack(ctx, receipts); err != nil {
					b.Error(err)
					return
				}
				acked.Add(int64(len(got)))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/msg")
}

// processorTime is what the process has used so far, client and daemon together:
// unlike the rate it hardly depends on what else the machine does.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
