package faulty

import (
	"context"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// kindFaults break what workers rely on, by kind and in batches. The cases that notice them are in
// package workertest.
var kindFaults = []Saboteur{
	{Name: "forgets-kinds", Breaks: "FLOW-7",
		What: "Deliveries do not show the kind of their message.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			d.Attributes = maps.Clone(d.Attributes)
			delete(d.Attributes, "kind")
		})}},
	{Name: "calls-unknown-kinds-fatal", Breaks: "FLOW-7",
		What: "A message of an unknown kind is dead-lettered with reason fatal.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, r *driver.DeadLetterRequest) {
			set(r.Reason == driver.ReasonParse, &r.Reason, driver.ReasonFatal)
		})}},
	{Name: "forgets-which-kind-is-unknown", Breaks: "FLOW-7",
		What: "The dead letter of a message of an unknown kind has no last error.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, r *driver.DeadLetterRequest) {
			set(r.Reason == driver.ReasonParse, &r.Error, "")
		})}},
	{Name: "drops-unknown-kinds", Breaks: "FLOW-7",
		What: "A message of an unknown kind leaves no dead letter.",
		on: hooks{deadLetter: oneByOne(func(q *queue, ctx context.Context, r driver.DeadLetterRequest) error {
			if r.Reason == driver.ReasonParse {
				return q.ackOne(ctx, r.Receipt)
			}
			return q.deadLetterOne(ctx, r)
		})}},
	{Name: "puts-unknown-kinds-back-at-once", Breaks: "FLOW-7",
		What: "A message that is put back with a delay is ready at once.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode == driver.NackPutBack, &nack.Delay, 0)
		})}},
	{Name: "counts-deliveries-of-unknown-kinds", Breaks: "FLOW-7",
		What: "A message that is put back with a delay counts the delivery.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode == driver.NackPutBack, &nack.Mode, driver.NackFailed)
		})}},
	{Name: "delivers-in-a-trickle", Breaks: "FLOW-7",
		What: "Each receive returns one message, a tenth of a second later.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			set(req.Max > 1, &req.Max, 1)
			got, err := q.Receive(ctx, req)
			if len(got) > 0 {
				<-time.After(100 * time.Millisecond)
			}
			return got, err
		}}},
	{Name: "acks-whole-batches", Breaks: "FLOW-7",
		What: "An ack of some messages acks all that were delivered.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			err := q.Ack(ctx, receipts)
			for _, receipt := range q.delivered.keys() {
				_ = q.ackOne(ctx, receipt) // it may be settled
			}
			return err
		}}},
	{Name: "acks-parts-of-batches", Breaks: "FLOW-7",
		What: "Of an ack of many messages the last has no effect.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			return q.Ack(ctx, receipts[:max(len(receipts)-1, min(len(receipts), 1))])
		}}},
}
