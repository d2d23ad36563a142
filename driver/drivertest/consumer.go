package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// The consumers of a crowd, and its operator of dead letters.

// consume receives and settles until no message is left.
func (m *member) consume() {
	for !m.hopeless() {
		req := driver.ReceiveRequest{
			Max:        1 + m.rand.IntN(10),
			Visibility: m.upTo(5),
			Wait:       m.upTo(2),
		}
		ctx, cancel := m.impatient()
		deliveries, err := m.handle().Receive(ctx, req)
		cancel()
		m.expected("receive", err)
		switch {
		case len(deliveries) > 0:
			m.settle(deliveries, req.Visibility)
		case err != nil:
			_ = backoff.Pause(m.t.Context(), m.unit/10)
		case m.sent.Load() && m.drained():
			return
		}
	}
}

func (m *member) drained() bool {
	stats, err := m.handle().Stats(m.t.Context())
	m.expected("stats", err)
	return err == nil && stats.Waiting() == 0
}

// settle does something with each delivery, often something wrong. It acks a message that was
// delivered a few times, so that the run ends.
func (m *member) settle(deliveries []driver.Delivery, visibility time.Duration) {
	q := m.handle()
	if m.chance(4) {
		m.ack(q, deliveries...)
		return
	}
	for _, d := range deliveries {
		choice := m.rand.IntN(16)
		if d.Deliveries > 3 {
			choice = 15
		}
		switch choice {
		case 0, 1:
			m.nack(q, d)
		case 2, 3:
			m.extend(q, d, m.upTo(4))
			m.ack(q, d)
		case 4:
			m.extend(q, d, 0)
			m.ack(q, d)
		case 5: // too late
			_ = backoff.Pause(m.t.Context(), visibility)
			m.ack(q, d)
		case 6: // just in time, or not
			_ = backoff.Pause(m.t.Context(), max(0, visibility-m.upTo(1)))
			m.nack(q, d)
		case 7:
			m.ack(q, d)
			m.ack(q, d)
		case 8:
			m.race(q, d)
		case 9:
			m.deadLetter(q, d)
		case 10: // a consumer that died
		default:
			m.ack(q, d)
		}
	}
}

func (m *member) ack(q driver.Queue, deliveries ...driver.Delivery) {
	receipts := make([]driver.Receipt, len(deliveries))
	for i, d := range deliveries {
		receipts[i] = d.Receipt
	}
	ctx, cancel := m.impatient()
	defer cancel()
	m.expected("ack", q.Ack(ctx, receipts))
}

func (m *member) nack(q driver.Queue, d driver.Delivery) {
	nack := driver.Nack{Receipt: d.Receipt, Delay: m.upTo(2), Cause: "not now"}
	m.expected("nack", q.Nack(m.t.Context(), []driver.Nack{nack}))
}

func (m *member) extend(q driver.Queue, d driver.Delivery, visibility time.Duration) {
	m.expected("extend", extended(q.Extend(m.t.Context(), []driver.Extension{{Receipt: d.Receipt, Visibility: visibility}})))
}

func (m *member) deadLetter(q driver.Queue, d driver.Delivery) {
	if !q.Traits().DeadLetters {
		m.ack(q, d)
		return
	}
	request := driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal, Error: "hopeless"}
	m.expected("dead-letter", q.DeadLetter(m.t.Context(), []driver.DeadLetterRequest{request}))
}

// race settles one delivery in three ways at once; one of them may win.
func (m *member) race(q driver.Queue, d driver.Delivery) {
	var wg sync.WaitGroup
	ctx, delay := m.t.Context(), m.upTo(1)
	wg.Go(func() { m.expected("ack", q.Ack(ctx, []driver.Receipt{d.Receipt})) })
	wg.Go(func() { m.expected("nack", q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Delay: delay}})) })
	wg.Go(func() {
		m.expected("extend", extended(q.Extend(ctx, []driver.Extension{{Receipt: d.Receipt, Visibility: delay}})))
	})
	wg.Wait()
}

// operate redrives some dead letters and discards others, until done. It names them, because a
// history in which any message may have been redriven proves less.
func (m *member) operate(done context.Context) {
	for backoff.Pause(done, m.upTo(2)+m.unit/10) == nil {
		q := m.handle()
		if !q.Traits().DeadLetters {
			return
		}
		var ids []string
		for letter, err := range q.DeadLetters(m.t.Context()) {
			if m.expected("list the dead letters", err); err != nil {
				break
			}
			if m.chance(2) {
				ids = append(ids, letter.ID)
			}
		}
		for i, id := range ids {
			var err error
			switch {
			case i%4 == 0:
				_, err = q.Discard(m.t.Context(), []string{id})
			case !m.sent.Load():
				_, err = q.Redrive(m.t.Context(), []string{id}, 0)
			}
			m.expected("look after the dead letters", err)
		}
	}
}
