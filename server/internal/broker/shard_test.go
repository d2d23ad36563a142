package broker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestFiguresAndEnvelopesNameShard sends groups to a queue with several shards,
// and compares the shards of deliveries with the figures.
func TestFiguresAndEnvelopesNameShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		const shards, messages = 4, 40
		b.configure(c, "orders", driver.Config{Shards: shards, MaxMessages: shards * messages})
		for i := range messages {
			message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint("g", i%10)}}
			if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
				t.Fatal(err)
			}
		}
		depths := make([]float64, shards)
		for i := range depths {
			depths[i] = b.figure("mailbox_queue_depth", "queue=orders", fmt.Sprint("shard=", i), "state=ready")
		}
		byGroup, byShard := make(map[string]int), make([]float64, shards)
		for range messages {
			got := b.receive(c, "orders", 1)[0]
			shard := got.Envelope().Shard
			if known, ok := byGroup[got.Group]; ok && known != shard {
				t.Errorf("group %s came from shard %d and %d", got.Group, known, shard)
			}
			byGroup[got.Group] = shard
			byShard[shard]++
		}
		used := 0
		for i := range depths {
			if depths[i] != byShard[i] {
				t.Errorf("mailbox_queue_depth of shard %d was %v, and %v messages came from it", i, depths[i], byShard[i])
			}
			if byShard[i] > 0 {
				used++
			}
		}
		if used < 2 {
			t.Errorf("all messages came from one shard")
		}
		time.Sleep(2 * time.Second)
		if n := b.figure("mailbox_queue_limit", "queue=orders", "shard=3"); n != messages {
			t.Errorf("the limit of a shard is %v, want %d", n, messages)
		}
	})
}

func TestShardLabelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{Shards: 100, MaxMessages: 1000})
		for range 200 {
			b.send(c, "orders", "x")
		}
		sum, labels := 0.0, 0
		for _, label := range append(numbers(100), "other") {
			if n := b.figure("mailbox_queue_depth", "queue=orders", "shard="+label, "state=ready"); n > 0 {
				sum += n
				labels++
			}
		}
		if sum != 200 || labels != 17 {
			t.Errorf("%v messages under %d labels, want 200 under 17", sum, labels)
		}
	})
}

func numbers(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

func TestFullDeadLettersAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1, MaxDead: 2})
		for i := range 2 {
			b.Measure(t.Context())
			if n := b.DeadLettersFull(); n != 0 {
				t.Errorf("with %d dead letters %d queues are full", i, n)
			}
			time.Sleep(2 * time.Second)
			b.fail(c, "orders", "x", "broken")
		}
		b.Measure(t.Context())
		if n := b.DeadLettersFull(); n != 1 {
			t.Errorf("%d queues are full, want 1", n)
		}
		if _, err := c.PurgeDead(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		b.Measure(t.Context())
		if n := b.DeadLettersFull(); n != 0 {
			t.Errorf("after a purge %d queues are full", n)
		}
	})
}
