package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var lateAckFaults = []Saboteur{
	{Name: "forgives-no-late-ack", Breaks: "VIS-7",
		What: "A late ack is refused, although the queue accepts late acks.",
		on:   hooks{ackLate: (*queue).Ack}},
	{Name: "leases-nothing-again", Breaks: "VIS-7",
		What: "A late extension succeeds, and the message stays ready.",
		on: hooks{extendLate: func(q *queue, ctx context.Context, extensions []driver.Extension) error {
			_, err := q.Extend(ctx, extensions)
			return unless(errors.Is(err, driver.ErrReceiptExpired), err)
		}}},
	{Name: "counts-leasing-again", Breaks: "VIS-7",
		What: "A message that was leased again by a late extension counts another delivery.",
		on: hooks{
			extendLate: afterEach((*queue).ExtendLate, func(q *queue, extension driver.Extension) {
				state[marks](q).put(extension.Receipt.Handle, true)
			}),
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { set(state[marks](q).at(d.ID), &d.Deliveries, d.Deliveries+1) }),
		}},
	{Name: "ignores-late-acks", Breaks: "VIS-7",
		What: "A late ack succeeds, and the message stays.",
		on: hooks{ackLate: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			err := q.ackOne(ctx, receipt)
			_, known := q.delivered.get(receipt)
			return unless(known && errors.Is(err, driver.ErrReceiptExpired), err)
		})}},
	{Name: "forgives-only-the-latest", Breaks: "VIS-7",
		What: "A late ack with the receipt of an earlier delivery is refused.",
		on: hooks{ackLate: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			if q.current(receipt) != receipt {
				return q.expired()
			}
			return q.ackOneLate(ctx, receipt)
		})}},
	{Name: "forgives-only-until-the-next-delivery", Breaks: "VIS-7",
		What: "While a message is in flight again, only its holder can ack it.",
		on: hooks{ackLate: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			for _, seen := range q.peeked(ctx, driver.StateInFlight) {
				if seen.ID == receipt.Handle && q.current(receipt) != receipt {
					return q.expired()
				}
			}
			return q.ackOneLate(ctx, receipt)
		})}},
	{Name: "acks-late-what-was-nacked", Breaks: "VIS-7",
		What: "A late ack removes a message that was nacked since.",
		on: hooks{ackLate: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			err := q.ackOneLate(ctx, receipt)
			if _, known := q.delivered.get(receipt); !known || !errors.Is(err, driver.ErrReceiptExpired) {
				return err
			}
			got, failure := q.Receive(ctx, driver.ReceiveRequest{Max: 100, Visibility: time.Minute})
			for _, d := range got {
				if d.ID == receipt.Handle {
					err = q.ackOne(ctx, d.Receipt)
				} else {
					failure = errors.Join(failure, q.release(ctx, d.Receipt))
				}
			}
			if failure != nil {
				return failure
			}
			return err
		})}},
	{Name: "acks-late-whatever-the-nonce", Breaks: "VIS-7",
		What: "A late ack does not check the nonce of the receipt.",
		on:   hooks{ackLate: alterEach((*queue).AckLate, func(q *queue, receipt *driver.Receipt) { q.latest.load(receipt.Handle, receipt) })}},
	{Name: "leaves-receipts-alive-after-a-late-ack", Breaks: "VIS-7",
		What: "When a message was acked late, an ack with its later receipt succeeds too.",
		on: hooks{
			ackLate: afterEach((*queue).AckLate, func(q *queue, receipt driver.Receipt) { state[marks](q).put(receipt.Handle, true) }),
			ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				err := q.ackOne(ctx, receipt)
				return unless(state[marks](q).at(receipt.Handle) && errors.Is(err, driver.ErrReceiptExpired), err)
			}),
		}},
	{Name: "brings-back-what-was-acked-late-on-restart", Breaks: "VIS-7",
		What:    "After a restart messages that were acked late are back.",
		on:      hooks{ackLate: afterEach((*queue).AckLate, (*queue).recordDelivered)},
		restart: (*queue).bringBack},
}

func (q *queue) expired() error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: "ack", Queue: q.name}
}
