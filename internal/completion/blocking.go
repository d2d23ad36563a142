package completion

import (
	"context"
	"hash/maphash"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// blocking makes a Queue of one that blocks. Operations of one kind that wait at the same
// time are combined into calls: see combiner, and poll for receives.
type blocking struct {
	driver.Queue
	workers  workers
	polls    polls
	received received

	sends       combiner[driver.Outgoing, driver.Sent, Sent]
	acks        combiner[driver.Receipt, struct{}, Settled]
	nacks       combiner[driver.Nack, struct{}, Settled]
	extensions  combiner[driver.Extension, time.Duration, Extended]
	deadLetters combiner[driver.DeadLetterRequest, struct{}, Settled]
}

func newBlocking(q driver.Queue) *blocking {
	b := &blocking{Queue: q, workers: newWorkers()}
	b.sends.init(b, sends, q.Send)
	b.acks.init(b, acks, settling(q.Ack))
	b.nacks.init(b, nacks, settling(q.Nack))
	b.extensions.init(b, extensions, q.Extend)
	b.deadLetters.init(b, deadLetters, settling(q.DeadLetter))
	return b
}

// The kinds of operations. Acks, nacks and dead-letters need no order.
var (
	sends = &kind[driver.Outgoing, driver.Sent, Sent]{
		complete: func(done Sent, r *Round, sent []driver.Sent, err error) { done(r, sent, err) },
		lines:    sendLines,
		size:     outgoingSize,
		keep:     keepOutgoing,
	}
	acks       = settleKind[driver.Receipt]()
	nacks      = settleKind[driver.Nack]()
	extensions = &kind[driver.Extension, time.Duration, Extended]{
		complete: func(done Extended, r *Round, granted []time.Duration, err error) { done(r, granted, err) },
		lines: func(driver.Traits, *driver.Extension) (uint64, bool) {
			return allLines, false // the last one of a delivery counts
		},
	}
	deadLetters = settleKind[driver.DeadLetterRequest]()
)

func settleKind[E any]() *kind[E, struct{}, Settled] {
	return &kind[E, struct{}, Settled]{
		complete: func(done Settled, r *Round, _ []struct{}, err error) { done(r, err) },
		lines:    func(driver.Traits, *E) (uint64, bool) { return 0, false },
	}
}

var groupSeed = maphash.MakeSeed()

// sendLines keeps the order that a queue promises: that of all messages, or that within
// groups. In a queue of several shards, a message with a group and a dedup key takes several
// steps of the backend, and may wait for another send with that key. So it has a call of its
// own.
func sendLines(t driver.Traits, m *driver.Outgoing) (lines uint64, alone bool) {
	switch t.Ordering {
	case driver.OrderingNone:
		return 0, false
	case driver.OrderingPerShard:
		return 1 << (maphash.String(groupSeed, m.Group) % 64), m.DedupKey != "" && (m.Group != "" || t.StrictGroups)
	}
	return allLines, false
}

// settling returns settle as a call of a combiner.
func settling[E any](settle func(context.Context, []E) error) func(context.Context, []E) ([]struct{}, error) {
	return func(ctx context.Context, elements []E) ([]struct{}, error) { return nil, settle(ctx, elements) }
}

func outgoingSize(m *driver.Outgoing) int {
	size := len(m.Body) + len(m.Seal)
	for key, value := range m.Attributes {
		size += len(key) + len(value)
	}
	return size
}

// keepOutgoing makes a message independent of the caller's memory.
func keepOutgoing(m *driver.Outgoing, memory *arena) {
	m.Body = memory.clone(m.Body)
	m.Seal = memory.clone(m.Seal)
	m.Attributes = maps.Clone(m.Attributes)
}

// Close ends goroutines that wait for operations, and closes the handle.
func (b *blocking) Close() error {
	b.workers.close()
	return b.Queue.Close()
}

func (b *blocking) StartSend(_ *Round, msgs []driver.Outgoing, done Sent) {
	b.sends.start(msgs, done)
}

func (b *blocking) StartAck(_ *Round, receipts []driver.Receipt, done Settled) {
	b.acks.start(receipts, done)
}

func (b *blocking) StartNack(_ *Round, nacks []driver.Nack, done Settled) {
	b.nacks.start(nacks, done)
}

func (b *blocking) StartExtend(_ *Round, extensions []driver.Extension, done Extended) {
	b.extensions.start(extensions, done)
}

func (b *blocking) StartDeadLetter(_ *Round, requests []driver.DeadLetterRequest, done Settled) {
	b.deadLetters.start(requests, done)
}
