package completion

import (
	"context"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// blocking makes a Queue of one that blocks. Operations of one kind that wait at the same
// time are combined into calls; see combiner. Receives wait, each on a goroutine of its own.
type blocking struct {
	driver.Queue

	sends       combiner[driver.Outgoing, driver.Sent, Sent]
	acks        combiner[driver.Receipt, struct{}, Settled]
	nacks       combiner[driver.Nack, struct{}, Settled]
	extensions  combiner[driver.Extension, time.Duration, Extended]
	deadLetters combiner[driver.DeadLetterRequest, struct{}, Settled]
}

func newBlocking(q driver.Queue) *blocking {
	b := &blocking{Queue: q}
	b.sends.init(q, sends, q.Send)
	b.acks.init(q, acks, settling(q.Ack))
	b.nacks.init(q, nacks, settling(q.Nack))
	b.extensions.init(q, extensions, q.Extend)
	b.deadLetters.init(q, deadLetters, settling(q.DeadLetter))
	return b
}

// The kinds of operations. Calls of sends must not overtake each other, unless the queue
// keeps no order, and neither must extensions: the last one of a delivery counts.
var (
	sends = &kind[driver.Outgoing, driver.Sent, Sent]{
		complete: func(done Sent, r *Round, sent []driver.Sent, err error) { done(r, sent, err) },
		ordered:  func(o driver.Ordering) bool { return o != driver.OrderingNone },
		size:     outgoingSize,
		keep:     keepOutgoing,
	}
	acks       = settleKind[driver.Receipt]()
	nacks      = settleKind[driver.Nack]()
	extensions = &kind[driver.Extension, time.Duration, Extended]{
		complete: func(done Extended, r *Round, granted []time.Duration, err error) { done(r, granted, err) },
		ordered:  func(driver.Ordering) bool { return true },
	}
	deadLetters = settleKind[driver.DeadLetterRequest]()
)

func settleKind[E any]() *kind[E, struct{}, Settled] {
	return &kind[E, struct{}, Settled]{
		complete: func(done Settled, r *Round, _ []struct{}, err error) { done(r, err) },
		ordered:  func(driver.Ordering) bool { return false },
	}
}

// settling returns settle as a call of a combiner.
func settling[E any](settle func(context.Context, []E) error) func(context.Context, []E) ([]struct{}, error) {
	return func(ctx context.Context, elements []E) ([]struct{}, error) { return nil, settle(ctx, elements) }
}

func outgoingSize(m *driver.Outgoing) int {
	size := len(m.Body)
	for key, value := range m.Attributes {
		size += len(key) + len(value)
	}
	return size
}

// keepOutgoing makes a message independent of the caller's memory.
func keepOutgoing(m *driver.Outgoing, memory *arena) {
	m.Body = memory.clone(m.Body)
	m.Attributes = maps.Clone(m.Attributes)
}

func (b *blocking) StartSend(_ *Round, msgs []driver.Outgoing, done Sent) { b.sends.start(msgs, done) }

func (b *blocking) StartAck(_ *Round, receipts []driver.Receipt, done Settled) {
	b.acks.start(receipts, done)
}

func (b *blocking) StartNack(_ *Round, nacks []driver.Nack, done Settled) { b.nacks.start(nacks, done) }

func (b *blocking) StartExtend(_ *Round, extensions []driver.Extension, done Extended) {
	b.extensions.start(extensions, done)
}

func (b *blocking) StartDeadLetter(_ *Round, requests []driver.DeadLetterRequest, done Settled) {
	b.deadLetters.start(requests, done)
}

func (b *blocking) StartReceive(_ *Round, req driver.ReceiveRequest, to Receiver) Waiting {
	ctx, cancel := context.WithCancel(context.Background()) // it ends with the wait, or with Cancel
	Begin(func() func(*Round) {
		deliveries, err := b.Receive(ctx, req)
		cancel()
		return func(r *Round) { to.Received(r, deliveries, err) }
	})
	if req.Wait == 0 {
		return nil
	}
	return Canceller(cancel)
}
