package broker

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// orderWindow is how many earlier deliveries a message is compared with: several times
// what a failover may reorder.
const orderWindow = 256

// An orderMeter measures how far a queue is from first in, first out: for a message,
// the number of messages that were sent before it and delivered after it. Only first
// deliveries count, and only of messages that are not late on purpose: not those sent
// with a delay, returned, or redriven. A delivery is compared with those that were made
// before its receive began, because concurrent receives have no order.
//
// Each shard is measured separately, up to maxOrders.
type orderMeter struct {
	mu     sync.Mutex    // guards the field below
	shards []*shardOrder // grows when a shard delivers
}

// maxOrders is how many shards of a queue are measured.
const maxOrders = 16

// shardOrder is the order of one shard.
type shardOrder struct {
	entries []handed // grows to orderWindow: most queues are quiet
	count   uint64   // deliveries so far; the next index is count modulo the window
	latest  int64
	depth   int
}

// An orderMark is how many deliveries each shard had made.
type orderMark [maxOrders]uint64

// handed is a delivery that was made.
type handed struct {
	sentAt    int64 // Unix nanoseconds
	overtaken int   // messages sent earlier and delivered later
}

// began returns a mark for deliveries of a receive that begins now.
func (o *orderMeter) began() (mark orderMark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, s := range o.shards {
		mark[i] = s.count
	}
	return mark
}

// deliver notes a first delivery of a receive that began at mark.
func (o *orderMeter) deliver(mark orderMark, shard int, sentAt time.Time) {
	if shard >= maxOrders {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.shards) <= shard {
		o.shards = append(o.shards, new(shardOrder))
	}
	o.shards[shard].deliver(mark[shard], sentAt.UnixNano())
}

func (o *shardOrder) deliver(mark uint64, at int64) {
	if at < o.latest {
		for i := range min(o.count, orderWindow) {
			number := o.count - 1 - i
			e := &o.entries[number%orderWindow]
			if number < mark && e.sentAt > at {
				e.overtaken++
				o.depth = max(o.depth, e.overtaken)
			}
		}
	}
	o.latest = max(o.latest, at)
	if len(o.entries) < orderWindow {
		o.entries = append(o.entries, handed{})
	}
	o.entries[o.count%orderWindow] = handed{sentAt: at}
	o.count++
}

// deepest returns the maximum depth measured in a shard so far.
func (o *orderMeter) deepest(shard int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if shard >= len(o.shards) {
		return 0
	}
	return o.shards[shard].depth
}

// ordered reports whether a delivery counts for the order of the queue. began is when
// its receive began.
func ordered(m *driver.Message, s *Seal, began time.Time) bool {
	return m.Deliveries == 1 && s.Timely && !m.FirstReceivedAt.Before(began.Add(-time.Second))
}
