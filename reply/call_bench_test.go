package reply_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// BenchmarkCall shows what a request with an answer costs in memory, beside the
// least it could cost: the same two goroutines with a channel each way. The
// metric "x-channels" is the ratio of the two, measured in the same run.
func BenchmarkCall(b *testing.B) {
	body := make([]byte, 64)
	b.Run("channels", func(b *testing.B) {
		roundTrip, stop := channelRoundTrip()
		defer stop()
		b.ReportAllocs()
		for b.Loop() {
			roundTrip(body)
		}
	})
	b.Run("bytes", func(b *testing.B) { benchmarkCall(b, mailbox.Bytes(), body) })
	b.Run("string", func(b *testing.B) { benchmarkCall(b, mailbox.String(), string(body)) })
	b.Run("json", func(b *testing.B) {
		type order struct {
			ID   int    `json:"id"`
			Item string `json:"item"`
		}
		benchmarkCall(b, mailbox.JSON[order](), order{ID: 1, Item: "tea"})
	})
}

func channelRoundTrip() (roundTrip func([]byte) []byte, stop func()) {
	requests, answers := make(chan []byte), make(chan []byte)
	go func() {
		defer close(answers)
		for request := range requests {
			answers <- request
		}
	}()
	return func(request []byte) []byte { requests <- request; return <-answers }, func() { close(requests); <-answers }
}

func benchmarkCall[T any](b *testing.B, codec mailbox.Codec[T], body T) {
	ctx, cancel := context.WithCancel(b.Context())
	store := reply.NewMemory(nil)
	backend := membox.New(nil)
	defer backend.Close()
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[T]{Codec: codec, Replies: store})
	if err != nil {
		b.Fatal(err)
	}
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[T]) (T, error) { return m.Body, nil },
		&reply.HandleOptions[T]{Codec: codec})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for message, err := range requests.Messages(ctx) {
			if err == nil {
				err = handle(ctx, message)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}
	}()
	defer func() { cancel(); <-stopped }()
	client := reply.NewClient(requests, store, &reply.Options[T]{Codec: codec})

	// The channels are measured in between, so that both see the same machine.
	roundTrip, stop := channelRoundTrip()
	defer stop()
	const burst = 2000
	var channels time.Duration
	n, bursts := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Call(ctx, body); err != nil {
			b.Fatal(err)
		}
		if n++; n%burst == 0 || n == 1 {
			b.StopTimer()
			start := time.Now()
			for range burst {
				roundTrip(nil)
			}
			channels += time.Since(start)
			bursts++
			b.StartTimer()
		}
	}
	call := float64(b.Elapsed()) / float64(b.N)
	b.ReportMetric(call/(float64(channels)/float64(bursts*burst)), "x-channels")
	if left := reply.Len(store); left > 0 {
		b.Errorf("%d slots are left", left)
	}
}
