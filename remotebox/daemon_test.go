package remotebox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// startDaemon runs a daemon in memory on a free port until stop is called.
func startDaemon() (daemon *server.Server, stop func() error, err error) {
	daemon, err = server.New(server.Config{
		Profile: server.Micronode, Listen: server.Off, ListenOAP: "127.0.0.1:0", LogLevel: "error",
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	select {
	case <-daemon.Started():
		return daemon, func() error { cancel(); return <-done }, nil
	case err := <-done:
		cancel()
		return nil, nil, err
	}
}

// A mailbox of a daemon is used like any other.
func Example() {
	daemon, stop, err := startDaemon()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	backend := remotebox.New([]string{daemon.Address(server.OAP)}, daemon.OperatorToken().Reveal(), nil)
	greetings, err := mailbox.Open[string](ctx, backend, "greetings", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := greetings.Send(ctx, "hello"); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := greetings.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages {
		fmt.Println(m.Body, m.Ack(ctx))
	}
	fmt.Println(backend.Close(), stop())
	// Output:
	// hello <nil>
	// <nil> <nil>
}

// BenchmarkDaemon moves messages of 256 bytes through a whole daemon in this
// process, over TCP: 8 producers and 8 consumers, one message in each request,
// and send, receive and ack each confirmed.
func BenchmarkDaemon(b *testing.B) {
	daemon, stop, err := startDaemon()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			b.Error(err)
		}
	}()
	backend := remotebox.New([]string{daemon.Address(server.OAP)}, daemon.OperatorToken().Reveal(), nil)
	defer backend.Close()
	if err := backend.ConfigureQueue(b.Context(), "bench", driver.Config{}); err != nil {
		b.Fatal(err)
	}
	q, err := backend.OpenQueue(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	var sent, acked atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 8 {
		wg.Go(func() {
			out := []driver.Outgoing{{Body: make([]byte, 256)}}
			for sent.Add(1) <= int64(b.N) {
				if _, err := q.Send(b.Context(), out); err != nil {
					b.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for acked.Load() < int64(b.N) {
				got, err := q.Receive(b.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: 50 * time.Millisecond})
				for i := 0; err == nil && i < len(got); i++ {
					err = q.Ack(b.Context(), []driver.Receipt{got[i].Receipt})
					acked.Add(1)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
