package oapapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
)

// BenchmarkCall shows what a request with an answer costs through the daemon, beside a send, a
// receive and an ack by one goroutine, in turns. The metrics are the ratios, with and without the ack.
func BenchmarkCall(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) driver.Opener{
		"memory": func(*testing.B) driver.Opener { return membox.New(nil) },
		"disk": func(b *testing.B) driver.Opener {
			backend, err := diskbox.Open(b.Context(), b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			return backend
		},
	} {
		b.Run(name, func(b *testing.B) { benchmarkCall(b, open(b)) })
	}
}

func benchmarkCall(b *testing.B, backend driver.Opener) {
	d := newAsking(b, backend)
	address := d.listen(b)
	asking := newRemote(b, d, remotebox.New([]string{address}, d.token, nil))
	answering := remotebox.New([]string{address}, d.token, nil)
	defer answering.Close()
	d.make(b, "sums")
	d.make(b, "plain")
	ctx, cancel := context.WithCancel(b.Context())
	work := openSums(b, answering)
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[[]int]) (int, error) { return len(m.Body), nil }, nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for message, err := range work.Messages(ctx) {
			if err == nil {
				err = handle(ctx, message)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}
	}()
	defer func() { cancel(); <-stopped }()
	client := reply.NewClient[[]int, int](openSums(b, asking.Backend), asking.Replies(), nil)
	plain, err := mailbox.Open[[]int](ctx, asking.Backend, "plain", nil)
	if err != nil {
		b.Fatal(err)
	}
	const burst = 100
	var sendAndReceive, acks time.Duration
	calls := 0
	for b.Loop() {
		if _, err := client.Call(ctx, []int{1}); err != nil {
			b.Fatal(err)
		}
		if calls++; calls%burst != 0 {
			continue
		}
		b.StopTimer()
		for range burst {
			began := time.Now()
			if _, err := plain.Send(ctx, []int{1}); err != nil {
				b.Fatal(err)
			}
			got, err := plain.Receive(ctx, mailbox.WithWait(time.Minute))
			received := time.Now()
			if err == nil && len(got) == 1 {
				err = got[0].Ack(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
			sendAndReceive += received.Sub(began)
			acks += time.Since(received)
		}
		b.StartTimer()
	}
	if compared := calls / burst * burst; compared > 0 {
		each := float64(b.Elapsed().Nanoseconds()) / float64(b.N) * float64(compared)
		b.ReportMetric(each/float64(sendAndReceive.Nanoseconds()), "x-send-receive")
		b.ReportMetric(each/float64((sendAndReceive+acks).Nanoseconds()), "x-send-receive-ack")
	}
}
