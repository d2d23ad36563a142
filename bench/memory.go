package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

const bodyBytes = 256

// memorySuite compares full cycles (send, receive, ack) in memory, and measures the cost
// of waiting messages.
func memorySuite(r *report) {
	for _, goroutines := range []int{1, 4, 16} {
		r.compare(fmt.Sprintf("full cycle of a %d-byte message, %d goroutines", bodyBytes, goroutines), []contender{
			{name: "channel", run: cycles(goroutines, channelCycle)},
			{name: "membox", ours: true, limit: 12, run: cycles(goroutines, memboxCycle(driver.Config{}))},
			{name: "membox, 8 shards", run: cycles(goroutines, memboxCycle(driver.Config{Shards: 8}))},
			{name: "membox, strict groups", run: cycles(goroutines, memboxCycle(driver.Config{StrictGroups: true}))},
			{name: "Mailbox[[]byte]", run: cycles(goroutines, mailboxCycle)},
			{name: "watermill gochannel", atLeast: 5, run: cycles(goroutines, gochannelCycle)},
			{name: "gocloud mempubsub", atLeast: 5, run: cycles(goroutines, mempubsubCycle)},
		})
	}
	for _, groups := range []int{0, 10_000} {
		title := "full cycle with messages waiting"
		if groups > 0 {
			title = fmt.Sprintf("full cycle with messages waiting, strict, %d groups", groups)
		}
		var contenders []contender
		for _, waiting := range []int{1, 1_000, 100_000, 1_000_000} {
			c := contender{name: fmt.Sprintf("%d", waiting), ours: true, run: backlogCycle(waiting, groups)}
			if waiting == 1_000_000 {
				c.limit = 1.3
			}
			contenders = append(contenders, c)
		}
		r.compare(title, contenders)
	}
	printMemoryPerMessage()
}

// A cycler prepares a candidate; the function it returns runs one full cycle and is
// called by one goroutine.
type cycler func(b *testing.B) (newWorker func() func())

// cycles spreads b.N cycles over goroutines.
func cycles(goroutines int, prepare cycler) func(*testing.B) {
	return func(b *testing.B) {
		newWorker := prepare(b)
		b.ReportAllocs()
		b.ResetTimer()
		var wg sync.WaitGroup
		for g := range goroutines {
			n := b.N / goroutines
			if g < b.N%goroutines {
				n++
			}
			cycle := newWorker()
			wg.Go(func() {
				for range n {
					cycle()
				}
			})
		}
		wg.Wait()
	}
}

func channelCycle(*testing.B) func() func() {
	ch := make(chan []byte, 1024)
	body := make([]byte, bodyBytes)
	return func() func() {
		return func() {
			ch <- body
			<-ch
		}
	}
}

func memboxCycle(config driver.Config) cycler {
	return func(b *testing.B) func() func() {
		q := openMembox(b, config)
		return func() func() { return queueCycle(b, q, "") }
	}
}

func openMembox(b *testing.B, config driver.Config) driver.Queue {
	backend := membox.New(nil)
	b.Cleanup(func() { _ = backend.Close() })
	if err := backend.ConfigureQueue(context.Background(), "bench", config); err != nil {
		b.Fatal(err)
	}
	q, err := backend.OpenQueue(context.Background(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	return q
}

// queueCycle sends, receives and acks one message. Other goroutines may take
// the message it sent; it takes one of theirs then.
func queueCycle(b *testing.B, q driver.Queue, group string) func() {
	ctx := context.Background()
	out := []driver.Outgoing{{Body: make([]byte, bodyBytes), Group: group}}
	request := driver.ReceiveRequest{Max: 1, Visibility: time.Minute}
	receipts := make([]driver.Receipt, 1)
	return func() {
		if _, err := q.Send(ctx, out); err != nil {
			b.Error(err)
			return
		}
		var got []driver.Delivery
		for len(got) == 0 {
			var err error
			if got, err = q.Receive(ctx, request); err != nil {
				b.Error(err)
				return
			}
			if len(got) == 0 {
				runtime.Gosched()
			}
		}
		receipts[0] = got[0].Receipt
		if err := q.Ack(ctx, receipts); err != nil {
			b.Error(err)
		}
	}
}

func mailboxCycle(b *testing.B) func() func() {
	ctx := context.Background()
	mb := mailbox.New("bench", openMembox(b, driver.Config{}), &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	body := make([]byte, bodyBytes)
	return func() func() {
		return func() {
			if _, err := mb.Send(ctx, body); err != nil {
				b.Error(err)
				return
			}
			var got []*mailbox.Message[[]byte]
			for len(got) == 0 {
				var err error
				if got, err = mb.Receive(ctx); err != nil {
					b.Error(err)
					return
				}
			}
			if err := got[0].Ack(ctx); err != nil {
				b.Error(err)
			}
		}
	}
}

func gochannelCycle(b *testing.B) func() func() {
	ps := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1024}, watermill.NopLogger{})
	b.Cleanup(func() { _ = ps.Close() })
	ch, err := ps.Subscribe(context.Background(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, bodyBytes)
	return func() func() {
		return func() {
			if err := ps.Publish("bench", message.NewMessage(watermill.NewULID(), body)); err != nil {
				b.Error(err)
				return
			}
			(<-ch).Ack()
		}
	}
}

func mempubsubCycle(b *testing.B) func() func() {
	ctx := context.Background()
	sender := mempubsub.NewTopic()
	sub := mempubsub.NewSubscription(sender, time.Minute)
	b.Cleanup(func() {
		_ = sub.Shutdown(ctx)
		_ = sender.Shutdown(ctx)
	})
	body := make([]byte, bodyBytes)
	return func() func() {
		return func() {
			if err := sender.Send(ctx, &pubsub.Message{Body: body}); err != nil {
				b.Error(err)
				return
			}
			msg, err := sub.Receive(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			msg.Ack()
		}
	}
}

// backlogCycle runs cycles on a queue in which messages wait, in this many
// strict groups (0: not strict).
func backlogCycle(waiting, groups int) func(*testing.B) {
	var q driver.Queue
	return func(b *testing.B) {
		if q == nil { // filled once; cycles leave as many waiting as they find
			q = openBacklog(b, waiting, groups)
		}
		next := 0
		cycle := func() {}
		if groups == 0 {
			cycle = queueCycle(b, q, "")
		}
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if groups > 0 {
				next++
				cycle = queueCycle(b, q, groupName(next%groups))
			}
			cycle()
		}
	}
}

func groupName(i int) string { return fmt.Sprintf("group-%d", i) }

func openBacklog(b *testing.B, waiting, groups int) driver.Queue {
	backend := membox.New(nil)
	ctx := context.Background()
	if err := backend.ConfigureQueue(ctx, "bench", driver.Config{StrictGroups: groups > 0}); err != nil {
		b.Fatal(err)
	}
	q, err := backend.OpenQueue(ctx, "bench")
	if err != nil {
		b.Fatal(err)
	}
	out := []driver.Outgoing{{Body: make([]byte, bodyBytes)}}
	for i := range waiting {
		if groups > 0 {
			out[0].Group = groupName(i % groups)
		}
		if _, err := q.Send(ctx, out); err != nil {
			b.Fatal(err)
		}
	}
	return q
}

// printMemoryPerMessage fills a queue and prints the memory of one message.
func printMemoryPerMessage() {
	const n = 1_000_000
	before := heap()
	var q driver.Queue
	testing.Benchmark(func(b *testing.B) {
		if q == nil {
			q = openBacklog(b, n, 0)
		}
	})
	each := float64(heap()-before) / n
	runtime.KeepAlive(q)
	fmt.Printf("\nmemory per waiting message (%d-byte body): %.0f bytes; promised at most 450: %s\n", bodyBytes, each, kept(each <= 450))
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
